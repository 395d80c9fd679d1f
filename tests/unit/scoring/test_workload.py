"""What is learned of the workload: counts that fade, are bounded, and come back as they were saved."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.scoring import Ask, Target, Workload
from tests.unit.scoring import clusters as make

SMALL, LARGE = Ask(mib=3), Ask(mib=11)
seen = st.lists(st.tuples(make.asks, st.floats(0, 1e7)), max_size=40)


def learned(events: list[tuple[Ask, float]], half_life: float = 1000.0) -> Workload:
    workload = Workload(half_life)
    for ask, at in sorted(events, key=lambda event: event[1]):
        workload.observe(ask, at)
    return workload


def test_counts_halve_with_time() -> None:
    workload = Workload(half_life=100.0)
    for _ in range(8):
        workload.observe(SMALL, 1000.0)
    workload.observe(LARGE, 1200.0)
    assert workload.weights() == pytest.approx({SMALL: 2.0, LARGE: 1.0})


@given(events=seen)
def test_popularity_is_a_distribution_over_the_kinds_seen(events: list[tuple[Ask, float]]) -> None:
    workload = learned(events)
    target = workload.target(max((at for _, at in events), default=0.0))
    assert set(target.asks) <= {ask for ask, _ in events if ask.cards}
    assert all(p > 0 for p in target.popularity)
    assert sum(target.popularity) == pytest.approx(1.0 if target.asks else 0.0)


@settings(deadline=None)
@given(events=seen, later=st.floats(0, 1e6))
def test_what_is_saved_comes_back(events: list[tuple[Ask, float]], later: float) -> None:
    workload = learned(events)
    again = Workload(1000.0)
    again.load(workload.dump())
    assert again.dump() == workload.dump()
    assert again.weights() == pytest.approx(workload.weights(), rel=1e-5)
    now = max((at for _, at in events), default=0.0) + later
    workload.observe(SMALL, now)
    again.observe(SMALL, now)
    assert again.weights() == pytest.approx(workload.weights(), rel=1e-4, abs=0.02)


@given(
    text=st.text()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["v", "at", "counts"]), inner)
        ),
        max_leaves=12,
    ).map(json.dumps)
)
def test_what_cannot_be_read_changes_nothing(text: str) -> None:
    workload = learned([(SMALL, 5.0), (LARGE, 6.0)])
    before = workload.dump()
    with pytest.raises(ValueError, match="learned workload"):
        workload.load(text)
    assert workload.dump() == before


@pytest.mark.parametrize(
    "row",
    [
        [1, 3, 0, False, 0, [], -1],
        [1, 3, 0, False, 0, [], "many"],
        [0, 3, 0, False, 0, [], 1],
        [1, 3.5, 0, False, 0, [], 1],
        [1, 3, 0, 1, 0, [], 1],
        [1, 3, 0, False, 0, "T4", 1],
        [1, 3, 0, False, 0, [4], 1],
        [1, 3, 0, False],
    ],
)
def test_a_bad_row_is_refused(row: list[object]) -> None:
    with pytest.raises(ValueError, match="learned workload"):
        Workload().load(json.dumps({"v": 1, "at": 0, "counts": [row]}))


def test_the_number_of_kinds_is_bounded_and_the_newest_kind_stays() -> None:
    workload = Workload()
    for i in range(Workload.KINDS + 50):
        workload.observe(Ask(mib=i + 1), 1.0)
        assert Ask(mib=i + 1) in workload.weights()
    assert len(workload.weights()) == Workload.KINDS
    assert len(workload.dump()) < 100_000
    assert len(workload.target(1.0).asks) == Workload.LIMIT


def test_a_prior_counts_until_pods_outweigh_it() -> None:
    workload = Workload(prior={SMALL: 10.0})
    assert workload.target(0.0).asks == (SMALL,)
    for _ in range(90):
        workload.observe(LARGE, 0.0)
    target = workload.target(0.0)
    assert dict(zip(target.asks, target.popularity, strict=True)) == pytest.approx(
        {LARGE: 0.9, SMALL: 0.1}
    )


def test_the_target_stays_the_same_object_while_little_changes() -> None:
    workload = Workload(prior={SMALL: 500.0, LARGE: 500.0})
    before = workload.target(0.0)
    for _ in range(50):
        workload.observe(LARGE, 0.0)
    assert workload.target(0.0) is before
    for _ in range(200):
        workload.observe(LARGE, 0.0)
    assert workload.target(0.0) is not before


@given(times=st.lists(st.floats(0, 1e6), max_size=20))
def test_a_clock_that_goes_back_does_no_harm(times: list[float]) -> None:
    workload = Workload(half_life=10.0)
    for at in times:
        workload.observe(SMALL, at)
        assert 1.0 <= workload.weights()[SMALL] <= len(times)


def test_a_half_life_must_be_positive() -> None:
    with pytest.raises(ValueError, match="half_life"):
        Workload(half_life=0)


@given(
    weights=st.dictionaries(make.asks, st.floats(0.01, 100), max_size=12), limit=st.integers(1, 5)
)
def test_a_limit_keeps_the_most_popular_class(weights: dict[Ask, float], limit: int) -> None:
    target = Target.of(weights, limit)
    assert len(target.asks) <= limit
    with_cards = {ask: w for ask, w in weights.items() if ask.cards}
    if with_cards:
        most = max(with_cards.values())
        assert any(with_cards[ask] == most for ask in target.asks) or len(target.asks) == limit


def test_cover_leaves_out_the_rarest_and_counts_pods_without_cards() -> None:
    target = Target.of({SMALL: 60, Ask(cards=0, cpu=1): 36, LARGE: 4}, cover=0.95)
    assert target.asks == (SMALL,)
    assert target.popularity == pytest.approx((60 / 96,))
