"""The times over which GiB-hours are counted: calendar days, weeks and months."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from enum import StrEnum


class Window(StrEnum):
    """A span of the calendar. Weeks begin on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def words(self) -> str:
        return "today" if self is Window.DAY else f"this {self.value}"


def window(kind: Window, now: float, zone: tzinfo) -> tuple[float, float]:
    """Begin and end of the window that ``now`` lies in, in seconds since 1970.

    The day that a clock change makes 23 or 25 hours long is one day all the same.
    """
    day = datetime.fromtimestamp(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if kind is Window.DAY:
        end = day + timedelta(days=1)
    elif kind is Window.WEEK:
        day -= timedelta(days=day.weekday())
        end = day + timedelta(days=7)
    else:
        day = day.replace(day=1)
        end = (day + timedelta(days=32)).replace(day=1)
    return day.timestamp(), end.timestamp()
