"""A week of the cluster, kept by the dashboard, since the extender keeps one day in memory.

Minutes become buckets of ten; a week is about a thousand of them, and a small file.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path

from hub_integration.dashboard.readings import Minute

BUCKET = 600  # seconds
WEEK = 7 * 24 * 3600
DAY = 24 * 3600
_KEPT = WEEK // BUCKET


class Trends:
    """Buckets by their start. ``path`` None keeps them in memory alone."""

    def __init__(self, path: Path | None, log: logging.Logger) -> None:
        self._path = path
        self._log = log
        self._buckets: dict[int, Minute] = {}
        self._said = ""

    def load(self) -> None:
        """What an earlier dashboard kept; a file that cannot be read is left behind."""
        if self._path is None:
            return
        try:
            rows = json.loads(self._path.read_text("utf-8"))
            read = [Minute(float(a), int(c), int(h), u, int(w)) for a, c, h, u, w in rows]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError) as error:
            self._say(f"{self._path} cannot be read ({error}): the week's plot starts anew")
            return
        self._buckets = {int(minute.at) // BUCKET: minute for minute in read}

    def add(self, minutes: Iterable[Minute]) -> bool:
        """Merge what the extender tells; True if a bucket is complete that was not before."""
        groups: dict[int, list[Minute]] = {}
        for minute in minutes:
            groups.setdefault(int(minute.at) // BUCKET, []).append(minute)
        newest = max(groups, default=0)
        before = len(self._buckets)
        for start, group in groups.items():
            # The newest bucket is not over, and the first may have lost its beginning: a fuller
            # one that is known already stays.
            if start == newest or start not in self._buckets:
                self._buckets[start] = _mean(group, start * BUCKET)
        for start in sorted(self._buckets)[:-_KEPT]:
            del self._buckets[start]
        return len(self._buckets) != before

    def save(self) -> None:
        """Write the file in one step. A disk that is full costs the week's plot alone."""
        if self._path is None:
            return
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            fresh.write_text(json.dumps([astuple(m) for m in self.week()]), "utf-8")
            os.replace(fresh, self._path)
        except OSError as error:
            self._say(f"{self._path} cannot be written ({error.strerror}): see history_file")

    def week(self) -> list[Minute]:
        """Oldest first."""
        return [self._buckets[start] for start in sorted(self._buckets)]

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._log.warning("%s", text)


def _mean(minutes: list[Minute], at: float) -> Minute:
    count = len(minutes)
    used = [m.used for m in minutes if m.used is not None]
    return Minute(
        at=at,
        capacity=sum(m.capacity for m in minutes) // count,
        allocated=sum(m.allocated for m in minutes) // count,
        used=sum(used) // len(used) if used else None,
        waiting=max(m.waiting for m in minutes),
    )
