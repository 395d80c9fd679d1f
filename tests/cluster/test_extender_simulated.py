"""The extender beside a real kube-scheduler and a real API server; the nodes are simulated.

What needs no containers is tested here, because simulated nodes can be many and start at once.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from gpushare import cards
from gpushare.names import Names
from gpushare.placement import decode
from playground import binaries
from playground.cluster import Cluster
from tests.cluster.pods import Pods, container, pod
from tests.cluster.scheduler_pair import Pair, pair
from tests.cluster.session import scratch_namespace

NAMES = Names()
READER = "gpushare-test-reader"


@pytest.fixture(scope="module")
def simulated() -> Iterator[Cluster]:
    """A control plane of its own with simulated nodes: t4-1 and a10-1."""
    cluster = Cluster(f"extender-{uuid.uuid4().hex[:4]}")
    try:
        cluster.up(simulated=True)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def api(simulated: Cluster) -> client.ApiClient:
    return config.new_client_from_config(str(simulated.kubeconfig()))


@pytest.fixture
def both(simulated: Cluster, tmp_path: Path) -> Iterator[Pair]:
    with pair(simulated.kubeconfig(), binaries.path("kube-scheduler"), tmp_path) as running:
        yield running


@pytest.fixture
def pods(api: client.ApiClient) -> Iterator[Pods]:
    with scratch_namespace(api, "sim") as namespace:
        yield Pods(api, namespace)


@pytest.fixture(scope="module")
def token(api: client.ApiClient) -> str:
    """A real token of a service account that may read the state."""
    core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
    core.create_namespaced_service_account("default", {"metadata": {"name": READER}})
    rules = [{"nonResourceURLs": ["/v1/*"], "verbs": ["get"]}]
    rbac.create_cluster_role({"metadata": {"name": READER}, "rules": rules})
    rbac.create_cluster_role_binding(
        {
            "metadata": {"name": READER},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": READER,
            },
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": "default"}],
        }
    )
    request = {"spec": {"expirationSeconds": 3600}}
    answer = core.create_namespaced_service_account_token(READER, "default", request)
    return str(answer.status.token)


def nodes_state(both: Pair, token: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://{both.state}/v1/nodes", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        result: dict[str, Any] = json.load(answer)
        return result


def held(state: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Card -> pod -> MiB, as the state API says."""
    return {
        card["uuid"]: {s["pod"]: s["mib"] for s in card["slices"]}
        for node in state["nodes"]
        for card in node["cards"]
        if card["slices"]
    }


def written(pods: Pods) -> dict[str, dict[str, int]]:
    """The same from the pods' annotations."""
    result: dict[str, dict[str, int]] = {}
    for each in pods.core.list_namespaced_pod(pods.namespace).items:
        if each.status.phase in ("Succeeded", "Failed") or not each.spec.node_name:
            continue
        placement = decode(each.metadata.annotations[NAMES.placement])
        assert placement.uid == each.metadata.uid
        assert placement.node == each.spec.node_name
        for card, (mib, _) in placement.footprint().items():
            result.setdefault(card, {})[each.metadata.name] = mib
    return result


def overbooked(pods: Pods, state: dict[str, dict[str, int]]) -> list[str]:
    memory = {
        card.uuid: card.memory
        for node in pods.core.list_node().items
        for card in cards.decode(node.metadata.annotations[NAMES.cards]).cards
    }
    return [card for card, by in state.items() if sum(by.values()) > memory[card]]


def create(pods: Pods, manifests: list[dict[str, Any]]) -> list[str]:
    with ThreadPoolExecutor(8) as together:
        return list(together.map(pods.create, manifests))


def bound(p: client.V1Pod) -> bool:
    return bool(p.spec.node_name)


def test_a_burst_fills_the_cards_exactly_and_the_rest_is_told_why(both: Pair, pods: Pods, token):
    # 15 GiB take two of 7, 22.5 GiB take three: 2 cards and 4 cards.
    names = create(pods, [pod(f"p{i}", container("main", mem=7)) for i in range(20)])
    for _ in range(2 * 2 + 4 * 3):
        waiting = [n for n in names if not bound(pods.read(n))]
        if len(waiting) == 4:
            break
        pods.await_pod(waiting[0], "bound or refused", lambda p: bound(p) or told(p))
    waiting = [n for n in names if not bound(pods.read(n))]
    assert len(waiting) == 4
    state = written(pods)
    assert sum(len(by) for by in state.values()) == 16
    assert not overbooked(pods, state)
    message = pods.await_event(waiting[0], "wants 7 GiB on one card; free:")
    assert "t4-1 card 0 (T4) 1 GiB" in message
    assert held(nodes_state(both, token)) == state


def told(p: client.V1Pod) -> bool:
    return any(c.type == "PodScheduled" and c.status == "False" for c in p.status.conditions or [])


def test_a_freed_slice_goes_to_the_waiting_pod_within_two_seconds(both: Pair, pods: Pods):
    pods.create(pod("first", container("main", percent=400)))
    pods.await_pod("first", "bound", bound)
    pods.create(pod("waiting", container("main", mem=20)))
    pods.await_event("waiting", "free:")
    began = time.monotonic()
    # As a kubelet writes it when the containers have ended.
    pods.core.patch_namespaced_pod_status(
        "first", pods.namespace, {"status": {"phase": "Succeeded"}}
    )
    pods.await_pod("waiting", "bound", bound)
    assert time.monotonic() - began < 2


def test_an_extender_killed_in_a_burst_neither_loses_nor_doubles(both: Pair, pods: Pods, token):
    assert both.extender is not None
    manifests = [pod(f"k{i}", container("main", mem=3)) for i in range(36)]
    names = create(pods, manifests[:12])
    both.extender.stop(9)
    names += create(pods, manifests[12:])
    both.extender.start()
    both.await_ready()
    for name in names:
        pods.await_pod(name, "bound", bound, timeout=120)
    state = written(pods)
    assert sum(len(by) for by in state.values()) == len(names)
    assert not overbooked(pods, state)
    assert held(nodes_state(both, token)) == state
    before = nodes_state(both, token)["nodes"]
    both.extender.stop()
    both.extender.start()
    both.await_ready()
    assert _ordered(nodes_state(both, token)["nodes"]) == _ordered(before)


def _ordered(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for node in nodes:
        for card in node["cards"]:
            card["slices"].sort(key=lambda s: s["uid"])
    return nodes


def test_a_scheduler_killed_in_a_burst_neither_loses_nor_doubles(both: Pair, pods: Pods, token):
    names = create(pods, [pod(f"s{i}", container("main", mem=3)) for i in range(24)])
    both.scheduler.stop(9)
    both.scheduler.start()
    for name in names:
        pods.await_pod(name, "bound", bound, timeout=120)
    state = written(pods)
    assert sum(len(by) for by in state.values()) == len(names)
    assert held(nodes_state(both, token)) == state


def test_every_kind_of_request_is_placed(both: Pair, pods: Pods):
    asked = {
        "mem": pod("mem", container("main", mem=7)),
        "percent": pod("percent", container("main", percent=30)),
        "whole": pod("whole", container("main", percent=100)),
        "both": pod("both", container("main", mem=5, percent=20)),
        "pair": pod("pair", container("main", mem=5), annotations={NAMES.cards: "2"}),
        "a10": pod("a10", container("main", mem=2), annotations={NAMES.card_model: "A10"}),
        "two": pod("two", container("a", mem=3), container("b", mem=5)),
        "init": pod("init", container("main", mem=2), init=[container("i", mem=4, once=True)]),
    }
    create(pods, list(asked.values()))
    for name in asked:
        pods.await_pod(name, "bound", bound)
    assert pods.placement("whole").containers[0].shares[0].percent == 100
    assert len(pods.placement("pair").footprint()) == 2
    assert pods.read("a10").spec.node_name == "a10-1"
    assert {c.name for c in pods.placement("two").containers} == {"a", "b"}
    assert pods.placement("both").containers[0].shares[0].percent == 20
    assert not overbooked(pods, written(pods))


def test_a_request_that_can_never_be_met_says_so(both: Pair, pods: Pods):
    pods.create(pod("bad", container("main", percent=150)))
    assert "use at most 100" in pods.await_event("bad", "not a number of whole cards")
    pods.create(pod("huge", container("main", mem=80)))
    assert "card 0 (T4)" in pods.await_event("huge", "wants 80 GiB on one card; free:")


def test_whole_node_objects_work_as_well(simulated: Cluster, tmp_path: Path, pods: Pods):
    """A scheduler that is configured with nodeCacheCapable: false."""
    with pair(simulated.kubeconfig(), binaries.path("kube-scheduler"), tmp_path) as running:
        path = tmp_path / "scheduler.yaml"
        settings = yaml.safe_load(path.read_text())
        settings["extenders"][0]["nodeCacheCapable"] = False
        path.write_text(yaml.safe_dump(settings))
        running.scheduler.stop()
        running.scheduler.start()
        pods.create(pod("p", container("main", mem=22)))
        assert pods.await_pod("p", "bound", bound).spec.node_name == "a10-1"


def test_it_stops_within_seconds(both: Pair):
    assert both.extender is not None
    assert both.extender.stop() < 5
    assert both.extender.process.returncode == 0


def test_tokens_are_checked_by_the_cluster(both: Pair, token: str):
    assert nodes_state(both, token)["totals"]["cards"] == 6
    for wrong, status in (("nonsense", 401), ("", 401)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            nodes_state(both, wrong)
        assert refused.value.code == status
