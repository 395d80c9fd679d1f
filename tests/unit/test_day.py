"""The simulated month keeps its books: nobody is lost, no card holds more than it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.day.__main__ import scaled
from tests.bench.day.month import Month
from tests.bench.day.parameters import read
from tests.bench.day.people import visits
from tests.bench.day.strategies import STRATEGIES, Strategy

GIVEN = replace(scaled(read(), 6), days=2, users=60)
VISITS = visits(GIVEN)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_nobody_is_lost_and_no_card_is_overbooked(strategy: Strategy) -> None:
    month = Month(GIVEN, VISITS, strategy)
    outcome = month.run()
    assert outcome.wished >= len(VISITS) > 20
    assert outcome.served + outcome.abandoned + len(month.line) == outcome.wished
    assert len(outcome.waits) == outcome.wished
    assert not list(month.house.ledger.overbooked())
    assert not month.house.ledger.slices  # everything that was taken has come back
    assert 0 < outcome.used <= outcome.held <= outcome.offered


def test_the_same_visits_give_the_same_month() -> None:
    first, second = (Month(GIVEN, VISITS, STRATEGIES[-1]).run() for _ in range(2))
    assert first == second


def test_a_culler_that_sees_the_gpu_ends_no_running_computation() -> None:
    blind = Month(GIVEN, VISITS, next(s for s in STRATEGIES if "Jupyter" in s.name)).run()
    seeing = Month(GIVEN, VISITS, STRATEGIES[-2]).run()
    assert blind.runs_lost > 0
    assert seeing.runs_lost == 0
