"""The rules of quotas: layers, what is left, and the sentences of refusals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hub_integration.quota.rules import Account, Limits, Rules, objection
from hub_integration.quota.windows import Window, window

RULES = Rules.model_validate(
    {
        "everybody": {"slices": 2, "memory": "14GiB", "gib_hours_per_week": 40},
        "groups": {
            "ml": {
                "each": {"slices": 3, "gib_hours_per_week": 60},
                "together": {"memory": "45GiB"},
            },
            "phd": {"each": {"slices": 1, "gib_hours_per_week": 90}},
            "guests": {"each": {"slices": 0}},
        },
        "users": {"prof": {"slices": "unlimited", "gib_hours_per_week": "unlimited"}},
    }
)


def test_the_innermost_layer_wins_and_the_most_generous_group() -> None:
    assert RULES.of_user("ann", []).most_slices == 2
    assert RULES.of_user("ann", ["ml"]).most_slices == 3
    both = RULES.of_user("ann", ["ml", "phd"])
    assert (both.most_slices, both.per(Window.WEEK), both.most_mib) == (3, 90, 14 * 1024)
    prof = RULES.of_user("prof", ["ml"])
    assert (prof.most_slices, prof.per(Window.WEEK)) == (None, None)
    assert prof.most_mib == 14 * 1024  # of which the line of its own says nothing
    assert RULES.of_user("x", ["guests"]).most_slices == 0
    assert list(RULES.of_groups(["ml", "phd", "none"])) == ["ml"]
    assert not Rules().bound_anything
    assert RULES.bound_anything


@pytest.mark.parametrize(
    "bad",
    [
        {"everybody": {"slice": 2}},
        {"everybody": {"memory": 14}},
        {"everybody": {"slices": -1}},
        {"everybody": {"gib_hours_per_day": -1}},
        {"groups": {"x": {"slices": 1}}},
    ],
)
def test_nonsense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Rules.model_validate(bad)


def account(**more: Any) -> Account:
    return Account(RULES.of_user("ann", []), **more)


@pytest.mark.parametrize(
    ("standing", "mib", "says"),
    [
        ({}, 7168, ""),
        ({"slices": 1, "mib": 7168}, 7168, ""),
        (
            {"slices": 2, "mib": 2048},
            1024,
            "all 2 slices in use that you may have at once: stop one",
        ),
        (
            {"slices": 1, "mib": 7168},
            8192,
            "7 of 14 GiB of GPU memory in use, and this would be 8 GiB",
        ),
        ({"slices": 1, "mib": 7168}, 8192, "choose 7 GiB or less"),
        ({"used": {Window.WEEK: 40.0}}, 1024, "used up the 40 GiB-hours of this week"),
        ({"used": {Window.WEEK: 39.9}}, 1024, ""),
        (
            {"used": {Window.WEEK: 50.0}, "begins_anew": {Window.WEEK: "on Monday"}},
            0,
            "The count begins anew on Monday.",
        ),
    ],
)
def test_objections(standing: dict[str, Any], mib: int, says: str) -> None:
    told = objection(account(**standing), mib)
    assert says in told
    assert bool(told) == bool(says)


def test_a_group_is_told_as_a_group() -> None:
    together = Account(RULES.of_groups(["ml"])["ml"], 5, 40 * 1024, group="ml")
    assert objection(together, 7168).startswith("Your group ml has 40 of 45 GiB")
    assert together.words == "40 of 45 GiB in use"


@given(
    used=st.floats(0, 200),
    slices=st.integers(0, 5),
    mib=st.integers(0, 40 * 1024),
    want=st.integers(0, 24 * 1024),
)
def test_what_is_admitted_stays_within_all_bounds(
    used: float, slices: int, mib: int, want: int
) -> None:
    now = account(slices=slices, mib=mib, used={Window.WEEK: used})
    fits = slices + 1 <= 2 and mib + want <= 14 * 1024 and used < 40
    assert (objection(now, want) == "") == fits


def test_what_is_left_is_never_rounded_up() -> None:
    assert account(used={Window.WEEK: 39.96}).words.endswith("0 of 40 GiB-hours left this week")
    assert account(used={Window.WEEK: 37.0}).words.endswith("3 of 40 GiB-hours left this week")
    assert account(used={Window.WEEK: 12.01}).words.endswith("27 of 40 GiB-hours left this week")
    assert Account(Limits()).words == ""


def test_windows_are_those_of_the_calendar() -> None:
    zone = ZoneInfo("Europe/Berlin")
    now = datetime(2026, 3, 29, 12, tzinfo=zone).timestamp()  # the clocks go forward that night
    assert [
        tuple(
            datetime.fromtimestamp(t, zone).strftime("%a %d.%m. %H:%M")
            for t in window(kind, now, zone)
        )
        for kind in Window
    ] == [
        ("Sun 29.03. 00:00", "Mon 30.03. 00:00"),
        ("Mon 23.03. 00:00", "Mon 30.03. 00:00"),
        ("Sun 01.03. 00:00", "Wed 01.04. 00:00"),
    ]
    start, end = window(Window.DAY, now, zone)
    assert end - start == 23 * 3600


@given(st.floats(0, 4e9), st.sampled_from(list(Window)))
def test_now_is_in_its_window(now: float, kind: Window) -> None:
    start, end = window(kind, now, UTC)
    assert start <= now < end
