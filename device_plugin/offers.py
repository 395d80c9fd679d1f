"""What the kubelet is told the node has: ids of both resources, healthy or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from device_plugin.card_book import CardBook
from device_plugin.container_start import KubeletView
from device_plugin.holders import Holder
from device_plugin.ids import (
    Held,
    Resource,
    nominal_free,
    offer,
    size_problem,
    slice_hash,
    true_free,
)
from device_plugin.service import Service
from device_plugin.slice_specs import Record, held_by_others

log = logging.getLogger(__name__)

_SETTLE = 0.05


def held_ids(holders: Iterable[Holder], resource: str, records: Mapping[str, Record]) -> list[Held]:
    """Who holds ids of ``resource``, and on which cards its container was started."""
    held: dict[str, Held] = {}
    for holder in holders:
        ids = holder.ids.get(resource)
        if ids:
            digest = slice_hash(resource, ids)
            record = records.get(digest)
            held[digest] = Held(ids, frozenset(record.cards if record else ()))
    return list(held.values())


class Offers:
    """Keeps both services' lists true. ``changed`` asks for a fresh look."""

    def __init__(
        self,
        book: CardBook,
        kubelet: KubeletView,
        alive: Callable[[], frozenset[str] | None],
        records: Callable[[], Mapping[str, Record]],
        services: Sequence[tuple[Resource, Service]],
        truthful: bool = False,
    ) -> None:
        self._book, self._kubelet, self._records = book, kubelet, records
        self._alive = alive
        self._services, self._truthful = services, truthful
        self._changed = asyncio.Event()
        self._changed.set()
        self.ready = asyncio.Event()
        self._said = ""
        self._withheld: frozenset[str] = frozenset()

    @property
    def problem(self) -> str:
        """Why the cards cannot be offered in this unit, with the fix; '' if they can."""
        cards = self._book.cards()
        problems = (size_problem(resource, cards) for resource, _ in self._services[:2])
        return next(filter(None, problems), "")

    def withheld(self) -> frozenset[str]:
        """The dialects' resources that are too many here to be told of; ours go on without them."""
        cards = self._book.cards()
        return frozenset(r.name for r, _ in self._services[2:] if size_problem(r, cards))

    def changed(self) -> None:
        """Cards, or who holds them, may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SETTLE)  # one look for all changes of one moment
            self._changed.clear()
            await self.refresh()

    async def refresh(self) -> None:
        """Look, and tell the services."""
        if not self._book.seen:
            return
        problem = self.problem
        if problem and problem != self._said:
            log.error("%s", problem)
        self._said = problem
        if problem:
            return
        cards = self._book.cards()
        holders = (await self._kubelet.see()).held(self._alive())
        withheld = self.withheld()
        if withheld != self._withheld:
            self._withheld = withheld
            for resource, _ in self._services:
                if resource.name in withheld:
                    log.error("%s; it is not offered", size_problem(resource, cards))
        for resource, service in self._services:
            if resource.name in withheld:
                await service.offer({})
                continue
            held = held_ids(holders, resource.name, self._records())
            if self._truthful:
                used = held_by_others(self._records().values(), "")
                free = true_free(resource, cards, used, held)
            else:
                free = nominal_free(resource, cards, held)
            await service.offer(offer(resource, cards, held, free))
        self.ready.set()
