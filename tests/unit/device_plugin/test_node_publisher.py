from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from device_plugin.kube import Kube
from device_plugin.node_publisher import NodePublisher, Publication, marks
from device_plugin.physical_card import Driver
from gpushare.cards import NodeCards, decode

from .api_server import ApiServer, _merge
from .making import A10, NAMES, NODE, T4_0, T4_1
from .waiting import until

PATH = f"/api/v1/nodes/{NODE}"
CARDS = NodeCards((T4_0, T4_1))


def a_node(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": NODE, "uid": "node-uid", "labels": {"zone": "a", **labels}}}


class Publisher:
    def __init__(self, kube: Kube) -> None:
        self.wanted: Publication | None = Publication(CARDS, driver=Driver("570.172.08", "12.8"))
        self.cordons: list[list[str]] = []
        self.publisher = NodePublisher(
            kube, NODE, NAMES, lambda: self.wanted, lambda names: self._cordon(names)
        )

    def _cordon(self, names: Iterable[str]) -> None:
        self.cordons.append(list(names))


async def test_cards_are_published_once(api: ApiServer, kube: Kube) -> None:
    await api.put(PATH, a_node())
    side = Publisher(kube)
    assert await side.publisher.publish()
    metadata = api.objects[PATH]["metadata"]
    assert decode(metadata["annotations"]["gpushare/cards"]) == CARDS
    assert metadata["labels"] == {
        "zone": "a",
        "gpushare/shared": "true",
        "gpushare/model.T4": "2",
        "gpushare/driver": "570.172.08",
        "gpushare/cuda": "12.8",
    }
    assert not await side.publisher.publish()
    assert len(api.patches) == 1


async def test_an_illness_and_no_driver_show(api: ApiServer, kube: Kube) -> None:
    await api.put(PATH, a_node())
    side = Publisher(kube)
    side.wanted = Publication(NodeCards((replace(T4_0, health="XID 79"), T4_1)))
    await side.publisher.publish()
    published = decode(api.objects[PATH]["metadata"]["annotations"]["gpushare/cards"])
    assert [card.health for card in published.cards] == ["XID 79", "ok"]
    side.wanted = Publication(NodeCards(()), "there is no driver")
    await side.publisher.publish()
    metadata = api.objects[PATH]["metadata"]
    assert metadata["annotations"]["gpushare/problem"] == "there is no driver"
    assert metadata["labels"] == {"zone": "a"}


async def test_nothing_is_published_before_the_cards_were_asked(api: ApiServer, kube: Kube) -> None:
    """What an earlier run published stands: a restart must not look like cards going away."""
    await api.put(PATH, a_node())
    side = Publisher(kube)
    side.wanted = None
    assert not await side.publisher.publish()
    assert api.patches == []


async def test_somebody_elses_change_is_undone_and_a_cordon_heard(
    api: ApiServer, kube: Kube
) -> None:
    await api.put(PATH, a_node())
    side = Publisher(kube)
    tasks = [
        asyncio.create_task(part) for part in (side.publisher.run(), side.publisher.watch.run())
    ]
    side.publisher.changed()
    await until(lambda: len(api.patches) == 1)
    changed = _merge(
        api.objects[PATH],
        {"metadata": {"annotations": {"gpushare/cards": "{}", "gpushare/cordon": " 1, GPU-aaaa"}}},
    )
    await api.put(PATH, changed)
    await until(lambda: len(api.patches) == 2)
    await until(lambda: bool(side.cordons) and side.cordons[-1] == ["1", "GPU-aaaa"])
    for task in tasks:
        task.cancel()


async def test_who_is_always_undone_does_not_write_all_the_time(api: ApiServer, kube: Kube) -> None:
    await api.put(PATH, a_node())
    side = Publisher(kube)
    tasks = [
        asyncio.create_task(part) for part in (side.publisher.run(), side.publisher.watch.run())
    ]
    side.publisher.changed()
    theirs = {"metadata": {"annotations": {"gpushare/cards": "{}"}}}
    for _ in range(100):
        annotations = api.objects[PATH]["metadata"].get("annotations", {})
        if "uuid" in annotations.get("gpushare/cards", ""):
            await api.put(PATH, _merge(api.objects[PATH], theirs))
        await asyncio.sleep(0.01)
    assert 2 <= len(api.patches) <= 3
    for task in tasks:
        task.cancel()


async def test_a_refusing_server_is_asked_again(api: ApiServer, kube: Kube) -> None:
    await api.put(PATH, a_node())
    api.fail = [403, 500]
    side = Publisher(kube)
    task = asyncio.create_task(side.publisher.run())
    side.publisher.changed()
    await until(lambda: "failure 403" in side.publisher.problem)
    await until(lambda: len(api.patches) == 1)
    await until(lambda: side.publisher.problem == "")
    task.cancel()


async def test_labels_of_feature_discovery_until_it_comes_itself(
    api: ApiServer, kube: Kube
) -> None:
    await api.put(PATH, a_node(**{"nvidia.com/gpu.family": "theirs"}))
    wanted = Publication(
        NodeCards((T4_0,)),
        features={"nvidia.com/gpu.count": "1", "nvidia.com/gpu.family": "turing"},
    )
    publisher = NodePublisher(kube, "t4-1", NAMES, lambda: wanted, lambda names: None)
    await publisher.publish()
    labels = api.objects[PATH]["metadata"]["labels"]
    assert labels["nvidia.com/gpu.count"] == "1"
    assert labels["nvidia.com/gpu.family"] == "theirs"
    assert not await publisher.publish()
    node = api.objects[PATH]
    its = {"nvidia.com/gpu.count": "4", "nvidia.com/gfd.timestamp": "1760000000"}
    metadata = {**node["metadata"], "labels": {**labels, **its}}
    await api.put(PATH, {**node, "metadata": metadata})
    await publisher.publish()
    after = api.objects[PATH]["metadata"]
    assert after["labels"]["nvidia.com/gpu.count"] == "4"
    assert "gpushare/feature-labels" not in after["annotations"]


nodes_of_cards = st.lists(st.sampled_from([T4_0, T4_1, A10]), unique=True).map(
    lambda cards: NodeCards(tuple(cards))
)


@given(nodes_of_cards, nodes_of_cards, st.sampled_from(["", "no driver"]))
def test_one_patch_makes_any_node_so(before: NodeCards, after: NodeCards, problem: str) -> None:
    node = a_node(**{"gpushare/model.H100": "8", "nvidia.com/gpu.product": "Tesla-T4"})
    for cards in (before, after):
        wanted = marks(NAMES, Publication(cards, problem), node["metadata"]["labels"])
        node = _merge(node, wanted.missing(node))
        assert wanted.missing(node) == {}
    labels = node["metadata"]["labels"]
    models = {card.short_model for card in after.cards}
    assert {k for k in labels if k.startswith("gpushare/model.")} == {
        f"gpushare/model.{model}" for model in models
    }
    assert labels["zone"] == "a"
    assert labels["nvidia.com/gpu.product"] == "Tesla-T4"
