"""ConfigMaps that name cards which must not be used: 'unhealthy-gpu-<node>' in kube-system.

They are another system's way to take cards out of service, by hand or by a health checker. They are
read: a card that is named takes nothing new. And they are written: cards of which the node itself
says that they are not well are added, for whoever reads these maps. An annotation says which ones
are our word, so that it is taken back when the card is well again and never read as somebody's order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from extender.api import ApiError, KubeApi, NoAnswer
from extender.clock import Clock
from extender.reflector import Reflector, Sink
from extender.view import ClusterView
from gpushare.dialects.aliyun import unhealthy_cards

log = logging.getLogger(__name__)

NAMESPACE = "kube-system"
_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_FIELD = "gpus"
_RETRY = 5.0


@dataclass(frozen=True, slots=True)
class MapFact:
    """One such map: the cards it names, and which of them we have put there."""

    name: str
    node: str
    named: frozenset[int]
    ours: frozenset[int]

    @property
    def orders(self) -> frozenset[int]:
        """The cards that somebody else wants out of service."""
        return self.named - self.ours


class UnhealthyMaps:
    """Follows and keeps the maps. ``run`` ends only by cancellation."""

    def __init__(self, api: KubeApi, view: ClusterView, prefix: str, clock: Clock) -> None:
        self.api = api
        self.view = view
        self.prefix = prefix
        self.key = f"{view.rules.names.prefix}/unhealthy"
        self._maps: dict[str, MapFact] = {}
        self._look: dict[str, None] = {}
        self._some = asyncio.Event()
        self.reflector = Reflector[MapFact](
            api,
            _PATH,
            Sink(self.read, self._replace, self._apply, lambda fact: self._gone(fact.node)),
            clock,
            marker=f'"{prefix}'.encode(),
        )
        view.on_cards.append(self._wake)

    def read(self, obj: Mapping[str, Any]) -> MapFact | None:
        metadata = obj.get("metadata") or {}
        name = metadata.get("name")
        if not isinstance(name, str) or not name.startswith(self.prefix):
            return None
        return MapFact(
            name,
            name.removeprefix(self.prefix),
            unhealthy_cards((obj.get("data") or {}).get(_FIELD)),
            unhealthy_cards((metadata.get("annotations") or {}).get(self.key)),
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reflector.run())
            tasks.create_task(self._write_all())

    async def _write_all(self) -> None:
        await self.reflector.progress.synced.wait()
        while True:
            await self._some.wait()
            self._some.clear()
            nodes, self._look = list(self._look), {}
            for node in nodes:
                try:
                    await self._write(node)
                except (ApiError, NoAnswer) as error:
                    log.warning("%s/%s%s: %s", NAMESPACE, self.prefix, node, error)
                    self._look[node] = None
            if self._look:
                await asyncio.sleep(_RETRY)
                self._some.set()

    async def _write(self, node: str) -> None:
        """Make the node's map say what the node says of its cards."""
        fact, known = self.view.node_fact(node), self._maps.get(node)
        if fact is None or fact.cards is None:
            return  # nothing is known of the cards now, so nothing is taken back
        sick = frozenset(card.index for card in fact.cards.cards if not card.healthy)
        orders, ours = (known.orders, known.ours) if known else (frozenset(), frozenset())
        mine = sick - orders
        if mine == ours:
            return
        body = {
            "metadata": {"name": f"{self.prefix}{node}", "annotations": {self.key: _text(mine)}},
            "data": {_FIELD: _text(mine | orders)},
        }
        if known is None:
            await self.api.post(_PATH, body)
        else:
            await self.api.merge_patch(f"{_PATH}/{self.prefix}{node}", body)

    def _replace(self, facts: list[MapFact], _version: int, _since: float) -> None:
        for node in set(self._maps) - {fact.node for fact in facts}:
            self._gone(node)
        for fact in facts:
            self._apply(fact)

    def _apply(self, fact: MapFact) -> None:
        self._maps[fact.node] = fact
        self.view.order_out(fact.node, fact.orders)
        self._wake(fact.node)

    def _gone(self, node: str) -> None:
        self._maps.pop(node, None)
        self.view.order_out(node, frozenset())
        self._wake(node)

    def _wake(self, node: str) -> None:
        self._look[node] = None
        self._some.set()


def _text(indexes: frozenset[int]) -> str:
    return ",".join(map(str, sorted(indexes)))
