"""``python -m tests.bench day [--cards] [--sensitivity]``: the month under every strategy."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.bench.day.month import Month, Outcome
from tests.bench.day.parameters import Parameters, read
from tests.bench.day.people import Visit, visits
from tests.bench.day.strategies import STRATEGIES, Strategy
from tests.bench.results import Figure, percentile, publish

HEADER = (
    "strategy", "served", "abandoned", "wait p50", "p95", "handed out", "in use", "interrupted",
    "runs lost", "crowded",
)  # fmt: skip


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench day", description=__doc__)
    parser.add_argument(
        "--cards", action="store_true", help="also: how many cards each strategy needs"
    )
    parser.add_argument(
        "--sensitivity", action="store_true", help="also: with other assumptions, one at a time"
    )
    options = parser.parse_args(list(arguments))
    given = read()
    wished = visits(given)
    print(f"{given.users} users, {len(wished)} visits in {given.days} days, {given.cards} cards")
    _print(HEADER)
    figures: list[Figure] = []
    began = time.monotonic()
    for strategy in STRATEGIES:
        outcome = Month(given, wished, strategy).run()
        _print(_row(strategy.name, outcome))
        figures += _figures(strategy.name, outcome)
    print(f"{time.monotonic() - began:.0f} s for all of it")
    if options.cards:
        figures += list(_cards_needed(given, wished))
    if options.sensitivity:
        _sensitivity(given)
    publish("day", figures)
    return 0


def _row(name: str, outcome: Outcome) -> tuple[str, ...]:
    return (
        name,
        f"{100 * outcome.served / outcome.wished:.1f} %",
        f"{100 * outcome.abandoned / outcome.wished:.1f} %",
        f"{statistics.median(outcome.waits):.1f} min",
        f"{percentile(outcome.waits, 95):.1f} min",
        f"{100 * outcome.held / outcome.offered:.0f} %",
        f"{100 * outcome.used / outcome.offered:.0f} %",
        f"{outcome.interrupted}",
        f"{outcome.runs_lost}",
        f"{100 * outcome.crowded / outcome.card_minutes:.1f} %",
    )


def _figures(name: str, outcome: Outcome) -> Iterator[Figure]:
    size = f"{outcome.wished} visits"
    yield Figure(f"{name}: served", size, 100 * outcome.served / outcome.wished, "%")
    yield Figure(f"{name}: abandoned", size, 100 * outcome.abandoned / outcome.wished, "%")
    yield Figure(f"{name}: wait p95", size, percentile(outcome.waits, 95), "min")
    yield Figure(f"{name}: memory handed out", size, 100 * outcome.held / outcome.offered, "%")
    yield Figure(f"{name}: memory in use", size, 100 * outcome.used / outcome.offered, "%")


# Whom a platform team would call well served.
_P95, _GIVEN_UP = 5.0, 0.01


def _cards_needed(given: Parameters, wished: Sequence[Visit]) -> Iterator[Figure]:
    """The smallest pool, in the same mix of models, that serves the same people well."""
    print()
    print(f"cards for a wait of at most {_P95:.0f} min at p95 and at most 1 % abandoned:")
    most = max(4 * given.cards, given.users)
    for strategy in STRATEGIES:
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            if _well_served(scaled(given, middle), wished, strategy):
                high = middle
            else:
                low = middle + 1
        print(f"  {strategy.name:40} {low}{' or more' if low == most else ''}", flush=True)
        yield Figure(f"{strategy.name}: cards", f"{len(wished)} visits", low, "cards")


def scaled(given: Parameters, cards: int) -> Parameters:
    """The same mix of models with about ``cards`` cards in all, at least one of each."""
    pool = tuple(
        replace(kind, cards=max(1, round(kind.cards * cards / given.cards))) for kind in given.pool
    )
    return replace(given, pool=pool)


def _well_served(given: Parameters, wished: Sequence[Visit], strategy: Strategy) -> bool:
    outcome = Month(given, wished, strategy).run()
    given_up = outcome.abandoned <= _GIVEN_UP * outcome.wished
    return given_up and percentile(outcome.waits, 95) <= _P95


def _sensitivity(given: Parameters) -> None:
    """The best strategy and the one without culling, with one assumption changed at a time."""
    none, best = STRATEGIES[-4], STRATEGIES[-1]
    changes: dict[str, dict[str, Any]] = {
        "as assumed": {},
        "half the sessions": {"sessions_weekday": given.sessions_weekday / 2},
        "twice the sessions": {"sessions_weekday": given.sessions_weekday * 2},
        "everybody stops the server": {"stops": 1.0},
        "nobody stops the server": {"stops": 0.0},
        "pauses twice as long": {"pause": replace(given.pause, median=2 * given.pause.median)},
        "patience of 5 min": {"patience": replace(given.patience, median=5.0)},
        "silent runs three times as often": {"silent_chance": 3 * given.silent_chance},
        "nobody reacts to warnings": {"reacts": 0.0},
    }
    print()
    _print(("assumption", "abandoned, no culling", "p95", "abandoned, all of ours", "p95"))
    for name, change in changes.items():
        other = replace(given, **change)
        wished = visits(other)
        cells = []
        for strategy in (none, best):
            outcome = Month(other, wished, strategy).run()
            cells += [
                f"{100 * outcome.abandoned / outcome.wished:.1f} %",
                f"{percentile(outcome.waits, 95):.1f} min",
            ]
        _print((name, *cells))


def _print(cells: Sequence[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)
    if cells is HEADER or cells[0] == "assumption":
        print("|" + "---|" * len(cells), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
