"""A real JupyterHub with its proxy beside the playground's cluster; notebooks are pods in it.

Both listen on the playground's own address, which only this machine reaches, so no port of the
machine can be taken. They are components of the playground: `down` ends them and removes their
files, and a log for each lies beside the others.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from playground import cgroups
from playground.cluster import Cluster, PlaygroundError
from playground.hub_account import (
    NAMESPACE,
    find_extender,
    prepare_account,
    random_secret,
    write_credentials,
    write_private,
)
from playground.hub_proxy import ensure_proxy
from playground.processes import Component
from playground.readiness import Http

HUB, PROXY = "jupyterhub", "http-proxy"
PORT, HUB_PORT, PROXY_API_PORT = 8000, 8081, 8001
_CULLER_PORT = 10102  # on the machine's loopback, so each playground's slot is added
_DASHBOARD_PORT = 10202  # likewise
PASSWORD = "gpushare"  # noqa: S105 - of demo users, on an address that only this machine reaches
IMAGE = "localhost/gpushare/singleuser:dev"
_CONFIG = Path(__file__).with_name("hub_config.py")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Secrets:
    """Made once for each playground, so that a restarted Hub knows its cookies and services."""

    proxy_token: str
    culler_token: str


class Hub:
    """The Hub of one playground.

    ``catalogue`` is '' for the one that comes with gpushare; ``spawner`` are further settings of
    ``c.GPUShareSpawner``. ``culler`` are settings of ``c.GPUShareCuller``; with None, no culler
    runs. ``environment`` is the Hub's beside its own. ``stock``: with KubeSpawner itself, to compare.
    ``dashboard``: with the dashboard, at /services/gpushare-dashboard/.
    """

    def __init__(
        self,
        cluster: Cluster,
        say: Say = print,
        catalogue: str = "",
        admins: Sequence[str] = ("admin",),
        spawner: Mapping[str, object] | None = None,
        culler: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        stock: bool = False,
        dashboard: bool = False,
    ) -> None:
        self.cluster = cluster
        self.say = say
        self.catalogue = catalogue
        self.admins = tuple(admins)
        self.spawner = dict(spawner or {})
        self.culler = None if culler is None else dict(culler)
        self.environment = dict(environment or {})
        self.stock = stock
        self.dashboard = dashboard
        self.folder = cluster.folders.root / "hub"

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        return f"http://{self.cluster.plan.host}:{PORT}"

    @property
    def logs(self) -> tuple[Path, Path]:
        return self.cluster.processes.log(HUB), self.cluster.processes.log(PROXY)

    @property
    def running(self) -> bool:
        return all(self.cluster.processes.pid(name) is not None for name in (HUB, PROXY))

    def start(self) -> None:
        """Start what is not running of the two, and wait until they answer.

        Raises PlaygroundError, PackagesMissing, StepFailed or ComponentFailed.
        """
        if importlib.util.find_spec("jupyterhub") is None:
            raise PlaygroundError(
                f"JupyterHub is missing in {sys.prefix}: pip install 'jupyterhub-gpushare[hub]'"
            )
        proxy = ensure_proxy(self.say)
        api = self.cluster.api()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        prepare_account(api)
        kubeconfig = write_credentials(api, self.cluster.kubeconfig(), self.folder)
        if self._write_settings():
            self.cluster.processes.stop(HUB)  # it runs with other settings
        if not self.cluster.simulated:
            cgroups.create(self.cluster.control_plane_group)
        components = self.components(proxy, kubeconfig)
        processes = self.cluster.processes
        started = [c for c in components if processes.pid(c.name) is None]
        for component in started:
            processes.start(component)
        for component in started:
            processes.await_ready(component)

    def restart(self) -> None:
        """Stop the Hub, but not the proxy, and start it again; running servers stay."""
        self.cluster.processes.stop(HUB)
        self.start()

    def stop(self) -> bool:
        """End both; False if neither ran. Servers go on running, as in a real cluster."""
        stopped = [self.cluster.processes.stop(name) for name in (HUB, PROXY)]
        return any(stopped)

    @property
    def culler_token(self) -> str:
        """Token of the service with an idle culler's rights."""
        return self._secrets().culler_token

    def components(self, proxy: tuple[str, str], kubeconfig: Path) -> list[Component]:
        """The proxy and the Hub, as the playground starts them."""
        plan = self.cluster.plan
        group = None if self.cluster.simulated else self.cluster.control_plane_group
        return [
            Component(
                name=PROXY,
                command=(
                    *proxy,
                    f"--ip={plan.host}",
                    f"--port={PORT}",
                    f"--api-ip={self._loopback}",
                    f"--api-port={PROXY_API_PORT}",
                    f"--default-target=http://{plan.host}:{HUB_PORT}",
                    f"--error-target=http://{plan.host}:{HUB_PORT}/hub/error",
                ),
                environment={"CONFIGPROXY_AUTH_TOKEN": self._secrets().proxy_token},
                ready=Http(f"http://{plan.host}:{PORT}/_chp_healthz"),
                group=group,
            ),
            Component(
                name=HUB,
                command=(sys.executable, "-m", "jupyterhub", "-f", str(_CONFIG)),
                environment={
                    **self.environment,
                    "GPUSHARE_HUB_SETTINGS": str(self._settings),
                    "KUBECONFIG": str(kubeconfig),
                },
                ready=Http(f"http://{plan.host}:{HUB_PORT}/hub/health"),
                group=group,
            ),
        ]

    @property
    def _loopback(self) -> str:
        """A loopback address of this playground's own: pods cannot reach the proxy's API there."""
        return f"127.{self.cluster.plan.slot}.0.2"

    @property
    def _settings(self) -> Path:
        return self.folder / "settings.json"

    def _secrets(self) -> Secrets:
        path = self.folder / "secrets.json"
        if not path.exists():
            made = {"proxy_token": random_secret(), "culler_token": random_secret()}
            write_private(path, json.dumps(made))
        return Secrets(**json.loads(path.read_text()))

    def _write_settings(self) -> bool:
        """Whether they differ from those before."""
        plan, secrets = self.cluster.plan, self._secrets()
        extender = find_extender(self.cluster.api(), self.folder)
        settings = {
            "folder": str(self.folder),
            "host": plan.host,
            "port": PORT,
            "hub_port": HUB_PORT,
            "proxy_api": f"http://{self._loopback}:{PROXY_API_PORT}",
            "proxy_token": secrets.proxy_token,
            "culler_token": secrets.culler_token,
            "password": PASSWORD,
            "admins": self.admins,
            "spawner": self.spawner,
            "culler": self.culler,
            "culler_port": _CULLER_PORT + plan.slot,
            "environment": self.environment,
            "stock": self.stock,
            "dashboard_port": _DASHBOARD_PORT + plan.slot if self.dashboard else 0,
            "namespace": NAMESPACE,
            "image": IMAGE,
            "catalogue": self.catalogue,
            "extender_url": extender.url if extender else "",
            "extender_server_name": extender.server_name if extender else "",
            "extender_ca": str(extender.ca) if extender else "",
        }
        text = json.dumps(settings, indent=1)
        if self._settings.exists() and self._settings.read_text() == text:
            return False
        write_private(self._settings, text)
        return True
