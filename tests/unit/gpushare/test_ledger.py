"""The ledger: sums that add up, holds that come out again, and rebuilding that gives the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpushare.assignment import assign
from gpushare.cards import NodeCards
from gpushare.ledger import Ledger
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.pods import PodRef
from gpushare.request import Role
from gpushare.units import Unit
from tests.unit.gpushare.strategies import cards, requests

NODES = ("n", "m")


def ref(uid: str) -> PodRef:
    return PodRef("ns", f"pod-{uid}", uid)


def on(node: str, card: str, mib: int, percent: int = 0, uid: str = "u") -> Placement:
    return Placement(uid, node, (ContainerPlacement("c", Role.APP, (Share(card, mib, percent),)),))


@settings(deadline=None)
@given(st.lists(cards(0), max_size=1), requests(), st.data())
def test_release_undoes_hold(its, request, data):
    ledger = Ledger()
    ledger.publish("n", NodeCards((*its, data.draw(cards(1)), data.draw(cards(2)))))
    before = ledger.snapshot()
    found = assign("u", "n", ledger.nodes["n"].states(), request)
    if isinstance(found, Placement):
        ledger.hold(ref("u"), found, reserved=data.draw(st.booleans()))
        assert ledger.snapshot() != before
        assert not list(ledger.overbooked())
        assert ledger.release("u")
    assert ledger.release("u") is None
    assert ledger.snapshot() == before


def test_a_card_that_shrinks_shows_a_debt_and_is_named():
    from tests.unit.extender.objects import t4

    ledger = Ledger()
    ledger.publish("n", NodeCards((t4("n", 0),)))
    ledger.hold(ref("u"), on("n", "GPU-n-0", 15000))
    ledger.publish("n", NodeCards((t4("n", 0, memory=8192),)))
    (state,) = ledger.nodes["n"].states()
    assert state.free_mib == 8192 - 15000
    assert [(name, card.uuid) for name, card, _ in ledger.overbooked()] == [("n", "GPU-n-0")]


def test_slices_outlive_their_node_and_their_card():
    from tests.unit.extender.objects import t4

    ledger = Ledger()
    ledger.publish("n", NodeCards((t4("n", 0),), Unit(512)))
    ledger.hold(ref("u"), on("n", "GPU-n-0", 15000))
    ledger.withdraw("n")
    assert ledger.nodes["n"].states() == []
    ledger.publish("n", NodeCards((t4("n", 0),)))
    assert ledger.nodes["n"].states()[0].free_mib == 360
    ledger.distrust("n", "garbage")
    assert ledger.nodes["n"].problem == "garbage"
    ledger.withdraw("n")
    ledger.release("u")
    assert ledger.nodes == {}


def test_a_pod_that_moves_tells_both_nodes():
    told: list[str] = []
    ledger = Ledger(on_change=told.append)
    ledger.hold(ref("u"), on("n", "a", 10))
    ledger.hold(ref("u"), on("m", "b", 10))
    assert told == ["n", "n", "m"]
    assert list(ledger.nodes) == ["m"]


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of what can happen to a ledger that only ``assign`` fills."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.ledger = Ledger(on_change=self.told.append)
        self.published: dict[str, NodeCards] = {}
        self.held: dict[str, tuple[PodRef, Placement]] = {}
        self.shrunk = False
        self.next = 0

    @rule(node=st.sampled_from(NODES), data=st.data())
    def publish(self, node: str, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, 3))
        its = NodeCards(tuple(data.draw(cards(i, node)) for i in range(count)))
        self.ledger.publish(node, its)
        self.published[node] = its
        self.shrunk = self.shrunk or bool(self.held)

    @rule(node=st.sampled_from(NODES))
    def withdraw(self, node: str) -> None:
        self.ledger.withdraw(node)
        self.published.pop(node, None)

    @rule(node=st.sampled_from(NODES), request=requests(), reserved=st.booleans())
    def place(self, node: str, request, reserved: bool) -> None:
        account = self.ledger.nodes.get(node)
        uid = f"u{self.next}"
        found = assign(uid, node, account.states() if account else [], request)
        if isinstance(found, Placement):
            self.next += 1
            self.ledger.hold(ref(uid), found, reserved=reserved)
            self.held[uid] = (ref(uid), found)
            assert self.told[-1] == node

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.held)))
        _, placement = self.held.pop(uid)
        released = self.ledger.release(uid)
        assert released is not None
        assert released.placement == placement
        assert self.told[-1] == placement.node

    @invariant()
    def never_over_capacity_unless_cards_changed_under_slices(self) -> None:
        assert self.shrunk or not list(self.ledger.overbooked())

    @invariant()
    def sums_are_the_sums_of_the_holders(self) -> None:
        for node in self.ledger.nodes.values():
            for account in node.accounts.values():
                assert account.holders
                assert account.used_mib == sum(m for m, _ in account.holders.values())
                assert account.used_percent == sum(p for _, p in account.holders.values())

    @invariant()
    def rebuilt_equals_live(self) -> None:
        rebuilt = Ledger()
        for node, its in self.published.items():
            rebuilt.publish(node, its)
        for who, placement in self.held.values():
            rebuilt.hold(who, placement)
        assert rebuilt.snapshot() == self.ledger.snapshot()


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(stateful_step_count=40, deadline=None)
