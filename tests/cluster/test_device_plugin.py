"""What a container gets, on a real kubelet and container runtime."""

from __future__ import annotations

import json
import time

import pytest
from kubernetes import client

from gpushare.placement import ContainerPlacement
from gpushare.request import Role
from tests.cluster.binder import NODE, Binder, slice_specs
from tests.cluster.pods import NAMES, Pods, container, pod


@pytest.fixture
def binder(api: client.ApiClient, pods: Pods) -> Binder:
    return Binder(api, pods)


def test_both_resources_on_one_container(binder: Binder, pods: Pods) -> None:
    """The kubelet passes two CDI names in no certain order; the container is one and the same."""
    for i in range(4):
        share = binder.share(i % 2, 2, 20)
        placed = ContainerPlacement("main", Role.APP, (share,))
        name = binder.bind(pod(f"both-{i}", container("main", mem=2, percent=20)), placed)
        pods.await_running(name)
        sight = pods.sight(name, "main")
        assert sight.cards == (share.card,)
        assert sight.env["GPU_MEM_LIMIT"] == str(2 * 1024**3)
        assert sight.env["GPU_PERCENT_LIMIT"] == "20"


def test_an_init_container_on_another_card_than_its_app(binder: Binder, pods: Pods) -> None:
    """Both get the same ids from the kubelet; only the pod's progress tells them apart."""
    prep = ContainerPlacement("prep", Role.INIT, (binder.share(1, 3),))
    main = ContainerPlacement("main", Role.APP, (binder.share(0, 3),))
    init = [container("prep", mem=3, once=True)]
    name = binder.bind(pod("init", container("main", mem=3), init=init), prep, main)
    pods.await_running(name)
    assert pods.sight(name, "prep").cards == (binder.cards[1].uuid,)
    assert pods.sight(name, "main").cards == (binder.cards[0].uuid,)


def test_several_cards_for_one_container(binder: Binder, pods: Pods) -> None:
    shares = (binder.share(0, 3), binder.share(1, 3))
    placed = ContainerPlacement("main", Role.APP, shares)
    annotations = {NAMES.cards: "2"}
    name = binder.bind(pod("two-cards", container("main", mem=3), annotations=annotations), placed)
    pods.await_running(name)
    assert pods.sight(name, "main").cards == tuple(share.card for share in shares)


def test_what_the_pod_sets_itself_never_widens_its_view(binder: Binder, pods: Pods) -> None:
    """NVIDIA_VISIBLE_DEVICES from the pod is replaced; advice for frameworks is left as it is."""
    greedy = container("main", mem=2)
    own = {"NVIDIA_VISIBLE_DEVICES": "all", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.01"}
    greedy["env"] = [{"name": name, "value": value} for name, value in own.items()]
    placed = ContainerPlacement("main", Role.APP, (binder.share(1, 2),))
    name = binder.bind(pod("greedy", greedy), placed)
    pods.await_running(name)
    sight = pods.sight(name, "main")
    assert sight.cards == (binder.cards[1].uuid,)
    assert sight.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert sight.env["GPUSHARE_CARDS"] == binder.cards[1].uuid
    assert sight.env["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.01"


@pytest.mark.parametrize(
    ("gib", "percent", "says"),
    [(2, 0, "its placement holds 2 GiB"), (3, 5, "its placement holds 3 GiB and 5 %")],
)
def test_a_placement_of_other_amounts_is_refused(
    binder: Binder, pods: Pods, gib: int, percent: int, says: str
) -> None:
    placed = ContainerPlacement("main", Role.APP, (binder.share(0, gib, percent),))
    name = binder.bind(pod(f"other-{percent}", container("main", mem=3)), placed)
    assert "asks for 3 GiB" in pods.await_event(name, says)
    assert not any(s.state.running for s in pods.read(name).status.container_statuses)


def test_a_card_is_not_given_twice_even_if_it_was_placed_twice(binder: Binder, pods: Pods) -> None:
    for name in ("first", "second"):
        placed = ContainerPlacement("main", Role.APP, (binder.share(0, 9),))
        binder.bind(pod(name, container("main", mem=9)), placed)
        if name == "first":
            pods.await_running(name)
    assert "other pods on it hold 9 GiB" in pods.await_event("second", "hold 9 GiB")
    pods.delete("first")
    pods.await_running("second")
    assert pods.sight("second", "main").cards == (binder.cards[0].uuid,)


def test_specs_come_and_go_with_containers(binder: Binder, pods: Pods) -> None:
    before = slice_specs()
    names = [f"spec-{i}" for i in range(3)]
    for i, name in enumerate(names):
        placed = ContainerPlacement("main", Role.APP, (binder.share(i % 2, 1),))
        binder.bind(pod(name, container("main", mem=1)), placed)
    for name in names:
        pods.await_running(name)
    new = slice_specs() - before
    assert len(new) == 3
    assert {json.loads(path.read_text())["kind"] for path in new} == {NAMES.cdi_kind}
    for name in names:
        pods.delete(name, grace=0)
    deadline = time.monotonic() + 120
    while slice_specs() & new:
        assert time.monotonic() < deadline, "specs of gone containers stay"
        time.sleep(0.2)


def test_the_node_says_what_it_has_and_how_it_gives_it(api: client.ApiClient) -> None:
    node = client.CoreV1Api(api).read_node(NODE)
    labels = node.metadata.labels
    assert labels["nvidia.com/gpu.product"] == "Tesla-T4"
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.memory"]) == ("2", "15360")
    assert "nvidia.com/gpu.present" not in labels  # by that NVIDIA's own plugin would come here
    said = json.loads(node.metadata.annotations[NAMES.in_force])
    assert (said["level"], said["delivery"]) == ("watchdog", "cdi")
    assert set(said["compute"].values()) == {"best-effort"}
