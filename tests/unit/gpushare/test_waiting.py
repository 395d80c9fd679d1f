"""The waiting line's JSON: what is encoded is decoded, and anything else is refused with a reason."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.waiting import (
    Leaver,
    Obstacle,
    PlacedCard,
    PlacedPod,
    RefusedPod,
    WaitingPod,
    WayOut,
    decode,
    decode_why,
    encode,
    encode_why,
    rfc3339,
    seconds_of,
    without_names,
)

texts = st.text(max_size=30)
wholes = st.integers(-(2**39), 2**39)
times = st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)
obstacles = st.builds(Obstacle, texts, texts, wholes, texts, wholes, wholes, texts)
leavers = st.builds(Leaver, texts, texts, texts, wholes, wholes)
ways = st.builds(WayOut, texts, texts, st.lists(leavers, max_size=2).map(tuple))
waiters = st.builds(
    WaitingPod, texts, texts, texts, texts, times, texts, wholes, wholes, wholes,
    st.lists(texts, max_size=2).map(tuple), wholes, wholes,
    st.lists(obstacles, max_size=2).map(tuple), wholes, st.lists(ways, max_size=2).map(tuple),
)  # fmt: skip
placed = st.builds(
    PlacedPod, texts, texts, texts, texts,
    st.lists(st.builds(PlacedCard, texts, wholes, texts, wholes, wholes), max_size=2).map(tuple),
)  # fmt: skip
refused = st.builds(RefusedPod, texts, texts, texts, texts)


@given(st.lists(waiters, max_size=3))
def test_there_and_back(pods: list[WaitingPod]) -> None:
    assert decode(encode(pods)) == tuple(pods)


@given(waiters | placed | refused)
def test_why_there_and_back(why: WaitingPod | PlacedPod | RefusedPod) -> None:
    assert decode_why(encode_why(why)) == why


@given(times)
def test_times_there_and_back(seconds: float) -> None:
    text = rfc3339(seconds)
    assert text.endswith("Z")
    assert seconds_of(text) == pytest.approx(seconds, abs=1e-3)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | texts,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["state", "waiting", "since", "models", "reasons", "cards"]),
                inner | st.sampled_from(["waiting", "placed", "refused", "2026-01-01T00:00:00Z"]),
            )
        ),
    )
)
def test_garbage_is_a_value_error(data: object) -> None:
    text = json.dumps(data)
    for read in (decode, decode_why):
        with contextlib.suppress(ValueError):
            read(text)


def test_names_are_left_out_where_they_are_nobodys_business() -> None:
    pod = WaitingPod(
        "hub", "jupyter-erin", "u", "erin", 1.0, "7 GiB on one card", 7168, 0, 1, ("T4",), 2, 3,
        would_end=(WayOut("t4-1", "c0", (Leaver("hub", "jupyter-bob", "bob", 7168, 0),)),),
    )  # fmt: skip
    text = encode([without_names(pod)])
    assert "bob" not in text
    assert "erin" in text
    assert decode(text)[0].would_end[0].slices[0].mib == 7168
