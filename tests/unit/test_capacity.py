"""Counting agrees with placing: ``Capacity.room`` is how often ``assign`` succeeds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpushare.assignment import CardState, assign
from gpushare.capacity import Capacity, Room, kind
from gpushare.cards import Card
from gpushare.placement import Placement
from gpushare.request import ContainerRequest, Demand, PodRequest, Role

MODELS = (("Tesla T4", 15360), ("NVIDIA A10", 23028))


@st.composite
def states(draw: st.DrawFn) -> CardState:
    model, memory = draw(st.sampled_from(MODELS))
    health = draw(st.sampled_from(["ok", "ok", "ok", "XID 79"]))
    used = draw(st.sampled_from([0, 1024, 7168, memory, memory + 512]))
    percent = draw(st.sampled_from([0, 30, 100]))
    card = Card("", 0, 0, model, memory, health)
    return CardState(card, memory - used, 100 - percent, empty=not used and not percent)


def nodes() -> st.SearchStrategy[list[list[CardState]]]:
    return st.lists(st.lists(states(), max_size=4), max_size=3)


def demands() -> st.SearchStrategy[Demand]:
    mib = st.sampled_from([512, 1024, 3072, 7168, 22528])
    return st.one_of(
        st.builds(Demand, mib=mib, percent=st.sampled_from([0, 10, 50]), cards=st.just(1)),
        st.builds(Demand, mib=mib, percent=st.just(0), cards=st.integers(1, 3)),
        st.builds(Demand, mib=st.none(), percent=st.integers(1, 99)),
        st.builds(
            Demand,
            mib=st.none(),
            percent=st.just(100),
            cards=st.integers(1, 3),
            whole=st.just(True),
        ),
    )


def capacity(layout: list[list[CardState]]) -> Capacity:
    return Capacity(map(kind, node) for node in layout)


def numbered(layout: list[list[CardState]]) -> list[list[CardState]]:
    """The same with uuids and indexes, as real cards have."""
    return [
        [
            CardState(
                Card(f"{n}-{i}", i, i, s.card.model, s.card.memory, s.card.health),
                s.free_mib,
                s.free_percent,
                s.empty,
            )
            for i, s in enumerate(node)
        ]
        for n, node in enumerate(layout)
    ]


def placed(cards: list[CardState], request: PodRequest) -> int:
    """How often the request can be placed on one node, one after the other, spreading groups."""
    count, current = 0, list(cards)
    while True:
        answer = assign("u", "n", current, request)
        if not isinstance(answer, Placement):
            return count
        count += 1
        shares = {share.card: share for c in answer.containers for share in c.shares}
        current = [
            s.take(shares[s.card.uuid].mib, shares[s.card.uuid].percent)
            if s.card.uuid in shares
            else s
            for s in current
        ]


@given(layout=nodes(), demand=demands(), models=st.sampled_from([(), ("T4",), ("A10", "L4")]))
def test_room_is_how_often_one_card_requests_can_be_placed(
    layout: list[list[CardState]], demand: Demand, models: tuple[str, ...]
) -> None:
    layout = numbered(layout)
    request = PodRequest((ContainerRequest("c", Role.APP, demand),), models=models)
    room = capacity(layout).room(request).free
    greedy = sum(placed(node, request) for node in layout)
    if demand.cards == 1:
        assert room == greedy
    else:
        # Placing one after the other may waste a card that another order would have used.
        assert room >= greedy
        assert (room > 0) == (greedy > 0)


@given(layout=nodes(), demand=demands())
def test_there_is_never_more_room_than_on_empty_cards(
    layout: list[list[CardState]], demand: Demand
) -> None:
    room = capacity(numbered(layout)).room(PodRequest((ContainerRequest("c", Role.APP, demand),)))
    assert 0 <= room.free <= room.total


def test_nothing_asks_for_nothing() -> None:
    assert capacity([]).room(PodRequest(())) == Room(0, 0)


def test_memory_counts_healthy_cards_of_the_model_without_debts() -> None:
    def card(model: str, memory: int, free: int, health: str = "ok") -> CardState:
        return CardState(Card("", 0, 0, model, memory, health), free, 100, empty=False)

    cards = capacity(
        [[card("Tesla T4", 15360, 5000), card("Tesla T4", 15360, -300)], [card("L4", 1, 1)],
         [card("Tesla T4", 15360, 15360, "XID 79")]]
    )  # fmt: skip
    request = PodRequest((ContainerRequest("c", Role.APP, Demand(1024, 0)),), models=("T4",))
    assert cards.memory(request) == (5000, 30720)
