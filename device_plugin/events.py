"""Kubernetes Events about cards: on the node, and on each pod that is on the card."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from device_plugin.kube import ApiError, Kube
from device_plugin.slice_specs import Record
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.pods import PodRef

log = logging.getLogger(__name__)

UNHEALTHY, RECOVERED = "CardUnhealthy", "CardRecovered"
_WAITING = 1000


@dataclass(frozen=True, slots=True)
class News:
    """Something about a card that people should see. ``pod`` None: it is about the node."""

    reason: str
    message: str
    warning: bool
    pod: PodRef | None = None


def news(
    before: Mapping[str, Card], after: Iterable[Card], records: Iterable[Record]
) -> list[News]:
    """What changed for the worse or the better between two looks at the cards."""
    records = list(records)
    found = []
    for card in after:
        old = before.get(card.uuid)
        was = old.healthy if old else True
        if was == card.healthy and (card.healthy or old is None or old.health == card.health):
            continue
        name = f"card {card.index} ({card.short_model}, {card.uuid})"
        reason = RECOVERED if card.healthy else UNHEALTHY
        state = "is well again" if card.healthy else f"is unhealthy: {card.health}"
        found.append(News(reason, f"{name} {state}", not card.healthy))
        for pod in dict.fromkeys(
            PodRef(r.namespace, r.pod, r.uid) for r in records if card.uuid in r.footprint
        ):
            advice = "" if card.healthy else "; save your work, then stop and start"
            found.append(News(reason, f"its {name} {state}{advice}", not card.healthy, pod))
    return found


class Events:
    """Writes news as Events. What cannot be written is dropped: the annotation has it anyway."""

    def __init__(
        self, kube: Kube, node: str, names: Names, records: Callable[[], Iterable[Record]]
    ) -> None:
        self._kube, self._node, self._names, self._records = kube, node, names, records
        self._known: dict[str, Card] = {}
        self._queue: asyncio.Queue[News] = asyncio.Queue(_WAITING)

    def cards_changed(self, cards: Iterable[Card]) -> None:
        """The cards are like this now."""
        cards = list(cards)
        for item in news(self._known, cards, self._records()):
            if not self._queue.full():
                self._queue.put_nowait(item)
        self._known = {card.uuid: card for card in cards}

    async def run(self) -> None:
        """Write for ever."""
        while True:
            item = await self._queue.get()
            try:
                await self._kube.post(*self._event(item))
            except ApiError as error:
                log.info("the event %r was not written: %s", item.message, error)

    def _event(self, item: News) -> tuple[str, dict[str, object]]:
        namespace = item.pod.namespace if item.pod else "default"
        about = (
            {"kind": "Pod", "namespace": namespace, "name": item.pod.name, "uid": item.pod.uid}
            if item.pod
            # The kubelet's own events about nodes carry the name as uid; tools look for that.
            else {"kind": "Node", "name": self._node, "uid": self._node}
        )
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"/api/v1/namespaces/{namespace}/events", {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self._names.event_source}.", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", **about},
            "reason": item.reason,
            "message": item.message,
            "type": "Warning" if item.warning else "Normal",
            "source": {"component": self._names.event_source, "host": self._node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
