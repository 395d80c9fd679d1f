"""A node whose container runtime heeds no CDI: its containers get their cards by environment."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kubernetes import client

from gpushare.placement import ContainerPlacement
from gpushare.request import Role
from gpushare.visibility import VARIABLE, visible_variable
from playground.cluster import Cluster
from tests.cluster.binder import NODE, Binder, await_node
from tests.cluster.pods import NAMES, Pods, container, pod

_ON, _OFF = "enable_cdi = true", "enable_cdi = false"


@pytest.fixture
def binder(api: client.ApiClient, pods: Pods) -> Binder:
    return Binder(api, pods)


def delivery(node: client.V1Node) -> str:
    return str(json.loads(node.metadata.annotations[NAMES.in_force])["delivery"])


def switch_cdi(before: str, after: str) -> None:
    """In containerd's configuration on the node; what runs there runs on."""
    cluster = Cluster()
    path = cluster.folders.node(NODE) / "containerd.toml"
    path.write_text(path.read_text().replace(before, after))
    cluster.restart(f"containerd@{NODE}")


@pytest.fixture
def no_cdi(api: client.ApiClient, pods: Pods) -> Iterator[None]:
    """Depends on ``pods`` so that they are gone by the time that CDI is back."""
    switch_cdi(_ON, _OFF)
    yield
    switch_cdi(_OFF, _ON)


def test_the_environment_says_what_the_placement_says(
    api: client.ApiClient, no_cdi: None, binder: Binder, pods: Pods
) -> None:
    def bind(name: str, *, card: int, variable: bool = True) -> str:
        main = container("main", mem=2)
        main["env"] = [visible_variable(NAMES, "main")] if variable else []
        placed = ContainerPlacement("main", Role.APP, (binder.share(card, 2),))
        return binder.bind(pod(name, main), placed)

    pods.await_running(bind("first", card=1))
    assert pods.sight("first", "main").env[VARIABLE] == binder.cards[1].uuid
    # By that container the plugin sees that the runtime takes no note of its specs, and says so.
    await_node(api, "found out", lambda n: delivery(n) == "downward", timeout=60)
    pods.await_running(bind("second", card=0))
    assert pods.sight("second", "main").env[VARIABLE] == binder.cards[0].uuid
    # Without the variable an image that wants all cards would be given all of them.
    bind("bare", card=0, variable=False)
    assert "webhook" in pods.await_event("bare", "does not heed CDI")
    assert not pods.read("bare").status.container_statuses[0].started


def test_back_with_cdi_its_containers_have_it_again(
    api: client.ApiClient, binder: Binder, pods: Pods
) -> None:
    placed = ContainerPlacement("main", Role.APP, (binder.share(1, 2),))
    main = container("main", mem=2)
    main["env"] = [visible_variable(NAMES, "main")]
    pods.await_running(binder.bind(pod("again", main), placed))
    sight = pods.sight("again", "main")
    assert sight.cards == (binder.cards[1].uuid,)
    assert sight.env[VARIABLE] == "void"  # CDI's own value counts
    await_node(api, "found out", lambda n: delivery(n) == "cdi", timeout=60)
