"""What is lent is nobody's, and comes back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from device_plugin.enforcement.burst import Claim, Grant, grants, missing_for, most_of
from gpushare.units import GIB

CARD = 15000


def test_a_slice_alone_may_use_all_that_nobody_was_given() -> None:
    assert grants(CARD, {"a": Claim(3000, 99000, 3000)}) == {"a": Grant(15000, recalled=False)}
    assert grants(CARD, {"a": Claim(3000, 8000, 3000)}) == {"a": Grant(8000, recalled=False)}


def test_without_the_annotation_a_slice_is_a_slice() -> None:
    assert grants(CARD, {"a": Claim(3000, 3000, 9000)}) == {"a": Grant(3000, recalled=False)}


def test_guaranteed_memory_is_never_lent_though_it_lies_idle() -> None:
    claims = {"a": Claim(3000, 15000, 3000), "b": Claim(7000, 7000, used=0)}
    assert grants(CARD, claims)["a"] == Grant(8000, recalled=False)


def test_a_newcomer_recalls_what_was_lent() -> None:
    claims = {"a": Claim(3000, 15000, 11000), "new": Claim(7000, 7000, 0)}
    assert grants(CARD, claims)["a"] == Grant(8000, recalled=True)
    assert missing_for("new", CARD, claims) == 3000
    claims["a"] = Claim(3000, 15000, 8000)
    assert grants(CARD, claims)["a"] == Grant(8000, recalled=False)
    assert missing_for("new", CARD, claims) == 0


def test_who_borrowed_most_gives_back_first() -> None:
    claims = {
        "a": Claim(1000, 15000, 8000),
        "b": Claim(1000, 15000, 3000),
        "c": Claim(1000, 15000, 1000),
        "new": Claim(7000, 7000, 0),
    }
    got = grants(CARD, claims)
    assert got["a"] == Grant(1000 + 3000, recalled=True)
    assert got["b"] == Grant(1000 + 2000, recalled=False)
    assert got["c"] == Grant(1000, recalled=False)


def test_a_card_that_shrank_below_its_slices_lends_nothing() -> None:
    claims = {"a": Claim(9000, 15000, 9500), "b": Claim(9000, 9000, 0)}
    assert grants(CARD, claims)["a"] == Grant(9000, recalled=True)


def test_an_overfull_pod_that_may_not_burst_holds_up_a_newcomer_too() -> None:
    claims = {"a": Claim(7000, 7000, 9000, tolerated=300), "new": Claim(7000, 7000, 0)}
    assert missing_for("new", CARD, claims) == 700


@pytest.mark.parametrize(
    ("text", "most", "problem"),
    [
        (None, 3072, False),
        ("10", 10240, False),
        ("3", 3072, False),
        ("1k", 30720, False),  # as the API writes 1000; the bound holds
        ("2", 3072, True),
        ("lots", 3072, True),
        ("-5", 3072, True),
        ("9.5", 3072, True),
    ],
)
def test_the_annotation(text: str | None, most: int, problem: bool) -> None:
    got, said = most_of(text, GIB, 3072, bound_percent=1000)
    assert (got, bool(said)) == (most, problem)


def test_the_nodes_bound() -> None:
    assert most_of("10", GIB, 3072, 200)[0] == 6144
    assert most_of("10", GIB, 3072, 100)[0] == 3072
    assert most_of("10", GIB, 3072, 0)[0] == 3072


claim = st.builds(
    Claim,
    slice=st.integers(0, 8000),
    most=st.integers(0, 20000),
    used=st.integers(0, 20000),
    tolerated=st.integers(0, 600),
)


@example(
    5415,
    {
        "a": Claim(1180, 244, 0, 355),
        "c": Claim(378, 371, 0, 245),
        "ab": Claim(0, 357, 165, 1),
        "aaaa": Claim(2754, 599, 0, 355),
        "aaa": Claim(0, 1, 1, 1),
        "aa": Claim(938, 0, 331, 600),
    },
)
@given(st.integers(0, 24000), st.dictionaries(st.text("abcdef", min_size=1), claim, max_size=8))
def test_always(capacity: int, claims: dict[str, Claim]) -> None:
    got = grants(capacity, claims)
    slices = sum(c.slice for c in claims.values())
    spare = max(0, capacity - slices)
    kept = 0
    for uid, c in claims.items():
        limit = got[uid].limit
        assert c.slice <= limit <= max(c.slice, c.most)
        # What may be kept of the loans of today. New ones are bounded each by what is left.
        kept += min(c.borrowed, limit - c.slice)
        assert limit - c.slice <= spare
        assert got[uid].recalled == (limit - c.slice < min(c.borrowed, max(0, c.most - c.slice)))
    assert kept <= spare
    # If everybody keeps to the grant, nobody's slice is touched and any newcomer that fits, fits.
    # A grant is without the allowance, so whoever keeps to it may use that besides.
    calm = {
        uid: Claim(c.slice, c.most, min(c.used, got[uid].limit + c.tolerated), c.tolerated)
        for uid, c in claims.items()
    }
    for uid in calm:
        assert missing_for(uid, capacity, calm) == 0
