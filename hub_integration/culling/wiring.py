"""The culler as a service of the Hub: its roles, its address and its settings, in one call."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SERVICE = "gpushare-culler"
ACCESS = f"access:services!service={SERVICE}"
PORT = 10102
# What the culler does at the Hub, and nothing more.
SCOPES = (
    "list:users",  # whose servers there are
    "read:users:activity",
    "read:users:groups",  # policies by group
    "read:servers",
    "delete:servers",
    "users:activity",  # the bridge keeps servers alive under another culler
)
KERNEL_SCOPE = "access:servers"  # to end kernels through their servers
_DEFAULT_SCOPES = {
    "user": ["self"],
    "server": ["users:activity!user", "access:servers!server"],
}
# Settings that it shares with the spawner.
_SHARED = (
    "catalogue_file",
    "extender_url",
    "extender_ca",
    "extender_server_name",
    "extender_token_file",
    "ledger_url",
    "prefix",
    "unit",
)
# A service starts without the Hub's environment; this is how it reaches Kubernetes.
_ENVIRONMENT = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


def configure_culler(
    c: Any, *, port: int = PORT, address: str = "127.0.0.1", **settings: Any
) -> None:
    """Let the Hub with the configuration ``c`` run the culler as its service::

        from hub_integration.config import configure, configure_culler
        configure(c, catalogue_file="/etc/jupyterhub/catalogue.yaml", extender_url="https://…:8443")
        configure_culler(c)

    The same two lines do it in ``hub.extraConfig`` of zero-to-jupyterhub, with ``cull.enabled:
    false`` and ``address="hub"``: ``address`` is where the proxy finds the Hub's own machine, if the
    proxy is on another; the culler then listens on all addresses.

    ``settings`` are those of ``c.GPUShareCuller``; what it shares with the spawner is taken from
    ``c.GPUShareSpawner``. Users and their servers are let in at its API. Raises ValueError for a
    setting that there is not.
    """
    from hub_integration.culling.app import SETTINGS, GPUShareCuller
    from hub_integration.settings import GPUShareSettings

    known = GPUShareCuller.class_own_traits(config=True)
    for name in settings:
        if name not in known:
            raise ValueError(f"GPUShareCuller has no setting {name!r}: {', '.join(sorted(known))}")
    spawner = c.GPUShareSpawner
    # The Hub's own ledger is in the folder that both are started in, if nothing else is said.
    shared: dict[str, Any] = {"ledger_url": GPUShareSettings.ledger_url.default_value}
    shared |= {name: spawner[name] for name in _SHARED if name in spawner}
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    chosen = {**shared, **_namespace(c), **dict(c.GPUShareCuller), **settings}
    if address != "127.0.0.1":
        chosen.setdefault("ip", "0.0.0.0")  # noqa: S104 - a pod of its own
    environment[SETTINGS] = json.dumps(chosen)
    service = {
        "name": SERVICE,
        "url": f"http://{address}:{port}",
        "command": [sys.executable, "-m", "hub_integration.culling"],
        "environment": environment,
        "display": False,
        "oauth_no_confirm": True,
    }
    c.JupyterHub.services = [s for s in _listed(c, "services") if s.get("name") != SERVICE]
    c.JupyterHub.services.append(service)
    scopes = [*SCOPES, *([KERNEL_SCOPE] if chosen.get("end_kernels", True) else [])]
    roles = [role for role in _listed(c, "load_roles") if role.get("name") != SERVICE]
    roles.append({"name": SERVICE, "scopes": scopes, "services": [SERVICE]})
    c.JupyterHub.load_roles = let_in(roles, ACCESS)
    spawner.culler_runs = True
    if "culler_url" not in spawner:
        # The spawner says to those who wait who is about to go.
        from hub_integration.config import _let_in_at_the_culler

        base = str(c.JupyterHub.get("base_url", "/")).rstrip("/")
        spawner.culler_url = f"http://127.0.0.1:{port}{base}/services/{SERVICE}/"
        _let_in_at_the_culler(c)


def let_in(roles: list[Any], scope: str) -> list[Any]:
    """The roles with ``scope`` for all users and for their servers."""
    found = {role.get("name") for role in roles}
    missing = [
        {"name": name, "scopes": list(scopes)}
        for name, scopes in _DEFAULT_SCOPES.items()
        if name not in found
    ]
    return [
        {**role, "scopes": list(dict.fromkeys([*role.get("scopes", ()), scope]))}
        if role.get("name") in _DEFAULT_SCOPES
        else role
        for role in [*roles, *missing]
    ]


def _namespace(c: Any) -> dict[str, str]:
    """Where KubeSpawner runs the servers, if that is said."""
    if c.KubeSpawner.get("enable_user_namespaces"):
        return {"namespace": "*"}
    given = c.KubeSpawner.get("namespace")
    return {"namespace": given} if isinstance(given, str) else {}


def _listed(c: Any, name: str) -> list[Any]:
    value = c.JupyterHub.get(name, [])
    return list(value) if isinstance(value, list | tuple) else []
