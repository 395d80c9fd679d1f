"""The ledger: what was held is charged once, whatever restarts and whoever looks."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub_integration.quota.ledger import Grant, Holding, Ledger, LedgerError

ANN = Holding("uid-1", "GPU-1", "ann", "jupyter", "jupyter-ann", "t4-1", "Tesla T4", 4096, 0)
BOB = replace(ANN, uid="uid-2", user="bob", pod="jupyter-bob", mib=8192)
HOUR = 3600.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.sqlite"


def test_memory_times_hours(url: str) -> None:
    ledger = Ledger(url)
    ledger.look([ANN], 0)
    ledger.look([ANN, BOB], HOUR)
    ledger.look([BOB], 2 * HOUR)
    assert ledger.gib_hours(0, 10 * HOUR) == {"ann": 4.0, "bob": 8.0}
    assert ledger.gib_hours(HOUR / 2, HOUR) == {"ann": 2.0}
    assert ledger.gib_hours(0, 10 * HOUR, users=["bob"]) == {"bob": 8.0}
    assert ledger.gib_hours(0, 10 * HOUR, namespaces=["elsewhere"]) == {}


def test_a_restart_forgets_nothing_and_charges_nothing_twice(url: str) -> None:
    first = Ledger(url)
    first.look([ANN, BOB], 0)
    first.look([ANN, BOB], HOUR)
    first.close()
    second = Ledger(url)  # the Hub was away for two hours; meanwhile bob has left
    second.look([ANN], 3 * HOUR)
    assert second.gib_hours(0, 10 * HOUR) == {"ann": 12.0, "bob": 8.0}
    assert [stay.ended for stay in second.stays(0, 10 * HOUR)] == [None, HOUR]
    assert second.looked() == 3 * HOUR


def test_a_pod_on_two_cards_holds_both(url: str) -> None:
    ledger = Ledger(url)
    for now in (0, HOUR):
        ledger.look([ANN, replace(ANN, card="GPU-2")], now)
    assert ledger.gib_hours(0, HOUR) == {"ann": 8.0}


def test_a_slice_that_changes_its_size_is_charged_for_each(url: str) -> None:
    ledger = Ledger(url)
    ledger.look([ANN], 0)
    ledger.look([ANN], HOUR)
    ledger.look([replace(ANN, mib=1024)], HOUR)
    ledger.look([replace(ANN, mib=1024)], 2 * HOUR)
    assert ledger.gib_hours(0, 2 * HOUR) == {"ann": 5.0}


def test_a_clock_that_goes_back_is_waited_for(url: str) -> None:
    ledger = Ledger(url)
    ledger.look([ANN], HOUR)
    ledger.look([], 0)
    (stay,) = ledger.stays(0, 2 * HOUR)
    assert (stay.started, stay.ended) == (HOUR, HOUR)


def test_grants(url: str) -> None:
    ledger = Ledger(url)
    ledger.grant(Grant("ann", 10.0, 20.0, "root", "deadline"))
    ledger.grant(Grant("bob", 20.0, -5.0, "root", ""))
    assert ledger.grants(0, 15) == [Grant("ann", 10.0, 20.0, "root", "deadline")]
    assert [grant.user for grant in ledger.grants(0, 30, ["bob"])] == ["bob"]


def test_what_is_old_is_forgotten(url: str) -> None:
    ledger = Ledger(url)
    ledger.look([ANN, BOB], 0)
    ledger.look([ANN], HOUR)
    ledger.grant(Grant("ann", 1.0, 1.0, "", ""))
    assert ledger.forget_before(2.0) == 2
    assert [stay.holding.user for stay in ledger.stays(0, 2 * HOUR)] == ["ann"]
    assert [stay.holding.user for stay in ledger.releases(0, 2 * HOUR)] == []


def test_what_came_back(url: str) -> None:
    ledger = Ledger(url)
    ledger.look([ANN, BOB], 0)
    ledger.look([ANN, BOB], HOUR)
    ledger.look([ANN], HOUR + 10)
    assert [stay.holding.user for stay in ledger.releases(0, 2 * HOUR)] == ["bob"]


def test_a_reader_is_not_kept_waiting(url: str, tmp_path: Path) -> None:
    """The dashboard reads while the Hub writes."""
    ledger = Ledger(url)
    ledger.look([ANN], 0)
    other = sqlite3.connect(tmp_path / "ledger.sqlite", timeout=0)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM gpushare_slices").fetchone() == (1,)
    ledger.look([ANN, BOB], HOUR)
    other.close()
    assert ledger.gib_hours(0, HOUR)["ann"] == 4.0


@pytest.mark.parametrize(
    "bad", ["nonsense", "sqlite:////no/such/folder/x", "unknown://x", "postgresql://x/y"]
)
def test_a_bad_database_names_the_setting(bad: str) -> None:
    with pytest.raises(LedgerError, match="ledger_url"):
        Ledger(bad)


def test_after_an_error_the_books_are_read_again(url: str, tmp_path: Path) -> None:
    ledger = Ledger(url)
    ledger.look([ANN], 0)
    broken = sqlite3.connect(tmp_path / "ledger.sqlite")
    broken.execute("ALTER TABLE gpushare_looks RENAME TO away")
    broken.commit()
    with pytest.raises(LedgerError):
        ledger.look([ANN, BOB], HOUR)
    broken.execute("ALTER TABLE away RENAME TO gpushare_looks")
    broken.commit()
    broken.close()
    ledger.look([ANN, BOB], HOUR)
    ledger.look([ANN, BOB], 2 * HOUR)
    assert ledger.gib_hours(0, 2 * HOUR) == {"ann": 8.0, "bob": 8.0}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abcd")), st.integers(1, 5000), st.booleans()),
        max_size=12,
    )
)
def test_charges_are_what_was_seen_from_look_to_look(
    looks: list[tuple[set[str], int, bool]],
) -> None:
    """Against the plain sum: a slice seen at two looks in a row was held in between."""
    ledger, now, before = Ledger("sqlite://"), 0.0, set[str]()
    expected = dict.fromkeys("abcd", 0.0)
    for present, seconds, restarts in looks:
        ledger.look([replace(ANN, uid=u, user=u, mib=1024) for u in present], now + seconds)
        for user in present & before:
            expected[user] += seconds / 3600
        if restarts:
            ledger._open = None  # as a new process would find it
        now, before = now + seconds, present
    found = ledger.gib_hours(0, now + 1)
    for user, hours in expected.items():
        assert found.get(user, 0.0) == pytest.approx(hours)
