"""The arrays give exactly the answers of the one-node functions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.facts import NodeFact
from extender.fitting import Budget, fit
from extender.fleet import Fleet
from extender.view import ClusterView
from gpushare.assignment import CardState
from gpushare.budget import Amounts
from gpushare.cards import Card, NodeCards
from gpushare.ledger import Ledger, NodeAccount
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.pods import PodRef
from gpushare.reasons import Code, Reason
from gpushare.request import ContainerRequest, Demand, PodRequest, Role
from gpushare.units import GIB, Unit
from tests.unit.extender.conftest import RULES, HandClock
from tests.unit.gpushare.strategies import cards, demands


@st.composite
def accounts(draw: st.DrawFn, name: str) -> tuple[NodeAccount | None, Budget]:
    """A node in any state that a ledger can get into."""
    ledger = Ledger()
    its = tuple(draw(cards(i, name)) for i in range(draw(st.integers(0, 5))))
    unit = draw(st.sampled_from([GIB] * 8 + [Unit(512)]))
    if its or draw(st.booleans()):
        ledger.publish(name, NodeCards(its, unit))
    for card in its:
        if draw(st.booleans()):
            share = Share(
                card.uuid, draw(st.integers(0, card.memory + 99)), draw(st.integers(0, 100))
            )
            placed = Placement(card.uuid, name, (ContainerPlacement("c", Role.APP, (share,)),))
            ledger.hold(PodRef("ns", card.uuid, card.uuid), placed)
    if draw(st.integers(0, 12)) == 0:
        ledger.distrust(name, "garbage")
    offered = Amounts(draw(st.sampled_from([0, 20, 200])), draw(st.sampled_from([0, 100, 500])))
    asked = Amounts(draw(st.sampled_from([0, 0, 15])), draw(st.sampled_from([0, 0, 90])))
    return ledger.nodes.get(name), Budget(offered, asked)


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, tuple[NodeAccount | None, Budget]]:
    names = [f"node-{i}" for i in range(draw(st.integers(1, 6)))]
    return {name: draw(accounts(name)) for name in names}


def single(demand: Demand, models: tuple[str, ...] = (), role: Role = Role.APP) -> PodRequest:
    return PodRequest((ContainerRequest("main", role, demand),), models)


@settings(deadline=None)
@given(
    fleets(),
    demands(),
    st.sampled_from([(), (), ("T4",), ("A10", "A100"), ("H100",)]),
    st.sampled_from(list(Role)),
    st.data(),
)
def test_the_arrays_answer_as_the_single_function(nodes, demand, models, role, data):
    fleet = Fleet(RULES, rows=2, columns=1)
    for name, (account, budget) in nodes.items():
        fleet.update(name, account, budget)
    if data.draw(st.booleans()):
        gone = data.draw(st.sampled_from(sorted(nodes)))
        fleet.remove(gone)
        nodes.pop(gone)
    request = single(demand, models, role)
    assert fleet.covers(request)
    asked = data.draw(st.permutations([*nodes, "never-seen"]))
    asked = asked[: data.draw(st.integers(1, len(asked)))]
    answer = fleet.ask(asked, request)
    for name, fits in zip(asked, answer.fits.tolist(), strict=True):
        expected: Placement | Reason
        if name not in nodes:
            expected = Reason(Code.UNKNOWN_NODE)
        else:
            expected = fit(RULES, *nodes[name], "uid", request)
        assert fits == isinstance(expected, Placement)
        assert answer.failed.get(name) == (None if fits else expected)
    assert fleet.ask(asked, request, explain=False).fits.tolist() == answer.fits.tolist()


def test_a_model_that_comes_back_is_known_again():
    fleet = Fleet(RULES)
    budget = Budget(Amounts(100, 400))
    t4, a10 = Card("a", 0, 0, "Tesla T4", 15360), Card("b", 0, 0, "NVIDIA A10", 23028)
    wants = single(Demand(1024, 0), ("A10",))

    def publish(card: Card) -> None:
        ledger = Ledger()
        ledger.publish("n", NodeCards((card,)))
        fleet.update("n", ledger.nodes["n"], budget)

    for card, fits in ((t4, False), (a10, True), (t4, False), (a10, True)):
        publish(card)
        assert fleet.ask(["n"], wants).fits.tolist() == [fits]


def view_of(nodes: dict[str, list[CardState]]) -> ClusterView:
    view = ClusterView(RULES, HandClock())
    for name, states in nodes.items():
        its = NodeCards(tuple(s.card for s in states))
        view.apply_node(NodeFact(name, name, 1, its, "", Amounts(999, 999), takes_pods=True))
        for s in states:
            used = s.card.memory - s.free_mib
            if used:
                share = (Share(s.card.uuid, used, 0),)
                placed = Placement(s.card.uuid, name, (ContainerPlacement("c", Role.APP, share),))
                view.ledger.hold(PodRef("ns", s.card.uuid, s.card.uuid), placed)
    return view


def state(uuid: str, free: int, memory: int = 15360) -> CardState:
    return CardState(Card(uuid, 0, 0, "Tesla T4", memory), free, 100, empty=free == memory)


def test_nodes_that_are_alike_are_asked_once_and_answered_alike():
    view = view_of({f"n{i}": [state(f"x{i}", 8192), state(f"y{i}", 8192)] for i in range(20)})
    two = PodRequest(tuple(ContainerRequest(f"c{i}", Role.APP, Demand(8192, 0)) for i in range(2)))
    three = PodRequest(
        tuple(ContainerRequest(f"c{i}", Role.APP, Demand(8192, 0)) for i in range(3))
    )
    names = sorted(view.ledger.nodes)
    passed, failed = view.fit_many(names, two)
    assert (list(passed), dict(failed)) == (names, {})
    passed, failed = view.fit_many(names, three)
    assert passed == []
    assert {r.code for r in failed.values()} == {Code.NO_COMBINATION}
    assert len({id(r) for r in failed.values()}) == 1
