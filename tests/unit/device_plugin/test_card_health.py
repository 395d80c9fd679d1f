from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.card_health import (
    PROGRAM_ERRORS,
    Health,
    Rules,
    after_probe,
    after_xid,
    parse_xids,
)
from gpushare.cards import HEALTHY

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RULES = Rules(recover_after=3)
WELL = Health()


def probed(health: Health, *problems: str, rules: Rules = RULES) -> Health:
    for i, problem in enumerate(problems):
        health = after_probe(health, problem, NOW + timedelta(seconds=i), rules)
    return health


def test_an_xid_is_told_with_its_meaning_and_time() -> None:
    sick = after_xid(WELL, 79, NOW, RULES)
    assert sick.text() == "XID 79 (fell off the bus) at 2026-01-02T03:04:05Z"
    assert not sick.usable


@pytest.mark.parametrize("xid", sorted(PROGRAM_ERRORS))
def test_errors_of_programs_say_nothing_about_the_card(xid: int) -> None:
    health = after_xid(WELL, xid, NOW, RULES)
    assert health.text() == HEALTHY
    assert health.ignored_xids == 1


def test_the_list_of_ignored_ones_can_be_changed_both_ways() -> None:
    assert parse_xids([63], [31]) == (PROGRAM_ERRORS | {63}) - {31}
    assert parse_xids([63], [63]) == PROGRAM_ERRORS


def test_clean_probes_in_a_row_end_the_verdict() -> None:
    sick = after_xid(WELL, 48, NOW, RULES)
    assert not probed(sick, "", "").usable
    assert probed(sick, "", "", "").text() == HEALTHY
    assert not probed(sick, "", "", "lost", "", "").usable


def test_a_new_xid_starts_the_count_again() -> None:
    sick = probed(after_xid(WELL, 48, NOW, RULES), "", "")
    assert not probed(after_xid(sick, 48, NOW, RULES), "", "").usable


def test_without_recovery_only_a_restart_ends_it() -> None:
    never = Rules(recover_after=0)
    assert not probed(after_xid(WELL, 48, NOW, never), *[""] * 1000, rules=never).usable


def test_a_problem_that_a_probe_sees_goes_when_the_probe_no_longer_does() -> None:
    sick = probed(WELL, "lost", "lost")
    assert sick.text() == "lost (since 2026-01-02T03:04:05Z)"
    assert probed(sick, "").text() == HEALTHY


def test_a_cordon_keeps_out_new_ones_only() -> None:
    cordoned = Health(cordoned=True)
    assert cordoned.text() == "cordoned"
    assert cordoned.usable


steps = st.lists(
    st.one_of(
        st.tuples(st.just("xid"), st.integers(1, 130)),
        st.tuples(st.just("probe"), st.sampled_from(["", "lost", "ECC"])),
    )
)


@given(steps, st.integers(0, 5))
def test_a_card_is_usable_exactly_when_nothing_speaks_against_it(
    history: list[tuple[str, object]], recover_after: int
) -> None:
    """Against a plain model: the last counted XID, and the probes since."""
    rules = Rules(recover_after=recover_after)
    health, xid, clean, problem = Health(), 0, 0, ""
    for kind, value in history:
        if kind == "xid":
            health = after_xid(health, int(str(value)), NOW, rules)
            if value not in PROGRAM_ERRORS:
                xid, clean = int(str(value)), 0
        else:
            problem = str(value)
            health = after_probe(health, problem, NOW, rules)
            clean = 0 if problem else clean + 1
            if recover_after and clean >= recover_after:
                xid = 0
        assert health.usable == (not xid and not problem)
        assert (health.text() == HEALTHY) == health.usable
        assert 0 < len(health.text()) <= 200
        assert health.text().isprintable()
