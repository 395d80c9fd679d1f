"""From looks at the cluster to GiB-hours, by day. Pure.

Between two looks at a slice, its hours are *busy* if one of its kernels ran meanwhile, *idle* if
the node measured that none did, and *unknown* where nobody measured. *Used* is the memory that it
really held, whatever it computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpushare.usage import SliceUse
from hub_integration.culling.observed import Held

# Between looks further apart than this, in seconds, nothing is known of the use.
LONGEST = 600.0
# What a node tells is a little older than the look, in seconds.
_LAG = 10.0


@dataclass(frozen=True, slots=True)
class Key:
    """Whose hours, of which cards. ``day`` is '2026-03-01', in UTC."""

    day: str
    user: str
    namespace: str
    model: str


@dataclass(slots=True)
class Hours:
    """GiB-hours."""

    used: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    unknown: float = 0.0

    def add(self, other: Hours) -> None:
        self.used += other.used
        self.busy += other.busy
        self.idle += other.idle
        self.unknown += other.unknown

    @property
    def given(self) -> float:
        return self.busy + self.idle + self.unknown


class Meter:
    """What was measured since ``take`` was last called."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], float] = {}
        self._hours: dict[Key, Hours] = {}

    def look(
        self, held: Iterable[Held], uses: Mapping[str, Sequence[SliceUse]], now: float
    ) -> None:
        """These slices are held now, and this is what they use."""
        seen: dict[tuple[str, str], float] = {}
        for one in held:
            key = (one.uid, one.card)
            seen[key] = now
            since = self._seen.get(key)
            if since is not None and since < now:
                use = next((u for u in uses.get(one.uid, ()) if u.card == one.card), None)
                self._count(one, use, since, now)
        self._seen = seen

    def take(self) -> dict[Key, Hours]:
        """The hours since the last call."""
        hours, self._hours = self._hours, {}
        return hours

    def put_back(self, hours: Mapping[Key, Hours]) -> None:
        """They could not be written."""
        for key, more in hours.items():
            self._hours.setdefault(key, Hours()).add(more)

    def _count(self, held: Held, use: SliceUse | None, since: float, now: float) -> None:
        for day, hours in days(since, now):
            gib_hours = hours * held.mib / 1024
            entry = Hours()
            if use is None or now - since > LONGEST:
                entry.unknown = gib_hours
            else:
                entry.used = hours * min(use.used_mib, held.mib) / 1024
                if use.last_kernel is not None and use.last_kernel >= since - _LAG:
                    entry.busy = gib_hours
                else:
                    entry.idle = gib_hours
            key = Key(day, held.user, held.namespace, held.model)
            self._hours.setdefault(key, Hours()).add(entry)


def days(since: float, until: float) -> Iterator[tuple[str, float]]:
    """The days in UTC between two times, each with its part in hours."""
    while since < until:
        day = datetime.fromtimestamp(since, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        end = min(until, (day + timedelta(days=1)).timestamp())
        yield day.date().isoformat(), (end - since) / 3600
        since = end
