"""GiB-hours add up: by day, by group, with and without the quota ledger, across restarts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_integration.accounting.book import Book
from hub_integration.accounting.metering import Hours, Key, Meter, days
from hub_integration.accounting.report import as_csv, given_of_stays, rows, window
from hub_integration.quota.ledger import Holding, Stay
from tests.unit.culling.scenes import at, held, use

NOON = at(240).timestamp()
DAY = "2026-03-02"
ANN = Key(DAY, "ann", "jupyter", "T4")


def test_busy_idle_and_unknown_add_up_to_what_was_given() -> None:
    meter = Meter()
    slices = [held("ann", 6)]
    meter.look(slices, {}, NOON)
    meter.look(slices, {"uid-ann": [use("ann", 240.5, mib=3072)]}, NOON + 60)
    meter.look(slices, {"uid-ann": [use("ann", 240.5, mib=3072)]}, NOON + 180)
    meter.look(slices, {}, NOON + 240)
    meter.look([], {}, NOON + 300)
    (hours,) = meter.take().values()
    assert hours.busy == pytest.approx(6 / 60)
    assert hours.idle == pytest.approx(6 * 2 / 60)
    assert hours.unknown == pytest.approx(6 / 60)
    assert hours.used == pytest.approx(3 * 3 / 60)
    assert hours.given == pytest.approx(6 * 4 / 60)
    assert meter.take() == {}


def test_a_long_silence_is_unknown() -> None:
    meter = Meter()
    meter.look([held("ann")], {}, NOON)
    meter.look([held("ann")], {"uid-ann": [use("ann", 240)]}, NOON + 3600)
    assert meter.take()[ANN].unknown == pytest.approx(3.0)


@given(st.integers(0, 10**6), st.integers(0, 4 * 86400))
def test_days_split_time_without_losing_any(start: int, seconds: int) -> None:
    begin = NOON + start
    parts = list(days(begin, begin + seconds))
    assert sum(hours for _, hours in parts) == pytest.approx(seconds / 3600, abs=1e-6)
    assert [day for day, _ in parts] == sorted({day for day, _ in parts})


def test_the_book_adds_and_keeps_groups_of_the_day() -> None:
    book = Book("sqlite://")
    groups = {"ann": frozenset({"staff", "lab"})}
    book.add({ANN: Hours(1, 2, 3, 4)}, groups)
    book.add({ANN: Hours(1, 1, 1, 1)}, groups)
    assert book.read(DAY, DAY) == {ANN: Hours(2, 3, 4, 5)}
    assert book.groups(DAY, DAY) == {(DAY, "ann"): {"staff", "lab"}}
    book.forget_before("2026-03-03")
    assert book.read(DAY, DAY) == {}


def stay(user: str, start: float, end: float, gib: int = 3) -> Stay:
    one = Holding("uid", "GPU-0", user, "jupyter", "pod", "t4-1", "T4", gib * 1024, 0)
    return Stay(one, start, None, end)


def test_the_ledger_says_what_was_given() -> None:
    given_ = given_of_stays([stay("ann", NOON - 7200, NOON + 7200)], NOON - 3600, NOON + 3600)
    assert given_ == {ANN: pytest.approx(6.0)}
    measured = {ANN: Hours(used=1.5, busy=2, idle=1, unknown=0)}
    (row,) = rows(measured, given_, {}, ["user"])
    assert row == {
        "user": "ann", "given": 6.0, "used": 1.5, "busy": 2.0, "idle": 1.0, "unknown": 3.0,
    }  # fmt: skip
    assert rows({}, given_, {}, ["model"], user="bob") == []


def test_by_group_everybody_counts_in_each_of_theirs() -> None:
    bob = Key(DAY, "bob", "jupyter", "A10")
    measured = {ANN: Hours(busy=1), bob: Hours(busy=2)}
    groups = {(DAY, "ann"): {"staff", "lab"}}
    table = rows(measured, None, groups, ["group"])
    assert [(row["group"], row["given"]) for row in table] == [("", 2), ("lab", 1), ("staff", 1)]
    with pytest.raises(ValueError, match="there is no 'colour'"):
        rows(measured, None, groups, ["colour"])


def test_csv_holds_no_formulas() -> None:
    evil = Key(DAY, "=cmd()", "jupyter", "T4")
    text = as_csv(rows({evil: Hours(busy=1)}, None, {}, ["user", "model"]), ["user", "model"])
    head, line = text.splitlines()
    assert head == (
        "user,model,given_gib_hours,used_gib_hours,busy_gib_hours,idle_gib_hours,unknown_gib_hours"
    )
    assert line == "'=cmd(),T4,1.0,0.0,1.0,0.0,0.0"


def test_windows() -> None:
    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    first, last, start, end = window("", "", now)
    assert (first, last) == ("2026-02-01", DAY)
    assert end - start == 30 * 86400
    for bad in (("2026-03-03", DAY), ("soon", "")):
        with pytest.raises(ValueError, match="'from'"):
            window(*bad, now)
