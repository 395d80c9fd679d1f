"""The running account of what slices use: peaks, clocks, sums. No I/O.

One entry is one pod on one card, with its containers in it. What was measured before a restart of
the plugin is taken over, so that nobody's idle clock starts anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from device_plugin.enforcement.accounts import CardAccount, Held
from device_plugin.usage.sample import CardActivity

_VERSION = 1


@dataclass(slots=True)
class Meter:
    """What one container, or one pod, uses of one card. Memory in MiB, times in seconds of 1970."""

    used: int = 0
    peak: int = 0
    processes: int = 0
    sm: int | None = None
    last_kernel: float | None = None

    def read(self, held: Iterable[Held]) -> None:
        """It holds this now."""
        self.used = self.processes = 0
        for one in held:
            self.used += one.known_mib
            self.processes += 1
        self.peak = max(self.peak, self.used)

    def ran(self, percent: int | None, now: float, active: bool) -> None:
        """``active``: a program of it ran since the look before."""
        self.sm = percent
        if active:
            self.last_kernel = now


@dataclass(slots=True)
class Entry:
    """One pod on one card."""

    since: float
    total: Meter = field(default_factory=Meter)
    containers: dict[str, Meter] = field(default_factory=dict)
    over_seconds: float = 0.0
    over_since: float | None = None
    ended: int = 0


class UsageBook:
    """All entries, by (pod uid, card)."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Entry] = {}
        # Per cent of the time in which something computed on a card, as last asked for.
        self.busy: dict[str, int] = {}

    def open(self, uid: str, card: str, now: float) -> Entry:
        """The entry of a slice; a new one begins now."""
        entry = self.entries.get((uid, card))
        if entry is None:
            entry = self.entries[uid, card] = Entry(now)
        return entry

    def keep_only(self, slices: Iterable[tuple[str, str]]) -> None:
        """Strike out what is no slice any more."""
        for key in self.entries.keys() - set(slices):
            del self.entries[key]

    def read(self, card: str, account: CardAccount, now: float) -> None:
        """Who holds what of ``card`` now. Slices of it without any process hold nothing."""
        for (uid, of), entry in self.entries.items():
            if of != card:
                continue
            use = account.pods.get(uid)
            _read(entry, use.held if use else [])

    def activity(self, card: str, account: CardAccount, seen: CardActivity, now: float) -> None:
        """Who computed on ``card`` since the look before."""
        for (uid, of), entry in self.entries.items():
            if of != card:
                continue
            use = account.pods.get(uid)
            _activity(entry, use.held if use else [], seen, now)

    def over(self, uid: str, card: str, is_over: bool, seconds: float, now: float) -> None:
        """Whether the pod is over its limit, and how many seconds it was since the look before."""
        entry = self.open(uid, card, now)
        if is_over:
            entry.over_seconds += seconds
            entry.over_since = now if entry.over_since is None else entry.over_since
        else:
            entry.over_since = None

    def dump(self) -> str:
        """All that must outlive this program."""
        entries = [
            {
                "uid": uid,
                "card": card,
                "since": e.since,
                "over_seconds": e.over_seconds,
                "ended": e.ended,
                "total": asdict(e.total),
                "containers": {name: asdict(meter) for name, meter in e.containers.items()},
            }
            for (uid, card), e in self.entries.items()
        ]
        return json.dumps({"v": _VERSION, "entries": entries}, separators=(",", ":"))

    def load(self, text: str) -> None:
        """Take over what an earlier run dumped. Raises ValueError, and changes nothing then."""
        try:
            data = json.loads(text)
            if data["v"] != _VERSION:
                raise ValueError("another version")
            loaded = {(str(e["uid"]), str(e["card"])): _entry(e) for e in data["entries"]}
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a usage book: {error!r}") from None
        self.entries.update(loaded)


def _read(entry: Entry, held: list[Held]) -> None:
    entry.total.read(held)
    by_container: dict[str, list[Held]] = {name: [] for name in entry.containers}
    for one in held:
        by_container.setdefault(one.container, []).append(one)
    for name, its in by_container.items():
        entry.containers.setdefault(name, Meter()).read(its)


def _activity(entry: Entry, held: list[Held], seen: CardActivity, now: float) -> None:
    if seen.processes is None:
        # Somebody computes, and it is not known who: then everybody who could is taken to.
        busy = bool(held) and seen.card_percent > 0
        entry.total.ran(None, now, busy)
        for name, meter in entry.containers.items():
            meter.ran(None, now, busy and any(h.container == name for h in held))
        return
    percents = seen.processes
    entry.total.ran(*_sum(held, percents, now))
    for name, meter in entry.containers.items():
        meter.ran(*_sum([h for h in held if h.container == name], percents, now))


def _sum(held: list[Held], percents: Mapping[int, int], now: float) -> tuple[int, float, bool]:
    mine = [percents[h.process.pid] for h in held if h.process.pid in percents]
    return min(100, sum(mine)), now, bool(mine)


def _entry(data: Mapping[str, Any]) -> Entry:
    return Entry(
        since=float(data["since"]),
        total=_meter(data["total"]),
        containers={str(name): _meter(meter) for name, meter in data["containers"].items()},
        over_seconds=float(data["over_seconds"]),
        ended=int(data["ended"]),
    )


def _meter(data: Mapping[str, Any]) -> Meter:
    last = data["last_kernel"]
    return Meter(peak=int(data["peak"]), last_kernel=None if last is None else float(last))
