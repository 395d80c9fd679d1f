"""Keeps the card book true: opens the driver, probes the cards, listens for their errors.

All of it happens in threads with time limits. A driver that is missing, hangs or fails leaves the
book with a reason, and is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from device_plugin.card_book import CardBook
from device_plugin.nvml_thread import NvmlStuck, NvmlThread
from device_plugin.patience import wait_at_most
from device_plugin.physical_card import CardSource, DriverReplaced, NoDriver, PhysicalCard
from device_plugin.xid_listener import XidListener

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: between probes, until a missing driver is tried again, and that one call may take."""

    probe: float = 10.0
    retry: float = 10.0
    limit: float = 10.0


class CardKeeper:
    """Runs until it is cancelled. ``on_replaced`` is called when the process must start anew."""

    def __init__(
        self,
        source: CardSource,
        book: CardBook,
        pace: Pace,
        on_replaced: Callable[[str], None],
        listen: bool = True,
    ) -> None:
        self._source, self._book, self._pace = source, book, pace
        self._on_replaced, self._listen = on_replaced, listen
        self._thread = NvmlThread()
        self._listener: XidListener | None = None
        self._again = asyncio.Event()

    def look_now(self) -> None:
        """Probe at once, and count the cards anew."""
        self._again.set()

    async def run(self) -> None:
        """Probe for ever."""
        try:
            while True:
                delay = await self._look()
                if await wait_at_most(self._again, delay):
                    self._again.clear()
                    await self._close()
        finally:
            await self._close()
            self._thread.stop()

    async def _look(self) -> float:
        try:
            driver = await self._call(self._source.open)
            cards = await self._call(self._source.cards)
        except DriverReplaced as error:
            self._book.failed(str(error))
            self._on_replaced(str(error))
            return self._pace.retry
        except (NoDriver, NvmlStuck) as error:
            self._book.failed(str(error))
            await self._close()
            return self._pace.retry
        missing = self._book.seen and {c.uuid for c in self._book.physical()} - {
            c.uuid for c in cards
        }
        self._book.found(driver, cards)
        if missing:
            # The library counts cards when it is opened: only then can a lost one come back.
            await self._close()
        else:
            await self._listen_to(cards)
        return self._pace.probe

    async def _close(self) -> None:
        # The library must not be stopped under a call that waits in it.
        if self._listener is not None:
            self._listener.stop()
            if not await self._listener.ended(self._pace.limit):
                log.warning("NVML does not end its wait for events; it is left as it is")
                return
            self._listener = None
        with contextlib.suppress(NvmlStuck):
            await self._call(self._source.close)

    async def _listen_to(self, cards: Sequence[PhysicalCard]) -> None:
        uuids = tuple(sorted(card.uuid for card in cards))
        if not self._listen or (self._listener and self._listener.covers(uuids)):
            return
        if self._listener is not None:
            await self._close()
        try:
            await self._call(self._source.open)
            deaf = await self._call(lambda: self._source.watch(uuids))
        except (NoDriver, NvmlStuck) as error:
            log.warning("errors of the cards are not listened to yet: %s", error)
            return
        for uuid in deaf:
            log.warning("card %s reports no XID errors (its model cannot): probes must do", uuid)
        self._listener = XidListener(self._source, uuids, self._book.xid, self._again.set)

    async def _call(self, function: Callable[[], T]) -> T:
        return await self._thread.call(function, self._pace.limit)
