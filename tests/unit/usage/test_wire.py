"""The usage API's JSON: what is encoded is decoded, and anything else is refused with a reason."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.usage import (
    CardUse,
    ContainerUse,
    Incident,
    NodeUsage,
    SliceUse,
    StrayUse,
    decode,
    encode,
)

texts = st.text(max_size=60)
wholes = st.integers(0, 2**39)
numbers = st.floats(0, 1e11).map(lambda f: round(f, 3))
maybe_whole, maybe_number = st.none() | wholes, st.none() | numbers
containers = st.builds(ContainerUse, texts, wholes, wholes, wholes, maybe_whole, maybe_number)
slices = st.builds(
    SliceUse, texts, texts, texts, texts, wholes, wholes, wholes, wholes, wholes, maybe_whole,
    maybe_number, numbers, numbers, maybe_number, wholes, texts, texts,
    st.lists(containers, max_size=3).map(tuple),
)  # fmt: skip
cards = st.builds(CardUse, texts, wholes, wholes, wholes, wholes, maybe_whole, texts)
usages = st.builds(
    NodeUsage,
    texts,
    numbers,
    texts,
    st.lists(cards, max_size=3).map(tuple),
    st.lists(slices, max_size=3).map(tuple),
    st.lists(st.builds(StrayUse, texts, wholes, texts, wholes, texts), max_size=2).map(tuple),
    st.lists(st.builds(Incident, numbers, texts, texts, texts, texts, texts, texts), max_size=2).map(tuple),
)  # fmt: skip


@given(usages)
def test_there_and_back(usage: NodeUsage) -> None:
    assert decode(encode(usage)) == usage


def test_a_newer_node_is_understood() -> None:
    data = json.loads(encode(NodeUsage("n", 1.0, "watchdog")))
    assert decode(json.dumps({**data, "new": [1]})) == NodeUsage("n", 1.0, "watchdog")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "v=1"),
        ('{"v": 2}', "v=1"),
        ('{"v": 1, "node": 5}', "'node'"),
        ('{"v": 1, "node": "n", "time": "now"}', "'time'"),
        ('{"v": 1, "slices": 7}', "'slices'"),
        ('{"v": 1, "slices": [7]}', "'slices'"),
        ('{"v": 1, "slices": [{"used_mib": -1}]}', "'used_mib'"),
        ('{"v": 1, "slices": [{"used_mib": true}]}', "'used_mib'"),
        ('{"v": 1, "cards": [{"uuid": null}]}', "'uuid'"),
        ('{"v": 1, "time": NaN}', "'time'"),
    ],
)
def test_what_is_not_usage(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(st.sampled_from(["v", "node", "cards", "slices", "time"]), x)
        ),
    )
)
def test_anything_else_is_a_value_error(data: object) -> None:
    with contextlib.suppress(ValueError):
        decode(json.dumps(data))
