"""Holds: a user puts off the end of a server, for a bounded time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from hub_integration.culling.memory import Clock


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: ``once`` for one hold, ``total`` for all holds of one start of a server.

    ``minute`` is how long a minute lasts.
    """

    once: float
    total: float
    minute: float = 60.0


@dataclass(frozen=True, slots=True)
class Hold:
    """What may be held now: so many minutes by one click, until ``at_most``; or why not."""

    minutes: float
    at_most: float | None
    why_not: str = ""


class HoldRefused(Exception):
    """The text is for the user. ``status`` is HTTP's: 400 for nonsense, 409 where it is enough."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def room_for(clock: Clock, usual: timedelta, now: float, limits: Limits) -> Hold:
    """What one more hold of this server may be."""
    left = limits.total - clock.held_seconds
    most = min(limits.once, max(0.0, _from(clock, now) + left - now))
    minutes = round(min(usual.total_seconds(), most) / limits.minute, 1)
    if usual <= timedelta(0):
        return Hold(0, None, "Servers of this kind cannot be kept longer.")
    if left < 1 or minutes <= 0:
        total = round(limits.total / limits.minute)
        return Hold(0, None, f"It has been kept for {total} min in all; that is the most.")
    return Hold(minutes, now + most)


def take(clock: Clock, minutes: float, usual: timedelta, now: float, limits: Limits) -> Clock:
    """The clock with a hold of ``minutes`` from now; 0 gives a hold back. Raises HoldRefused."""
    if minutes < 0 or minutes != minutes:
        raise HoldRefused("minutes must be a number from 0 up.", 400)
    if minutes == 0:
        unused = max(0.0, (clock.held_until or now) - now)
        return replace(clock, held_until=None, held_seconds=max(0.0, clock.held_seconds - unused))
    room = room_for(clock, usual, now, limits)
    if room.why_not:
        raise HoldRefused(room.why_not, 409)
    assert room.at_most is not None
    until = now + minutes * limits.minute
    if until > room.at_most + 0.5:
        most = (room.at_most - now) / limits.minute
        raise HoldRefused(f"It can be kept for {most:.0f} min from now at most.", 400)
    if clock.held_until is not None and until <= clock.held_until:
        return clock
    added = until - _from(clock, now)
    return replace(clock, held_until=until, held_seconds=clock.held_seconds + added)


def _from(clock: Clock, now: float) -> float:
    """Where a further hold begins to count: at the end of one that lasts."""
    return max(now, clock.held_until or now)
