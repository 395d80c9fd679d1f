"""The usage API of a node's plugin, as the extender reads it: over TLS, with its own token."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

import pytest
from kubernetes import client

from gpushare.placement import ContainerPlacement
from gpushare.request import Role
from gpushare.usage import NodeUsage, decode
from tests.cluster.binder import NODE, Binder
from tests.cluster.gpu_programs import Programs, notebook
from tests.cluster.pods import Pods, pod
from tests.cluster.processes import NAMESPACE

EXTENDER, NOBODY = "gpushare-user-scheduler", "default"


class Agent:
    """The plugin of the node."""

    def __init__(self, api: client.ApiClient) -> None:
        self._core = client.CoreV1Api(api)
        secret = self._core.read_namespaced_secret("gpushare-device-plugin-tls", NAMESPACE)
        authority = base64.b64decode(secret.data["ca.crt"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def get(self, port: int, path: str, account: str | None) -> str:
        """Ask it; the certificate must be for the service's name, though the address is the pod's."""
        address = self._address()
        headers = {"Host": f"gpushare-device-plugin.{NAMESPACE}.svc"}
        if account:
            headers["Authorization"] = f"Bearer {self._token(account)}"
        request = urllib.request.Request(f"https://{address}:{port}{path}", headers=headers)
        opener = urllib.request.build_opener(_NamedHandler(self._tls))
        with opener.open(request, timeout=10) as answer:
            return answer.read().decode()

    def usage(self) -> NodeUsage:
        return decode(self.get(9410, "/v1/usage", EXTENDER))

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self._address()}:9409/metrics", timeout=10) as answer:
            return answer.read().decode()

    def _address(self) -> str:
        pods = self._core.list_namespaced_pod(
            NAMESPACE,
            label_selector="app.kubernetes.io/component=device-plugin",
            field_selector=f"spec.nodeName={NODE}",
        )
        return str(pods.items[0].status.pod_ip)

    def _token(self, account: str) -> str:
        answer = self._core.create_namespaced_service_account_token(
            account, NAMESPACE, {"spec": {"expirationSeconds": 600}}
        )
        return str(answer.status.token)


class _NamedHandler(urllib.request.HTTPSHandler):
    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(context=_Named(tls))


class _Named:
    """A TLS context that expects the service's name, whatever address is called."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls

    def __getattr__(self, name: str) -> object:
        return getattr(self._tls, name)

    def wrap_socket(self, sock: object, **options: object) -> object:
        options["server_hostname"] = f"gpushare-device-plugin.{NAMESPACE}.svc"
        return self._tls.wrap_socket(sock, **options)  # type: ignore[arg-type]


@pytest.fixture
def agent(api: client.ApiClient) -> Agent:
    return Agent(api)


@pytest.fixture
def programs(pods: Pods) -> Iterator[Programs]:
    programs = Programs(pods)
    with programs.cleared():
        yield programs


def test_who_may_read(agent: Agent) -> None:
    for account, status in ((None, 401), (NOBODY, 403)):
        with pytest.raises(HTTPError) as refused:
            agent.get(9410, "/v1/usage", account)
        assert refused.value.code == status
    assert agent.usage().node == NODE


def test_what_a_slice_uses(
    api: client.ApiClient, agent: Agent, pods: Pods, programs: Programs
) -> None:
    share = Binder(api, pods).share(0, 3)
    placed = ContainerPlacement("notebook", Role.APP, (share,))
    Binder(api, pods).bind(pod("using", notebook("notebook", 3, 2)), placed)
    pods.await_running("using")
    _, one, two = programs.pids("using", at_least=3)
    programs.hold(one, 1000, sm=40)
    programs.hold(two, 500)
    deadline = time.monotonic() + 90
    while True:
        usage = agent.usage()
        mine = [s for s in usage.slices if s.pod == "using"]
        if mine and mine[0].used_mib == 1500 and mine[0].last_kernel:
            break
        assert time.monotonic() < deadline, json.dumps([repr(s) for s in usage.slices])
        time.sleep(0.5)
    (its,) = mine
    assert (its.card, its.slice_mib, its.sm_percent) == (share.card, 3072, 40)
    assert (its.memory_held, its.compute_held) == ("watchdog", "best-effort")
    (container,) = its.containers
    assert (container.name, container.used_mib, container.processes) == ("notebook", 1500, 2)
    assert time.time() - its.last_kernel < 90
    cards = {card.uuid: card for card in usage.cards}
    assert cards[share.card].used_mib == 1500 + 399
    page = agent.metrics()
    (line,) = [
        line
        for line in page.splitlines()
        if line.startswith("gpushare_slice_memory_used_bytes{") and 'pod="using"' in line
    ]
    assert line.endswith(f" {1500 * 2**20:.10g}") or float(line.split()[-1]) == 1500 * 2**20
    assert 'modelName="Tesla T4"' in line
    assert f'Hostname="{NODE}"' in line
