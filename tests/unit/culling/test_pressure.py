"""Who makes room for whom."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hub_integration.culling.pressure import pressed
from tests.unit.culling.scenes import at, card, held, waiter


def test_only_as_many_as_make_room_and_those_that_end_first() -> None:
    full = card(held("ann", 5), held("bob", 5), held("cyd", 5))
    ends = {"uid-ann": at(30), "uid-bob": at(20), "uid-cyd": at(40)}
    assert pressed([full], [waiter(gib=4)], ends) == {"uid-bob": 1}
    assert pressed([full], [waiter(gib=9)], ends) == {"uid-bob": 1, "uid-ann": 1}


def test_who_is_needless_in_the_end_stays() -> None:
    """A small slice that would go first is spared where the large one alone makes room."""
    full = card(held("ann", 2), held("bob", 13))
    ends = {"uid-ann": at(10), "uid-bob": at(20)}
    assert pressed([full], [waiter(gib=12)], ends) == {"uid-bob": 1}


def test_the_card_that_is_ready_soonest_is_chosen() -> None:
    late, soon = card(held("ann", 15)), card(held("bob", 15, "GPU-1"), name="GPU-1")
    ends = {"uid-ann": at(50), "uid-bob": at(20)}
    assert pressed([late, soon], [waiter()], ends) == {"uid-bob": 1}


def test_nobody_is_pressed_for_what_is_free_or_can_never_be() -> None:
    half = card(held("ann", 8))
    ends = {"uid-ann": at(20)}
    assert pressed([half], [waiter(gib=7)], ends) == {}
    assert pressed([half], [waiter(gib=16)], ends) == {}
    assert pressed([half], [waiter(gib=9, models=("A10",))], ends) == {}
    assert pressed([half], [waiter(gib=9)], {}) == {}, "a job's slice is nobody's to end"
    assert pressed([replace(half, usable=False)], [waiter(gib=9)], ends) == {}


def test_what_leaves_anyhow_is_counted_as_gone() -> None:
    full = card(held("ann", 8), held("bob", 7))
    ends = {"uid-bob": at(20)}
    assert pressed([full], [waiter(gib=6)], ends, frozenset({"uid-ann"})) == {}
    leaving = card(replace(held("ann", 8), leaving=True), held("bob", 7))
    assert pressed([leaving], [waiter(gib=6)], ends) == {}


def test_room_is_promised_once() -> None:
    full = card(held("ann", 7), held("bob", 8))
    ends = {"uid-ann": at(20), "uid-bob": at(30)}
    assert pressed([full], [waiter("one", 7), waiter("two", 7)], ends) == {
        "uid-ann": 1,
        "uid-bob": 1,
    }
    assert pressed([full], [waiter("one", 7), waiter("two", 7), waiter("more", 7)], ends) == {
        "uid-ann": 1,
        "uid-bob": 1,
    }


def test_whole_cards_and_several_cards_of_one_node() -> None:
    cards = [card(held("ann", 3)), card(held("bob", 3, "GPU-1"), name="GPU-1")]
    ends = {"uid-ann": at(20), "uid-bob": at(30)}
    assert pressed(cards, [waiter(gib=0, percent=100)], ends) == {"uid-ann": 1}
    assert set(pressed(cards, [waiter(gib=13, cards=2)], ends)) == {"uid-ann", "uid-bob"}
    assert pressed(cards[:1], [waiter(gib=13, cards=2)], ends) == {}


sizes = st.integers(1, 7)


@given(st.lists(sizes, max_size=4), st.lists(sizes, max_size=4), st.data())
def test_those_pressed_make_room_and_each_of_them_is_needed(
    slices: list[int], wants: list[int], data: st.DataObject
) -> None:
    entries = [held(f"u{i}", gib) for i, gib in enumerate(slices) if sum(slices[: i + 1]) <= 15]
    minutes = data.draw(st.lists(st.integers(0, 99), min_size=4, max_size=4))
    ends = {entry.uid: at(minutes[i]) for i, entry in enumerate(entries)}
    one = card(*entries)
    for gib in wants[:1]:
        chosen = pressed([one], [waiter(gib=gib)], ends)
        freed = one.free_mib + sum(e.mib for e in entries if e.uid in chosen)
        fits = gib <= 15
        assert freed >= gib * 1024 or not fits
        assert all(freed - e.mib < gib * 1024 for e in entries if e.uid in chosen)
    assert set(pressed([one], [waiter(str(i), g) for i, g in enumerate(wants)], ends)) <= set(ends)
