"""The two annotations: what is written reads back equal, and garbage is a ValueError."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare import cards, placement
from gpushare.assignment import assign
from gpushare.cards import Card, NodeCards
from gpushare.placement import Placement
from gpushare.units import Unit
from tests.unit.gpushare.strategies import cards as any_card
from tests.unit.gpushare.strategies import json_values, requests, states


@settings(deadline=None)
@given(states(), requests())
def test_a_placement_reads_back_equal(its, request):
    found = assign("uid-1", "node-1", its, request)
    if isinstance(found, Placement):
        assert placement.decode(placement.encode(found)) == found


@settings(deadline=None)
@given(st.lists(st.integers(0, 63), max_size=8, unique=True), st.data(), st.integers(1, 4096))
def test_cards_read_back_equal(indexes, data, mib):
    node = NodeCards(tuple(data.draw(any_card(i)) for i in sorted(indexes)), Unit(mib))
    assert cards.decode(cards.encode(node)) == node


@pytest.mark.parametrize("decode", [cards.decode, placement.decode])
@settings(deadline=None)
@given(text=st.one_of(st.text(), json_values().map(json.dumps)))
def test_garbage_is_a_value_error(decode, text):
    # Whatever else it raises fails the test.
    with suppress(ValueError):
        decode(text)


GOOD_CARD = {"uuid": "u", "index": 0, "minor": 0, "model": "T4", "memory": 1, "health": "ok"}
GOOD_PLACEMENT = {
    "v": 1,
    "uid": "u",
    "node": "n",
    "containers": {"c": [{"card": "g", "mib": 1, "percent": 0}]},
    "init": {"i": [{"card": "g", "mib": 1, "percent": 0}]},
}


def _paths(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*path, index))


def _broken(value, path, replacement):
    if not path:
        return replacement
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = _broken(value[path[0]], path[1:], replacement)
    return copied


@pytest.mark.parametrize(
    "text", ["[" * 5000, '{"v":1' + "}" * 3, "\ud800", '"\\ud800"', "NaN", "1e999"]
)
@pytest.mark.parametrize("decode", [cards.decode, placement.decode])
def test_nasty_texts(decode, text):
    with pytest.raises(ValueError, match=r"."):
        decode(text)


@settings(deadline=None)
@given(st.data(), json_values())
def test_one_wrong_value_is_a_value_error_or_another_good_one(data, replacement):
    good = {"v": 1, "unit": 1024, "cards": [GOOD_CARD]}
    for whole, module in ((good, cards), (GOOD_PLACEMENT, placement)):
        path = data.draw(st.sampled_from(list(_paths(whole))))
        text = json.dumps(_broken(whole, path, replacement))
        with suppress(ValueError):
            decoded = module.decode(text)
            assert module.decode(module.encode(decoded)) == decoded


@pytest.mark.parametrize(
    "change",
    [
        {"uuid": "a\x1b[31mb"}, {"uuid": "\ud800"}, {"uuid": ""}, {"uuid": "x" * 201}, {"index": -1},
        {"index": True}, {"memory": 1.5}, {"memory": 2**31}, {"health": None},
    ],
)  # fmt: skip
def test_a_bad_card_is_refused(change):
    text = json.dumps({"v": 1, "unit": 1024, "cards": [{**GOOD_CARD, **change}]})
    with pytest.raises(ValueError, match="'"):
        cards.decode(text)


def test_two_cards_of_one_uuid_are_refused():
    with pytest.raises(ValueError, match="two cards have one uuid"):
        cards.decode(json.dumps({"v": 1, "unit": 1, "cards": [GOOD_CARD, GOOD_CARD]}))


@pytest.mark.parametrize(
    ("model", "wanted", "yes"),
    [
        ("Tesla T4", "T4", True), ("Tesla T4", "t4", True), ("NVIDIA A10", "A10", True),
        ("NVIDIA A100-SXM4-40GB", "A10", False), ("NVIDIA A100-SXM4-40GB", "A100", True),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4", True), ("NVIDIA A10", "", False),
        ("NVIDIA L4", "T4", False),
    ],
)  # fmt: skip
def test_models_are_matched_by_whole_words(model, wanted, yes):
    assert Card("u", 0, 0, model, 1).is_model(wanted) is yes
