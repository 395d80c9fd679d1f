"""What a pod may change, and what it may not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.rules import Reach, Rules, for_pod

NODE = Rules(grace=30, allowance_mib=300, reach=Reach.END, evict_after=3)


def test_a_pod_can_be_held_more_strictly() -> None:
    text = json.dumps({"reach": "evict", "grace": 10, "allowanceMib": 0, "evictAfter": 1})
    rules, problem = for_pod(NODE, NODE, text)
    assert problem == ""
    assert (rules.reach, rules.grace, rules.allowance(1), rules.evict_after) == (
        Reach.EVICT,
        10,
        0,
        1,
    )


def test_a_profile_can_be_more_lenient_up_to_the_bounds() -> None:
    bounds = Rules(grace=120, allowance_mib=1000, reach=Reach.REPORT)
    rules, _ = for_pod(NODE, bounds, '{"grace": 90, "allowanceMib": 800, "reach": "report"}')
    assert (rules.grace, rules.allowance(1), rules.reach) == (90, 800, Reach.REPORT)
    rules, _ = for_pod(NODE, bounds, '{"grace": 9000, "allowanceMib": 8000}')
    assert (rules.grace, rules.allowance(1)) == (120, 1000)


def test_nobody_can_be_more_lenient_than_the_bounds() -> None:
    rules, _ = for_pod(NODE, NODE, '{"grace": 9000, "allowanceMib": 90000, "reach": "report"}')
    assert rules == NODE


def test_a_short_grace_shortens_the_urgent_one() -> None:
    rules, problem = for_pod(NODE, NODE, '{"grace": 2}')
    assert (rules.grace, rules.urgent_grace, problem) == (2, 2, "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[]", "not an object"),
        ('{"grase": 5}', "unknown key 'grase'"),
        ('{"reach": "kill"}', "report, end, evict"),
        ('{"grace": "long"}', "not a number"),
        ('{"grace": true}', "not a number"),
        ('{"grace": -1}', "not a number"),
        ('{"grace": 0}', "grace must be"),
        ('{"evictAfter": 0}', "evict_after must be"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_cannot_be_read_changes_nothing_and_is_said(text: str, says: str) -> None:
    rules, problem = for_pod(NODE, NODE, text)
    assert rules == NODE
    assert says in problem


values = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(), st.sampled_from(Reach), st.none()
)
keys = st.one_of(st.sampled_from(["reach", "grace", "allowanceMib", "evictAfter"]), st.text())


@given(st.dictionaries(keys, values))
def test_whatever_is_written_the_bounds_hold(data: dict) -> None:
    rules, _ = for_pod(NODE, NODE, json.dumps(data))
    order = list(Reach)
    assert order.index(rules.reach) >= order.index(NODE.reach)
    assert 0 < rules.grace <= NODE.grace
    assert rules.evict_after <= NODE.evict_after
    for processes in range(5):
        assert rules.allowance(processes) <= NODE.allowance(processes)


@pytest.mark.parametrize(
    "wrong",
    [{"grace": 0}, {"grace": 1e9}, {"allowance_mib": -1}, {"evict_after": 0}, {"urgent_grace": 99}],
)
def test_senseless_rules_are_refused_with_their_name(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        Rules(**wrong)
