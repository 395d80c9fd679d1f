"""The last day of the cluster, a line a minute, for the dashboards' trends. In memory, and bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from time import time
from typing import Any

from extender.usage import Usage
from extender.view import ClusterView
from extender.waiting import Waiting
from gpushare.waiting import rfc3339

DAY = 24 * 60
_MINUTE = 60.0
_MOST_MODELS = 32
_NODES_AT_ONCE = 200


@dataclass(slots=True)
class Sums:
    """MiB of all cards, or of those of one model. ``used_mib`` is None where nothing is measured."""

    capacity_mib: int = 0
    allocated_mib: int = 0
    used_mib: int | None = None

    def add(self, capacity: int, allocated: int, used: int | None) -> None:
        self.capacity_mib += capacity
        self.allocated_mib += allocated
        if used is not None:
            self.used_mib = (self.used_mib or 0) + used


@dataclass(slots=True)
class Minute:
    """The cluster at one moment."""

    at: float
    waiting: int = 0
    total: Sums = field(default_factory=Sums)
    by_model: dict[str, Sums] = field(default_factory=dict)

    def object(self) -> dict[str, Any]:
        models = {name: asdict(sums) for name, sums in self.by_model.items()}
        return {
            "at": rfc3339(self.at),
            **asdict(self.total),
            "waiting": self.waiting,
            "by_model": models,
        }


class History:
    """The ring of minutes."""

    def __init__(
        self,
        view: ClusterView,
        waiting: Waiting,
        usage: Usage,
        now: Callable[[], float] = time,
    ) -> None:
        self.view = view
        self.waiting = waiting
        self.usage = usage
        self._now = now
        self._ring: deque[Minute] = deque(maxlen=DAY)

    async def record(self) -> None:
        """Add the present. The scheduler's verbs get their turn in between."""
        minute = Minute(self._now(), len(self.waiting.pods))
        for i, node in enumerate(list(self.view.ledger.nodes.values())):
            if i % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
            for card in node.cards.values():
                book = node.accounts.get(card.uuid)
                sums = (
                    card.memory,
                    book.used_mib if book else 0,
                    self.usage.card(node.name, card.uuid),
                )
                minute.total.add(*sums)
                model = minute.by_model.get(card.short_model)
                if model is None and len(minute.by_model) < _MOST_MODELS:
                    model = minute.by_model[card.short_model] = Sums()
                if model is not None:
                    model.add(*sums)
        self._ring.append(minute)

    def last(self, minutes: int) -> list[dict[str, Any]]:
        """The newest ``minutes`` lines, oldest first."""
        wanted = max(1, min(minutes, DAY))
        return [minute.object() for minute in list(self._ring)[-wanted:]]

    async def run(self) -> None:
        """One line now, and one at every full minute, until cancelled."""
        while True:
            await self.record()
            await asyncio.sleep(_MINUTE - self._now() % _MINUTE)
