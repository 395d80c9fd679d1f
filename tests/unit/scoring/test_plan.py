"""The planner: the fewest, longest idle pods, and never a plan that does not work."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.scoring.plan import Holder, additions, make_room
from gpushare.assignment import CardState, assign
from gpushare.cards import Card, NodeCards
from gpushare.ledger import Ledger
from gpushare.placement import Placement
from gpushare.pods import PodRef
from gpushare.request import ContainerRequest, Demand, PodRequest, Role

GIB = 1024
NOW_IDLE = 600.0


def slice_of(gib: int) -> PodRequest:
    return PodRequest((ContainerRequest("c", Role.APP, Demand(gib * GIB, 0)),))


WHOLE = PodRequest((ContainerRequest("c", Role.APP, Demand(None, 100, 1, whole=True)),))


class Cluster:
    """A real ledger with T4s, filled by hand."""

    def __init__(self, nodes: int, cards: int) -> None:
        self.ledger = Ledger()
        self.holders: list[Holder] = []
        for n in range(nodes):
            made = [Card(f"n{n}-{i}", i, i, "Tesla T4", 15 * GIB) for i in range(cards)]
            self.ledger.publish(f"n{n}", NodeCards(tuple(made)))

    @property
    def nodes(self) -> dict[str, list[CardState]]:
        return {name: account.states() for name, account in self.ledger.nodes.items()}

    def put(self, node: str, request: PodRequest, idle: float) -> bool:
        pod = f"pod-{len(self.holders)}"
        placed = assign(pod, node, self.nodes[node], request)
        if not isinstance(placed, Placement):
            return False
        self.ledger.hold(PodRef("ns", pod, pod), placed)
        self.holders.append(Holder(pod, request, placed, idle))
        return True

    def room(self, request: PodRequest):
        return make_room(self.nodes, self.holders, "ns/large", request, NOW_IDLE)


def test_what_fits_needs_no_restart() -> None:
    room = Cluster(1, 1).room(WHOLE)
    assert room is not None
    assert room.moves == ()
    assert room.sentence() == "ns/large fits on n0 now"


def test_one_idle_notebook_moves_to_make_a_whole_card() -> None:
    cluster = Cluster(2, 1)
    cluster.put("n0", slice_of(3), idle=1800)
    cluster.put("n1", slice_of(7), idle=0)
    room = cluster.room(WHOLE)
    assert room is not None
    assert room.node == "n0"
    assert [(m.pod, m.to) for m in room.moves] == [("pod-0", "n1")]
    assert "idle for 30 min: restart it; it fits on n1" in room.sentence()
    assert room.as_json()["restarts"] == [{"pod": "pod-0", "idle_seconds": 1800, "to": "n1"}]


def test_moving_is_better_than_stopping_and_longer_idle_is_better() -> None:
    cluster = Cluster(3, 1)
    cluster.put("n0", slice_of(13), idle=9999)
    cluster.put("n1", slice_of(3), idle=700)
    cluster.put("n2", slice_of(3), idle=800)
    room = cluster.room(WHOLE)
    assert room is not None
    assert room.node == "n2"
    assert room.moves[0].to in ("n0", "n1")


def test_a_pod_in_use_is_left_alone() -> None:
    cluster = Cluster(1, 1)
    cluster.put("n0", slice_of(3), idle=NOW_IDLE - 1)
    assert cluster.room(WHOLE) is None


def test_where_nothing_else_is_left_a_pod_has_to_stop() -> None:
    cluster = Cluster(1, 1)
    cluster.put("n0", slice_of(3), idle=3600)
    room = cluster.room(WHOLE)
    assert room is not None
    assert "would have to stop" in room.sentence()


@settings(deadline=None)
@given(
    pods=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 15), st.integers(0, 1200)), max_size=10
    ),
    want=st.integers(1, 15).map(slice_of) | st.just(WHOLE),
)
def test_a_plan_carried_out_makes_room(pods: list[tuple[int, int, int]], want: PodRequest) -> None:
    cluster = Cluster(3, 2)
    for node, gib, idle in pods:
        cluster.put(f"n{node}", slice_of(gib), float(idle))
    room = cluster.room(want)
    held = {h.pod: h for h in cluster.holders}
    if room is None:
        assert not any(
            isinstance(assign("", n, states, want), Placement)
            for n, states in cluster.nodes.items()
        )
        return
    for move in room.moves:
        assert held[move.pod].idle >= NOW_IDLE
        cluster.ledger.release(move.pod)
    placed = assign("large", room.node, cluster.nodes[room.node], want)
    assert isinstance(placed, Placement)
    cluster.ledger.hold(PodRef("ns", "large", "large"), placed)
    for move in room.moves:
        if move.to:
            assert cluster.put(move.to, held[move.pod].request, 0.0)


def test_one_more_card_takes_as_many_as_fit_on_it() -> None:
    cluster = Cluster(1, 1)
    cluster.put("n0", WHOLE, idle=0)
    found = additions(cluster.nodes, [slice_of(7), slice_of(7), slice_of(7), WHOLE])
    assert [(a.model, a.served, a.waiting) for a in found] == [("T4", 2, 4)]
    assert found[0].sentence() == "one more T4 would take 2 of the 4 waiting pods"
