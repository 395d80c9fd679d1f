"""Plots as SVG, drawn here: no library in the browser, and the same in every theme.

Colours are classes of the style sheet. Each plot says in words what it shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hub_integration.dashboard.readings import Minute
from hub_integration.dashboard.wording import share

WIDTH, HEIGHT = 600.0, 140.0
_MOST_POINTS = 300


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on the time axis, in per cent of the width."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Paths in a box of WIDTH × HEIGHT; the height is all memory of the cluster."""

    title: str
    words: str
    given: str
    used: str
    waiting: tuple[tuple[float, float, str], ...]  # x, width, title
    ticks: tuple[Tick, ...]


def plot(
    minutes: Iterable[Minute], title: str, now: float, span: float, zone_offset: int = 0
) -> Plot | None:
    """The last ``span`` seconds; None where there is nothing to draw."""
    wanted = [m for m in minutes if now - span <= m.at <= now and m.capacity > 0]
    if len(wanted) < 2:
        return None
    points = _thin(wanted)
    given = [(_x(m.at, now, span), m.allocated / m.capacity) for m in points]
    used = [(_x(m.at, now, span), m.used / m.capacity) for m in points if m.used is not None]
    return Plot(
        title=title,
        words=_words(wanted),
        given=_area(given),
        used=_area(used) if len(used) > 1 else "",
        waiting=tuple(_waits(points, now, span)),
        ticks=tuple(_ticks(now, span, zone_offset)),
    )


def _x(at: float, now: float, span: float) -> float:
    return WIDTH * (1 - (now - at) / span)


def _area(points: Sequence[tuple[float, float]]) -> str:
    line = "".join(f"L{x:.1f} {HEIGHT * (1 - min(1.0, y)):.1f}" for x, y in points)
    return f"M{points[0][0]:.1f} {HEIGHT:.0f}{line}L{points[-1][0]:.1f} {HEIGHT:.0f}Z"


def _thin(minutes: list[Minute]) -> list[Minute]:
    step = -(-len(minutes) // _MOST_POINTS)
    thinned = minutes[::step]
    return thinned if thinned[-1] is minutes[-1] else [*thinned, minutes[-1]]


def _words(minutes: list[Minute]) -> str:
    given = [share(m.allocated, m.capacity) for m in minutes]
    used = [share(m.used, m.capacity) for m in minutes if m.used is not None]
    words = f"{round(sum(given) / len(given))} % given on average, {max(given)} % at most"
    if used:
        words += f"; {round(sum(used) / len(used))} % really used, {max(used)} % at most"
    most = max(m.waiting for m in minutes)
    return words + (f"; up to {most} waiting" if most else "; nobody waited")


def _waits(points: Sequence[Minute], now: float, span: float) -> Iterable[tuple[float, float, str]]:
    for first, second in pairwise(points):
        if first.waiting:
            x = _x(first.at, now, span)
            yield x, max(1.0, _x(second.at, now, span) - x), f"{first.waiting} waiting"


def _ticks(now: float, span: float, zone_offset: int) -> Iterable[Tick]:
    day = 86400
    step, form = (6 * 3600, "%H:%M") if span <= day else (day, "%a")
    at = (now + zone_offset) // step * step - zone_offset
    while at > now - span:
        label = time.strftime(form, time.gmtime(at + zone_offset))
        x = 100 * (1 - (now - at) / span)
        if 3 <= x <= 97:
            yield Tick(x, label)
        at -= step
