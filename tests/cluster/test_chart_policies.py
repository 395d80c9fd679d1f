"""The admission policies, tried on the API server: who may write placements and cards, and how.

Everything is a dry run: admission decides as it always does, and nothing is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from kubernetes import client

from gpushare.names import Names
from playground.install import NAMESPACE
from tests.cluster.identities import acting_as, pod_token, service_account, with_token

NAMES = Names()
PLACEMENT = '{"v":1}'
EXTENDER = service_account(NAMESPACE, "gpushare-user-scheduler")
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def tenant(api: client.ApiClient) -> Iterator[tuple[str, client.ApiClient]]:
    """A namespace, and the client of a user who may do anything in it."""
    core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
    namespace = f"tenant-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": namespace}})
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "owner"}})
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    rbac.create_namespaced_role(namespace, {"metadata": {"name": "owner"}, "rules": everything})
    rbac.create_namespaced_role_binding(
        namespace,
        {
            "metadata": {"name": "owner"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "owner",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "owner", "namespace": namespace}],
        },
    )
    yield namespace, acting_as(api, service_account(namespace, "owner"))
    core.delete_namespace(namespace)


def manifest(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": {
            # Nobody schedules it: it is there to be patched.
            "schedulerName": "nobody",
            "serviceAccountName": "owner",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "example.org/none"}],
        },
    }


@pytest.fixture
def pod(api: client.ApiClient, tenant: tuple[str, client.ApiClient]) -> Iterator[str]:
    """An unbound pod of the tenant."""
    namespace, owner = tenant
    name = f"pod-{uuid.uuid4().hex[:8]}"
    client.CoreV1Api(owner).create_namespaced_pod(namespace, manifest(name, note="mine"))
    yield name
    client.CoreV1Api(api).delete_namespaced_pod(name, namespace, grace_period_seconds=0)


def binding(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "anywhere"},
    }


def bind(
    api: client.ApiClient, namespace: str, body: dict[str, Any], *, legacy: bool = False
) -> None:
    """POST a Binding, as schedulers do: to the pod, or the old way to the namespace's bindings."""
    core = client.CoreV1Api(api)
    # The answer is a Status, which the client would take for a Binding.
    as_it_is = {"dry_run": "All", "_preload_content": False}
    if legacy:
        answer = core.create_namespaced_binding(namespace, body, **as_it_is)
    else:
        answer = core.create_namespaced_pod_binding(
            body["metadata"]["name"], namespace, body, **as_it_is
        )
    assert answer.status == 201, answer.data


def patch(
    core: client.CoreV1Api, namespace: str, name: str, annotations: Mapping[str, str | None]
) -> None:
    core.patch_namespaced_pod(
        name, namespace, {"metadata": {"annotations": annotations}}, dry_run="All"
    )


def assert_denied(attempt: Callable[[], object], *texts: str) -> None:
    with pytest.raises(client.ApiException) as refused:
        attempt()
    assert refused.value.status == 403, refused.value.body
    for text in texts:
        assert text in refused.value.body


def test_pod_with_a_placement_is_denied_with_the_fix(tenant: tuple[str, client.ApiClient]) -> None:
    namespace, owner = tenant
    forged = manifest("forged", **{NAMES.placement: PLACEMENT})
    core = client.CoreV1Api(owner)
    assert_denied(
        lambda: core.create_namespaced_pod(namespace, forged, dry_run="All"),
        NAMES.placement,
        "leave it out of the manifest and set spec.schedulerName to gpushare-user-scheduler",
    )


def test_even_an_admin_writes_no_placement(api: client.ApiClient, tenant: tuple[str, Any]) -> None:
    core = client.CoreV1Api(api)
    forged = manifest("forged", **{NAMES.placement: PLACEMENT})
    assert_denied(lambda: core.create_namespaced_pod(tenant[0], forged, dry_run="All"))


def test_pod_without_a_placement_passes(tenant: tuple[str, client.ApiClient]) -> None:
    namespace, owner = tenant
    asking = manifest("asking", **{NAMES.card_model: "T4", NAMES.cards: "2"})
    client.CoreV1Api(owner).create_namespaced_pod(namespace, asking, dry_run="All")


def test_owner_cannot_add_one_later(tenant: tuple[str, client.ApiClient], pod: str) -> None:
    namespace, owner = tenant
    core = client.CoreV1Api(owner)
    annotations = {NAMES.placement: PLACEMENT}
    assert_denied(lambda: patch(core, namespace, pod, annotations), NAMES.placement)
    body = {"metadata": {"annotations": annotations}}
    assert_denied(
        lambda: core.patch_namespaced_pod_status(pod, namespace, body, dry_run="All"),
        NAMES.placement,
    )


def test_owner_cannot_add_one_by_binding(tenant: tuple[str, client.ApiClient], pod: str) -> None:
    namespace, owner = tenant
    forged = binding(pod, **{NAMES.placement: PLACEMENT})
    assert_denied(lambda: bind(owner, namespace, forged), NAMES.placement)
    assert_denied(lambda: bind(owner, namespace, forged, legacy=True), NAMES.placement)


def test_owner_may_bind_without_one(tenant: tuple[str, client.ApiClient], pod: str) -> None:
    namespace, owner = tenant
    bind(owner, namespace, binding(pod, note="by hand"))


def test_extender_binds_with_a_placement(
    api: client.ApiClient, tenant: tuple[str, client.ApiClient], pod: str
) -> None:
    bind(acting_as(api, EXTENDER), tenant[0], binding(pod, **{NAMES.placement: PLACEMENT}))


def test_placed_pod_can_be_edited_but_for_its_placement(
    api: client.ApiClient, tenant: tuple[str, client.ApiClient]
) -> None:
    namespace, owner = tenant
    trusted = client.CoreV1Api(acting_as(api, EXTENDER, "system:masters"))
    trusted.create_namespaced_pod(namespace, manifest("placed", **{NAMES.placement: PLACEMENT}))
    core = client.CoreV1Api(owner)
    try:
        patch(core, namespace, "placed", {"note": "changed"})
        core.patch_namespaced_pod_status(
            "placed", namespace, {"status": {"message": "from the kubelet"}}, dry_run="All"
        )
        for value in ("{}", None):
            assert_denied(
                partial(patch, core, namespace, "placed", {NAMES.placement: value}), NAMES.placement
            )
    finally:
        core.delete_namespaced_pod("placed", namespace, grace_period_seconds=0)


class Agent:
    """A device plugin, as the API server sees it by the token of its pod."""

    def __init__(self, admin: client.ApiClient, pod: client.V1Pod) -> None:
        self.node, self.pod = pod.spec.node_name, pod.metadata.name
        self.core = client.CoreV1Api(with_token(admin, pod_token(admin, NAMESPACE, pod)))

    def patch(self, node: str, body: dict[str, Any]) -> None:
        self.core.patch_node(node, body, dry_run="All", _content_type=MERGE)

    def end(self, pod: str) -> None:
        self.core.delete_namespaced_pod(pod, NAMESPACE, dry_run="All")

    def mark(self, pod: str) -> None:
        """Tell in a pod's status that it is about to be ended, as the watchdog does."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "OverSlice"}
        self.core.patch_namespaced_pod_status(
            pod, NAMESPACE, {"status": {"conditions": [condition]}}, dry_run="All"
        )


@pytest.fixture(scope="module")
def agents(api: client.ApiClient) -> list[Agent]:
    """The device plugins of two nodes."""
    pods = client.CoreV1Api(api).list_namespaced_pod(
        NAMESPACE, label_selector="app.kubernetes.io/component=device-plugin"
    )
    found = [Agent(api, pod) for pod in pods.items if pod.spec.node_name]
    assert len(found) > 1, "this needs device plugins on two nodes"
    return found


def cards(text: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {NAMES.cards: text}}}


def test_agent_publishes_the_cards_of_its_own_node(agents: list[Agent]) -> None:
    for agent in agents:
        agent.patch(agent.node, cards("[]"))
        agent.patch(agent.node, {"metadata": {"labels": {f"{NAMES.prefix}/model.T4": "2"}}})


def test_agent_cannot_touch_another_node(agents: list[Agent]) -> None:
    one, other = agents[:2]
    assert_denied(lambda: one.patch(other.node, cards("[]")), "own node")


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"labels": {"pool": "private"}}},
        {"metadata": {"annotations": {"note": "x"}}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    ],
)
def test_agent_changes_nothing_else(agents: list[Agent], body: dict[str, Any]) -> None:
    agent = agents[0]
    assert_denied(
        lambda: agent.patch(agent.node, body), "nothing of its node but labels and annotations"
    )


def test_agent_marks_and_ends_pods_of_its_own_node_alone(agents: list[Agent]) -> None:
    one, other = agents[:2]
    one.mark(one.pod)
    one.end(one.pod)
    assert_denied(lambda: one.mark(other.pod), "the pods of its own node alone")
    assert_denied(lambda: one.end(other.pod), "the pods of its own node alone")


def test_token_without_a_node_writes_no_cards(api: client.ApiClient, agents: list[Agent]) -> None:
    """A token made by hand is not bound to a pod, so it names no node."""
    core = client.CoreV1Api(api)
    request = {"spec": {"audiences": [], "expirationSeconds": 600}}
    answer = core.create_namespaced_service_account_token(
        "gpushare-device-plugin", NAMESPACE, request
    )
    stolen = client.CoreV1Api(with_token(api, answer.status.token))
    assert_denied(
        lambda: stolen.patch_node(agents[0].node, cards("[]"), dry_run="All", _content_type=MERGE),
        "own node",
    )


@pytest.fixture(scope="module")
def labeller(api: client.ApiClient) -> Iterator[client.CoreV1Api]:
    """A controller that may patch every node, as there are many."""
    rbac = client.RbacAuthorizationV1Api(api)
    user = f"labeller-{uuid.uuid4().hex[:8]}"
    rules = [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "patch"]}]
    rbac.create_cluster_role({"metadata": {"name": user}, "rules": rules})
    rbac.create_cluster_role_binding(
        {
            "metadata": {"name": user},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": user,
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
    )
    yield client.CoreV1Api(acting_as(api, user))
    rbac.delete_cluster_role_binding(user)
    rbac.delete_cluster_role(user)


def test_others_cannot_write_cards(labeller: client.CoreV1Api, agents: list[Agent]) -> None:
    node = agents[0].node
    for attempt in (labeller.patch_node, labeller.patch_node_status):
        assert_denied(partial(attempt, node, cards("[]"), dry_run="All"), NAMES.cards)


def test_others_go_on_writing_the_rest(labeller: client.CoreV1Api, agents: list[Agent]) -> None:
    body = {"metadata": {"labels": {"pool": "a"}, "annotations": {"note": "x"}}}
    labeller.patch_node(agents[0].node, body, dry_run="All")
    labeller.patch_node_status(
        agents[0].node,
        {"status": {"conditions": [{"type": "Fine", "status": "True"}]}},
        dry_run="All",
    )


def test_admin_may_take_a_node_s_cards_away(api: client.ApiClient, agents: list[Agent]) -> None:
    client.CoreV1Api(api).patch_node(agents[0].node, cards(None), dry_run="All")
