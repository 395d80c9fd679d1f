"""The line of waiting pods: its order, what is kept for whom, and that everybody's turn comes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.leaving import _on_node, fewest, ways
from extender.line import Member, Plan, Turn, compete, due_times, left_over, places, plan
from gpushare.assignment import CardState, assign
from gpushare.budget import NONE, Amounts
from gpushare.cards import Card, NodeCards
from gpushare.ledger import Ledger
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.pods import PodRef
from gpushare.reasons import Reason
from gpushare.request import ContainerRequest, Demand, PodRequest, Role

SHARE = 600.0


def request(mib: int = 0, percent: int = 0, *models: str, cards: int = 1) -> PodRequest:
    demand = Demand(mib or None, percent, cards, whole=percent == 100)
    return PodRequest((ContainerRequest("notebook", Role.APP, demand),), models)


@dataclass
class Cluster:
    """Cards without a cluster, as the line asks about them."""

    ledger: Ledger = field(default_factory=Ledger)

    def node(self, name: str, *memory: int, model: str = "Tesla T4") -> None:
        cards = [Card(f"{name}-{i}", i, i, model, m) for i, m in enumerate(memory)]
        self.ledger.publish(name, NodeCards(tuple(cards)))

    def hold(
        self,
        uid: str,
        node: str,
        wish: PodRequest,
        plan: Plan | None = None,
        turn: Turn | None = None,
    ) -> bool:
        states, _ = left_over(self.states(node), plan.before(node, turn) if plan else ())
        found = assign(uid, node, states, wish)
        if isinstance(found, Placement):
            self.ledger.hold(PodRef("ns", uid, uid), found)
        return isinstance(found, Placement)

    def fitting(self, nodes: Sequence[str] | None, wish: PodRequest) -> Iterator[str]:
        for node in sorted(self.ledger.nodes) if nodes is None else nodes:
            if isinstance(assign("", node, self.states(node), wish), Placement):
                yield node

    def states(self, node: str) -> list[CardState]:
        return self.ledger.nodes[node].states()

    def place(
        self, node: str, uid: str, wish: PodRequest, states: Sequence[CardState], _more: Amounts
    ) -> Placement | Reason:
        return assign(uid, node, states, wish)

    def asked(self, _request: PodRequest) -> Amounts:
        return NONE

    def target(
        self, nodes: Sequence[str] | None, wish: PodRequest
    ) -> tuple[str, tuple[str, ...]] | None:
        names = sorted(self.ledger.nodes) if nodes is None else nodes
        found = ways(wish, (self.ledger.nodes[name] for name in names))
        return (found[0].node, found[0].cards) if found else None


@dataclass(frozen=True)
class Pod:
    uid: str
    turn: Turn
    request: PodRequest
    offered: tuple[str, ...] | None = None


def line(*requests: PodRequest) -> list[Pod]:
    return [Pod(f"p{i}", Turn.of(0, i, i, f"p{i}"), r) for i, r in enumerate(requests)]


def always(_member: Member, _fits: bool) -> bool:
    return True


# -- order ---------------------------------------------------------------------------------------


def test_the_second_pod_of_one_person_comes_after_the_first_of_another():
    alice = due_times({"a1": 0, "a2": 1, "a3": 2}, SHARE)
    bob = due_times({"b1": 3}, SHARE)
    order = sorted({**alice, **bob}.items(), key=lambda item: item[1])
    assert [uid for uid, _ in order] == ["a1", "b1", "a2", "a3"]


times = st.dictionaries(st.integers(0, 99).map(str), st.floats(0, 1e6), max_size=8)


@given(times, st.floats(0, 1000))
def test_turns_are_never_before_the_pod_came_and_are_apart(came: dict[str, float], share: float):
    due = due_times(came, share)
    assert set(due) == set(came)
    assert all(due[uid] >= came[uid] for uid in came)
    ordered = sorted(due.values())
    assert all(b - a >= share * 0.999 - 1e-6 for a, b in itertools.pairwise(ordered))


@given(times, st.floats(1e6, 2e6), st.floats(0, 1000))
def test_who_comes_later_moves_nobody_back(came: dict[str, float], later: float, share: float):
    """With turns that only ever move forward, and newcomers' turns after now, everybody's comes."""
    before = due_times(came, share)
    after = due_times({**came, "newcomer": later}, share)
    assert {uid: after[uid] for uid in came} == before
    assert after["newcomer"] >= later


@given(times, st.floats(0, 1000))
def test_a_pod_that_leaves_moves_nobody_back(came: dict[str, float], share: float):
    before = due_times(came, share)
    for gone in came:
        after = due_times({uid: t for uid, t in came.items() if uid != gone}, share)
        assert all(after[uid] <= before[uid] for uid in after)


def test_places_count_those_that_want_the_same_cards():
    t4, a10, either = request(1024, 0, "T4"), request(1024, 0, "A10"), request(1024)
    assert places(line(t4, a10, t4, either, a10)) == [(1, 3), (1, 3), (2, 3), (4, 5), (3, 3)]


def test_who_competes():
    assert compete(request(1, 0, "T4"), request(1, 0, "Tesla T4"))
    assert not compete(request(1, 0, "A10"), request(1, 0, "A100"))


# -- what is kept --------------------------------------------------------------------------------


def test_what_came_free_is_kept_for_the_first_in_line():
    cluster = Cluster()
    cluster.node("n", 15360)
    cluster.hold("holder", "n", request(8192))
    made = plan(line(request(7168), request(5120)), cluster, always)
    assert [claim.uid for claim in made.claims if not claim.drains] == ["p0"]
    late = Turn.of(0, 9, 9, "late")
    assert not cluster.hold("late", "n", request(5120), made, late)
    assert cluster.hold("p0", "n", request(7168), made, made.claims[0].turn)


def test_a_small_pod_goes_by_when_it_delays_nobody():
    cluster = Cluster()
    cluster.node("n", 15360, 15360)
    cluster.hold("holder", "n", request(8192))
    made = plan(line(request(0, 100)), cluster, always)
    late = Turn.of(0, 9, 9, "late")
    assert cluster.hold("late", "n", request(7168), made, late)
    assert cluster.ledger.slices["late"].placement.footprint() == {"n-0": (7168, 0)}
    assert not cluster.hold("later", "n", request(1024), made, late)
    assert cluster.hold("p0", "n", request(0, 100), made, made.claims[0].turn)


def test_one_card_is_emptied_for_the_first_large_pod_and_the_others_stay_in_use():
    cluster = Cluster()
    cluster.node("n", 15360, 15360)
    for i in range(4):
        cluster.hold(f"h{i}", "n", request(5120))
    whole = request(0, 100)
    made = plan(line(whole, whole, request(5120)), cluster, always)
    drains = [claim for claim in made.claims if claim.drains]
    assert [(claim.uid, set(claim.shares)) for claim in drains] == [("p0", {"n-1"})]
    late = Turn.of(0, 9, 9, "late")
    cluster.ledger.release("h3")
    assert not cluster.hold("late", "n", request(5120), made, late)
    cluster.ledger.release("h0")
    assert cluster.hold("late", "n", request(5120), made, late)
    assert set(cluster.ledger.slices["late"].placement.footprint()) == {"n-0"}


def test_nothing_is_kept_on_nodes_that_a_pod_may_not_use():
    cluster = Cluster()
    cluster.node("n", 15360)
    pod = Pod("p", Turn.of(0, 1, 1, "p"), request(7168), offered=())
    assert plan([pod], cluster, always).claims == []


sizes = st.sampled_from(
    [request(m) for m in (1024, 3072, 7168, 15360)]
    + [request(0, 100), request(0, 30), request(4096, cards=2)]
)


@given(
    st.lists(st.lists(st.sampled_from([15360, 23028]), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.tuples(sizes, st.integers(0, 2)), max_size=6),
    st.lists(sizes, min_size=1, max_size=6),
    sizes,
    st.integers(0, 6),
)  # fmt: skip
@settings(max_examples=150)
def test_whoever_is_let_by_leaves_all_before_it_their_places(nodes, held, waiting, wish, position):
    cluster = Cluster()
    for i, memory in enumerate(nodes):
        cluster.node(f"n{i}", *memory)
    for i, (size, where) in enumerate(held):
        cluster.hold(f"h{i}", f"n{where % len(nodes)}", size)
    made = plan(line(*waiting), cluster, always)
    turn = Turn.of(0, position - 0.5, 0, "late")
    before = [claim for claim in made.claims if claim.turn < turn and not claim.drains]
    for i in range(len(nodes)):
        cluster.hold("late", f"n{i}", wish, made, turn)
    # All of those before it can still be placed where they were to be, together.
    for claim in before:
        for uuid, (mib, percent) in claim.shares.items():
            state = next(s for s in cluster.states(claim.node) if s.card.uuid == uuid)
            assert state.empty or percent < 100
            assert mib <= state.free_mib
            assert percent <= state.free_percent
            share = ContainerPlacement("c", Role.APP, (Share(uuid, mib, percent),))
            ref = PodRef("ns", claim.uid, f"{claim.uid}-{uuid}")
            cluster.ledger.hold(ref, Placement(ref.uid, claim.node, (share,)))
    assert not list(cluster.ledger.overbooked())


@given(st.lists(st.sampled_from([1024, 3072, 5120, 15360]), min_size=1, max_size=8), st.data())
@settings(max_examples=60)
def test_everybody_is_placed_however_many_come_later(waiting, data):
    """Starvation: as long as pods end, the first is placed, with newcomers trying at each step."""
    cluster = Cluster()
    cluster.node("n", 15360, 15360)
    for i in range(10):
        cluster.hold(f"h{i}", "n", request(3072))
    queue = line(*(request(0, 100) if m == 15360 else request(m) for m in waiting))
    ends, steps = 0, 0
    while queue:
        steps += 1
        assert steps < 200
        made = plan(queue, cluster, always)
        comer = data.draw(st.sampled_from([1024, 3072]))
        cluster.hold(f"new{steps}", "n", request(comer), made, Turn.of(0, 1e9, 0, "new"))
        for pod in list(queue):
            if cluster.hold(pod.uid, "n", pod.request, made, pod.turn):
                queue.remove(pod)
        # The oldest pod ends.
        oldest = next(iter(cluster.ledger.slices), None)
        if oldest is not None:
            cluster.ledger.release(oldest)
            ends += 1


# -- what would have to end ----------------------------------------------------------------------

holdings = st.dictionaries(
    st.integers(0, 20).map(str), st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8
)


@given(holdings, st.integers(-3, 30), st.integers(-3, 30))
def test_the_fewest_are_enough_and_none_is_useless(held, mib, percent):
    found = fewest(held, mib, percent)

    def enough(uids) -> bool:
        return sum(held[u][0] for u in uids) >= mib and sum(held[u][1] for u in uids) >= percent

    if found is None:
        assert not enough(held)
        return
    assert enough(found)
    assert not any(enough([u for u in found if u != gone]) for gone in found)


def test_many_holders_are_chosen_among_too():
    held = {str(i): (i, 0) for i in range(40)}
    assert fewest(held, 39 + 38, 0) == ("39", "38")


def test_the_cheapest_way_is_named_first():
    cluster = Cluster()
    cluster.node("a", 15360)
    cluster.node("b", 15360)
    for i in range(5):
        cluster.hold(f"a{i}", "a", request(3072))
    cluster.hold("b0", "b", request(15360))
    (first, second) = ways(request(14336), cluster.ledger.nodes.values(), most=2)
    assert (first.node, first.uids) == ("b", ("b0",))
    assert second.node == "a"
    assert len(second.uids) == 5
    (small,) = ways(request(2048), cluster.ledger.nodes.values())
    assert (small.node, len(small.uids)) == ("a", 1)


@given(
    st.lists(
        st.lists(st.sampled_from([15360, 23028]), min_size=1, max_size=3), min_size=1, max_size=4
    ),
    st.lists(st.tuples(sizes, st.integers(0, 3)), max_size=12),
    sizes,
    st.integers(1, 3),
)
@settings(max_examples=150)
def test_the_cheapest_ways_are_found_without_looking_at_all_closely(nodes, held, wish, most):
    cluster = Cluster()
    for i, memory in enumerate(nodes):
        cluster.node(f"n{i}", *memory)
    for i, (size, where) in enumerate(held):
        cluster.hold(f"h{i}", f"n{where % len(nodes)}", size)
    accounts = cluster.ledger.nodes.values()
    demand = wish.containers[0].demand
    closely = [way for node in accounts if (way := _on_node(wish, demand, node)) is not None]
    closely.sort(key=lambda way: (way.weight, way.node, way.cards))
    found = ways(wish, accounts, most=most)
    assert [way.weight for way in found] == [way.weight for way in closely[:most]]
    for way in found:
        for uid in way.uids:
            cluster.ledger.release(uid)
        states = cluster.states(way.node)
        assert isinstance(assign("", way.node, states, wish), Placement)
        break
