"""Shows every look of the culler to the meter, writes the hours, and answers who used what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from hub_integration.accounting.book import Book
from hub_integration.accounting.metering import Meter
from hub_integration.accounting.report import Row, given_of_stays, rows, window
from hub_integration.culling.culler import Look
from hub_integration.culling.judging import FRESH, Judged
from hub_integration.quota.ledger import Ledger

_WRITE_EVERY = 60.0  # seconds


class Accountant:
    """``ledger`` is None where the Hub keeps none."""

    def __init__(
        self, book: Book, ledger: Ledger | None, write_every: float = _WRITE_EVERY
    ) -> None:
        self.book = book
        self.ledger = ledger
        self.write_every = write_every
        self._meter = Meter()
        self._groups: dict[str, frozenset[str]] = {}
        self._written = 0.0

    async def __call__(self, look: Look, judged: Sequence[Judged]) -> None:
        if look.view is None:
            return
        now = look.at.timestamp()
        self._groups.update({s.user: s.groups for s in look.servers.values()})
        held = [one for slices in look.view.held().values() for one in slices]
        self._meter.look(held, look.view.uses(FRESH), now)
        if now - self._written >= self.write_every:
            self._written = now
            await self.flush()

    async def flush(self) -> None:
        """Write what was measured; kept for the next time where that fails."""
        hours = self._meter.take()
        try:
            await asyncio.to_thread(self.book.add, hours, dict(self._groups))
        except Exception:
            self._meter.put_back(hours)
            raise

    async def report(self, first: str, last: str, by: Sequence[str], user: str | None) -> list[Row]:
        """Up to now. Raises ValueError for what cannot be asked."""
        first, last, start, end = window(first, last, datetime.now(UTC))
        await self.flush()
        return await asyncio.to_thread(self._report, first, last, start, end, by, user)

    def _report(
        self, first: str, last: str, start: float, end: float, by: Sequence[str], user: str | None
    ) -> list[Row]:
        given = None
        if self.ledger is not None and self.ledger.looked() > 0:
            users = None if user is None else [user]
            given = given_of_stays(self.ledger.stays(start, end, users), start, end)
        measured, groups = self.book.read(first, last), self.book.groups(first, last)
        return rows(measured, given, groups, by, user)
