"""Who gets at the state API of the installed product, and which ways lead to it."""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kubernetes import client

from playground.install import NAMESPACE
from tests.cluster.identities import acting_as

SERVICE = "gpushare-extender"
READER = "gpushare-state-reader"
PROXY = f"/api/v1/namespaces/{NAMESPACE}/services/https:{SERVICE}:state/proxy"


@dataclass(frozen=True)
class StateApi:
    """The state API at its Service, checked against the authority that the chart publishes."""

    address: str
    authority: str

    def get(self, path: str, token: str = "") -> int:
        """The status of the answer."""
        request = urllib.request.Request(f"https://{self.address}:8443{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        context = ssl.create_default_context(cadata=self.authority)
        # The test has no cluster DNS; the certificate is for the Service's name.
        context.check_hostname = False
        try:
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return int(error.code)


@pytest.fixture(scope="module")
def state(api: client.ApiClient) -> StateApi:
    core = client.CoreV1Api(api)
    service = core.read_namespaced_service(SERVICE, NAMESPACE)
    authority = core.read_namespaced_config_map(f"{SERVICE}-ca", NAMESPACE).data["ca.crt"]
    return StateApi(service.spec.cluster_ip, authority)


def token_of(api: client.ApiClient, namespace: str, account: str) -> str:
    request = {"spec": {"audiences": [], "expirationSeconds": 600}}
    answer = client.CoreV1Api(api).create_namespaced_service_account_token(
        account, namespace, request
    )
    return str(answer.status.token)


def test_certificate_is_good_for_the_service_name(state: StateApi) -> None:
    context = ssl.create_default_context(cadata=state.authority)
    name = f"{SERVICE}.{NAMESPACE}.svc"
    with socket.create_connection((state.address, 8443), timeout=10) as plain:
        context.wrap_socket(plain, server_hostname=name).close()


def test_probes_need_no_token(state: StateApi) -> None:
    assert state.get("/healthz") == 200
    assert state.get("/readyz") == 200


def test_reader_reads_and_others_do_not(api: client.ApiClient, state: StateApi) -> None:
    assert state.get("/v1/nodes", token_of(api, NAMESPACE, READER)) == 200
    assert state.get("/v1/nodes") == 401
    assert state.get("/v1/nodes", "nonsense") == 401
    assert state.get("/v1/nodes", token_of(api, "default", "default")) == 403


def test_verbs_cannot_be_reached_from_outside_the_pod(api: client.ApiClient) -> None:
    """Whoever reached them could bind pods to cards."""
    pods = client.CoreV1Api(api).list_namespaced_pod(
        NAMESPACE, label_selector="app.kubernetes.io/component=user-scheduler"
    )
    assert pods.items
    for pod in pods.items:
        socket.create_connection((pod.status.pod_ip, 8443), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((pod.status.pod_ip, 39999), timeout=5)


@pytest.fixture
def inspector(api: client.ApiClient) -> Iterator[client.ApiClient]:
    """A person who is bound to the role gpushare-inspect, and to nothing else."""
    rbac = client.RbacAuthorizationV1Api(api)
    rbac.create_namespaced_role_binding(
        NAMESPACE,
        {
            "metadata": {"name": "inspector"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "gpushare-inspect",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "inspector"}
            ],
        },
    )
    yield acting_as(api, "inspector")
    rbac.delete_namespaced_role_binding("inspector", NAMESPACE)


def through_the_proxy(api: client.ApiClient, path: str, token: str) -> int:
    """GET through the API server's service proxy, as `gpushare inspect` does."""
    headers = {**api.default_headers, "X-Gpushare-Authorization": f"Bearer {token}"}
    answer = api.rest_client.pool_manager.request(
        "GET", f"{api.configuration.host}{PROXY}{path}", headers=headers, timeout=10, retries=False
    )
    return int(answer.status)


def test_role_is_enough_to_inspect(inspector: client.ApiClient) -> None:
    token = token_of(inspector, NAMESPACE, READER)
    assert through_the_proxy(inspector, "/v1/nodes", token) == 200


def test_role_is_good_for_nothing_else(api: client.ApiClient, inspector: client.ApiClient) -> None:
    with pytest.raises(client.ApiException) as refused:
        token_of(inspector, NAMESPACE, "gpushare-user-scheduler")
    assert refused.value.status == 403
    with pytest.raises(client.ApiException) as refused:
        client.CoreV1Api(inspector).list_namespaced_pod(NAMESPACE)
    assert refused.value.status == 403


def test_without_the_role_the_way_is_closed(api: client.ApiClient) -> None:
    stranger = acting_as(api, "stranger")
    with pytest.raises(client.ApiException) as refused:
        token_of(stranger, NAMESPACE, READER)
    assert refused.value.status == 403
    assert through_the_proxy(stranger, "/v1/nodes", "nonsense") == 403
