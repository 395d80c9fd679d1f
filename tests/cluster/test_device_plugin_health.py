"""A card that falls ill, on a real kubelet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client

from gpushare.placement import ContainerPlacement
from gpushare.request import Role
from playground.cards import node_cards
from playground.cluster import Cluster
from playground.simulated_cards import SimulatedCards
from tests.cluster.binder import NODE, ON_NODE, Binder, allocatable, await_node, healths
from tests.cluster.pods import NAMES, Pods, container, pod


@pytest.fixture
def binder(api: client.ApiClient, pods: Pods) -> Binder:
    return Binder(api, pods)


@pytest.fixture
def cards(api: client.ApiClient) -> Iterator[SimulatedCards]:
    """The node's simulated cards; well again at the end."""
    simulated = node_cards(Cluster().cards_root(NODE))
    yield simulated
    with simulated.edit() as edit:
        edit.clear_faults()
        for card in edit.state.cards:
            edit.restore_card(card.uuid)
    await_node(api, "well again", lambda n: set(healths(n)) == {"ok"}, timeout=150)


def test_an_error_of_a_card_is_seen_everywhere_and_passes(
    api: client.ApiClient, binder: Binder, pods: Pods, cards: SimulatedCards
) -> None:
    placed = ContainerPlacement("main", Role.APP, (binder.share(1, 2),))
    name = binder.bind(pod("on-sick", container("main", mem=2)), placed)
    pods.await_running(name)
    with cards.edit() as edit:
        edit.raise_xid(1, 79)
    node = await_node(api, "sick", lambda n: "XID 79" in healths(n)[1], timeout=120)
    assert healths(node)[0] == "ok"
    await_node(api, "smaller", lambda n: allocatable(n) == (15, 100), timeout=120)
    assert "save your work" in pods.await_event(name, "XID 79")
    # New pods go elsewhere: the card that is well has room for one of these.
    pods.create(pod("elsewhere", container("main", mem=12), nodeSelector=ON_NODE))
    pods.await_running("elsewhere")
    assert pods.sight("elsewhere", "main").cards == (binder.cards[0].uuid,)
    await_node(api, "well again", lambda n: set(healths(n)) == {"ok"}, timeout=150)
    await_node(api, "whole again", lambda n: allocatable(n) == (30, 200), timeout=120)


def test_a_lost_card_and_a_hanging_driver(
    api: client.ApiClient, binder: Binder, pods: Pods, cards: SimulatedCards
) -> None:
    placed = ContainerPlacement("main", Role.APP, (binder.share(0, 2),))
    with cards.edit() as edit:
        edit.lose_card(1, xid=None)
    await_node(api, "without card 1", lambda n: "does not answer" in healths(n)[1], timeout=120)
    name = binder.bind(pod("on-other", container("main", mem=2)), placed)
    pods.await_running(name)
    with cards.edit() as edit:
        edit.restore_card(1)
        edit.hang("nvmlDeviceGetMemoryInfo", 300)
    await_node(api, "hanging", lambda n: all("hangs" in h for h in healths(n)), timeout=120)
    # Nothing is offered, so the kubelet itself lets nothing in; what runs is left alone.
    await_node(api, "without units", lambda n: allocatable(n) == (0, 0), timeout=120)
    assert pods.read(name).status.container_statuses[0].state.running
    with cards.edit() as edit:
        edit.clear_faults()
    await_node(api, "whole again", lambda n: allocatable(n) == (30, 200), timeout=120)
    again = binder.bind(pod("after-hanging", container("main", mem=2)), placed)
    pods.await_running(again)


def test_a_card_can_be_cordoned(api: client.ApiClient, binder: Binder, pods: Pods) -> None:
    core = client.CoreV1Api(api)

    def cordon(value: str | None) -> None:
        core.patch_node(NODE, {"metadata": {"annotations": {NAMES.cordon: value}}})

    cordon("0")
    try:
        await_node(api, "cordoned", lambda n: healths(n) == ["cordoned", "ok"], timeout=120)
        pods.create(pod("free", container("main", mem=12), nodeSelector=ON_NODE))
        pods.await_running("free")
        assert pods.sight("free", "main").cards == (binder.cards[1].uuid,)
        # What was placed before may still start.
        placed = ContainerPlacement("main", Role.APP, (binder.share(0, 2),))
        pods.await_running(binder.bind(pod("placed", container("main", mem=2)), placed))
    finally:
        cordon(None)
    await_node(api, "open again", lambda n: healths(n) == ["ok", "ok"], timeout=120)
