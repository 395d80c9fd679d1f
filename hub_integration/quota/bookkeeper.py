"""Keeps the ledger: looks at the cluster's slices again and again, for as long as the Hub runs.

One for all spawners of a Hub. It counts what the extender says is allocated; while the extender is
away nothing is counted, and afterwards a slice that is still there has counted on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import datetime, tzinfo
from functools import partial
from zoneinfo import ZoneInfo

from hub_integration.quota.ledger import Ledger, LedgerError, Stay
from hub_integration.quota.windows import Window, window
from hub_integration.state_client import StateClient

EVERY = 10.0  # seconds between two looks
_TIDY = 24 * 3600.0
_USED_AGE = 10.0  # seconds for which a sum of GiB-hours is good
_RELEASES_AGE = 60.0
_RECENTLY = 24 * 3600.0  # the past that expected waiting times are made of


class Bookkeeper:
    """Looks, and answers what was used. Never raises: what is not known is None."""

    def __init__(
        self, client: StateClient, url: str, days: int, zone: str, log: logging.Logger
    ) -> None:
        self._client = client
        self._url = url
        self._days = days
        self._zone: tzinfo = ZoneInfo(zone)
        self._log = log
        self._ledger: Ledger | None = None
        self._task: asyncio.Task[None] | None = None
        self._said = ""
        self._tidied = 0.0
        self._used: dict[tuple[Window, frozenset[str]], tuple[float, float]] = {}
        self._releases: tuple[float, list[Stay]] = (0.0, [])

    def start(self) -> None:
        """Begin to look, if that has not begun."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Take down what the cluster holds now."""
        held = await self._client.holdings()
        if held is None:
            return
        now = time.time()
        try:
            ledger = await self._opened()
            holdings = [one.holding for one in held]
            await asyncio.to_thread(ledger.look, holdings, now)
            if now - self._tidied > _TIDY:
                self._tidied = now
                await asyncio.to_thread(ledger.forget_before, now - self._days * 86400)
        except LedgerError as error:
            self._complain(error)
        else:
            if self._said:
                self._log.info("The ledger works again")
                self._said = ""

    async def used(self, users: Iterable[str], namespaces: list[str] | None) -> dict[Window, float]:
        """GiB-hours of these users together in the windows of now, grants taken off."""
        names, now, used = frozenset(users), time.time(), {}
        for kind in Window:
            known = self._used.get((kind, names))
            if known is None or known[0] < now:
                sums = await self._sum(kind, names, namespaces, now)
                if sums is None:
                    return {}
                known = self._used[(kind, names)] = (now + _USED_AGE, sums)
            used[kind] = known[1]
        if len(self._used) > 10_000:
            self._used = {key: value for key, value in self._used.items() if value[0] >= now}
        return used

    def forget_sums(self) -> None:
        """A grant counts at once."""
        self._used.clear()

    async def _sum(
        self, kind: Window, users: frozenset[str], namespaces: list[str] | None, now: float
    ) -> float | None:
        start, end = window(kind, now, self._zone)
        try:
            ledger = await self._opened()
            ask = partial(ledger.gib_hours, start, end, users, namespaces)
            hours = await asyncio.to_thread(ask)
            grants = await asyncio.to_thread(ledger.grants, start, end, users)
        except LedgerError as error:
            self._complain(error)
            return None
        return sum(hours.values()) - sum(grant.gib_hours for grant in grants)

    def begins_anew(self) -> dict[Window, str]:
        """When each window's count starts again, in words."""
        now, words = time.time(), {}
        for kind in Window:
            end = datetime.fromtimestamp(window(kind, now, self._zone)[1], self._zone)
            words[kind] = {
                Window.DAY: "at midnight",
                Window.WEEK: "on Monday",
                Window.MONTH: f"on {end:%B} 1",
            }[kind]
        return words

    async def releases(self) -> list[Stay]:
        """Slices that came back within the last day."""
        now = time.time()
        if self._releases[0] < now:
            try:
                ledger = await self._opened()
                recent = await asyncio.to_thread(ledger.releases, now - _RECENTLY, now)
            except LedgerError as error:
                self._complain(error)
                recent = []
            self._releases = (now + _RELEASES_AGE, recent)
        return self._releases[1]

    async def ledger(self) -> Ledger:
        """For what admins do with it. Raises LedgerError."""
        return await self._opened()

    @property
    def zone(self) -> tzinfo:
        return self._zone

    async def _opened(self) -> Ledger:
        if self._ledger is None:
            self._ledger = await asyncio.to_thread(Ledger, self._url)
        return self._ledger

    def _complain(self, error: LedgerError) -> None:
        """Say it once, and again only when it is something else."""
        if str(error) != self._said:
            self._said = str(error)
            self._log.error("%s: quotas of GiB-hours are not counted", error)
