"""nano-gpu's answers, against the vectors of its own tests; and its routes."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from extender.fitting import Rules
from extender.ranking import Ranking
from extender.view import ClusterView
from gpushare.assignment import CardState, assign
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.pods import PodRef
from gpushare.reasons import Reason
from gpushare.request import Policy, Role, parse_request
from gpushare.units import GIB
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import HandClock, running
from tests.unit.extender.objects import node as plain_node
from tests.unit.extender.objects import pod as plain_pod
from tests.unit.extender.objects import t4

NAMES = Names(dialects=("nano",))
RESOURCE = "nano-gpu/gpu-percent"
MEMORY = 15000  # MiB of a card: divides by 100


def pod(*percents: int):
    containers = [
        {"name": f"c{i}", "resources": {"limits": {RESOURCE: str(p)} if p else {}}}
        for i, p in enumerate(percents)
    ]
    return plain_pod("p", *containers)


def chosen(available: list[int], demand: list[int], policy: Policy) -> list[int] | None:
    """The card of each container, -1 for none; None where the pod does not fit."""
    states = [
        CardState(Card(f"GPU-{i}", i, i, "Tesla T4", MEMORY), MEMORY * a // 100, a, a == 100)
        for i, a in enumerate(available)
    ]
    found = assign("u", "n", states, parse_request(pod(*demand), NAMES), policy)
    if isinstance(found, Reason):
        return None
    cards = {c.name: int(c.shares[0].card.removeprefix("GPU-")) for c in found.containers}
    return [cards.get(f"c{i}", -1) for i in range(len(demand))]


@pytest.mark.parametrize(
    ("available", "demand", "answer"),
    [
        ([100, 100], [20, 40], [0, 0]),
        ([20, 100], [20, 40], [0, 1]),
        ([10, 100], [20, 40], [1, 1]),
        ([100, 100], [0, 40, 40], [-1, 0, 0]),
        ([10, 50], [20, 40], None),
    ],
)
def test_binpack(available: list[int], demand: list[int], answer: list[int] | None) -> None:
    assert chosen(available, demand, Policy.BINPACK) == answer


@pytest.mark.parametrize(
    ("available", "demand", "answer"),
    [
        # Which of two cards that are alike comes first was left to chance there.
        ([100, 100], [20, 40], ([0, 1], [1, 0])),
        ([20, 100], [20, 40], ([1, 1],)),
        ([10, 100], [20, 40], ([1, 1],)),
        ([100, 100], [0, 40, 40], ([-1, 0, 1], [-1, 1, 0])),
        ([10, 50], [20, 40], (None,)),
    ],
)
def test_spread(available: list[int], demand: list[int], answer: tuple[object, ...]) -> None:
    assert chosen(available, demand, Policy.SPREAD) in answer


def preferred(policy: Policy, *nodes: list[int]) -> int:
    """Which of the nodes, each with so much left of its cards, gets the best score."""
    view = ClusterView(Rules(NAMES, GIB, policy), HandClock())
    for n, available in enumerate(nodes):
        cards = [t4(f"n{n}", i, memory=MEMORY) for i in range(len(available))]
        view.apply_node(view.reader.node(plain_node(f"n{n}", *cards)))
        for card, left in zip(cards, available, strict=True):
            if left == 100:
                continue
            taken = (Share(card.uuid, MEMORY * (100 - left) // 100, 100 - left),)
            placed = Placement(card.uuid, f"n{n}", (ContainerPlacement("c", Role.APP, taken),))
            view.ledger.hold(PodRef("ns", card.uuid, card.uuid), placed)
    names = [f"n{n}" for n in range(len(nodes))]
    request = parse_request(pod(10), NAMES)
    found = Ranking(view.fleet, policy).scores(names, request)
    scores = [found.get(name, 0) for name in names]
    assert len(set(scores)) == len(scores), "one of them is better"
    return scores.index(max(scores))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("policy", "better", "worse"),
    [
        (Policy.BINPACK, [20, 40], [30, 50]),
        (Policy.SPREAD, [30, 50], [20, 40]),
        (Policy.SPREAD, [90], [50, 40]),
        (Policy.SPREAD, [100], [50, 50]),
        (Policy.SPREAD, [100, 50], [100]),
    ],
)
def test_rating(policy: Policy, better: list[int], worse: list[int], turned: bool) -> None:
    if turned:
        assert preferred(policy, worse, better) == 1
    else:
        assert preferred(policy, better, worse) == 0


async def test_its_routes(api: ApiDouble) -> None:
    """The same verbs under its URLs; status tells each card's shares."""
    from gpushare import cards

    made = plain_node("n", t4("n", 0))
    published = cards.NodeCards((t4("n", 0),), also=(RESOURCE,))
    made["metadata"]["annotations"][NAMES.cards] = cards.encode(published)
    made["status"]["allocatable"][RESOURCE] = "100"
    api.put("nodes", made)
    async with running(api, Rules(NAMES, GIB, Policy.BINPACK)) as extender:
        one = api.put("pods", pod(30, 0))
        assert await extender.bind(one, "n") == ""
        metadata = api.bindings[0]["metadata"]
        assert metadata["labels"] == {"nano-gpu/assume": "true"}
        assert metadata["annotations"]["nano-gpu/assume"] == "true"
        assert metadata["annotations"]["nano-gpu/container-c0"] == "0"
        assert metadata["annotations"]["nano-gpu/container-c1"] == "-1"
        client = TestClient(extender.service.verbs_app)
        assert client.get("/version").text == client.get("/scheduler/version").text == "0.1.0"
        status = client.get("/scheduler/status").json()
        (card,) = json.loads(status[RESOURCE])["n"]
        assert (card["CoreAvailable"], card["CoreTotal"]) == (70, 100)
        body = {"Pod": pod(80), "NodeNames": ["n"]}
        assert client.post("/scheduler/filter", json=body).json()["NodeNames"] == []
        body = {"Pod": pod(50), "NodeNames": ["n"]}
        assert client.post("/scheduler/priorities", json=body).json()[0]["Host"] == "n"
