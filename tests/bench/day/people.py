"""Who comes when and does what: the same visits for every strategy that is compared.

Times are minutes since the beginning of the month, which is a Monday.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.bench.day.parameters import Parameters, Spread


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some time at the notebook and the pause after it, in minutes."""

    active: float
    pause: float
    gpu: bool


@dataclass(frozen=True, slots=True)
class Visit:
    """One wish for a notebook.

    ``silent`` is a training run after the last stretch, 0 without one. ``lingers`` is how long the
    server then lies there, 0 where the user stops it. ``used`` is the part of the slice's memory
    that the notebook holds while it works.
    """

    user: int
    at: float
    choice: str
    stretches: tuple[Stretch, ...]
    silent: float
    lingers: float
    patience: float
    used: float


def visits(given: Parameters) -> list[Visit]:
    """All visits of the month, by time."""
    rng = np.random.default_rng(given.seed)
    names = list(given.choices)
    weights = np.array([given.choices[name] for name in names], float)
    hours = np.array(given.by_hour, float)
    found = []
    for day in range(given.days):
        mean = given.sessions_weekend if day % 7 >= 5 else given.sessions_weekday
        for user in np.flatnonzero(rng.random(given.users) < mean):
            hour = rng.choice(24, p=hours / hours.sum())
            at = day * 1440 + hour * 60 + rng.random() * 60
            choice = names[rng.choice(len(names), p=weights / weights.sum())]
            found.append(_visit(rng, given, int(user), at, choice))
    return sorted(found, key=lambda visit: visit.at)


def _visit(rng: np.random.Generator, given: Parameters, user: int, at: float, choice: str) -> Visit:
    work, stretches = _time(rng, given.work), []
    while work > 0:
        active, pause = min(work, _time(rng, given.active)), _time(rng, given.pause)
        work -= active + pause
        # The pause after the last stretch is no pause: it is the end.
        stretches.append(
            Stretch(active, pause if work > 0 else 0.0, bool(rng.random() < given.gpu_in_active))
        )
    silent = _time(rng, given.silent) if rng.random() < given.silent_chance else 0.0
    stops = rng.random() < given.stops and not silent
    lingers = 0.0 if stops else _time(rng, given.forgotten)
    used = float(rng.beta(4 * given.memory_used, 4 * (1 - given.memory_used)))
    patience = _time(rng, given.patience)
    return Visit(user, float(at), choice, tuple(stretches), silent, lingers, patience, used)


def _time(rng: np.random.Generator, spread: Spread) -> float:
    return float(rng.lognormal(np.log(spread.median), spread.sigma))
