"""What Prometheus sees. Units are in the names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.admission.review import Webhook
from extender.usage import Usage
from extender.view import ClusterView
from gpushare.assignment import CardState
from gpushare.cards import Card
from gpushare.ledger import NodeAccount

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.003, 0.006, 0.0125, 0.025, 0.1, 0.5, 1, 5)
# About 10 ms of work.
_NODES_AT_ONCE = 100
_CARD_METRICS = {
    "memory_bytes": "Memory of the card: its capacity",
    "allocated_bytes": "Memory of the card that slices hold",
    "reserved_bytes": "Part of what is allocated whose binds are in flight",
    "used_bytes": "Memory of the card that is really used, as its node measures it",
    "taken_bytes": "Memory of the card that processes outside of any slice hold",
    "free_bytes": "Memory of the card that is free for slices; 0 where it is not in service",
    "allocated_percent": "Compute of the card that slices hold",
    "slices": "Pods on the card",
    "healthy": "1 for a card in service, else 0",
}


class Observer(Protocol):
    """Takes one measurement, in seconds."""

    def observe(self, amount: float) -> None: ...


class Metrics:
    """The registry and the instruments that are written to."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.cards: CardPage | None = None
        self._verbs = Histogram(
            "gpushare_verb_duration_seconds",
            "Time that a scheduler verb took, without the transfer",
            ("verb",),
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def verb(self, name: str) -> Observer:
        return self._verbs.labels(name)

    async def text(self) -> bytes:
        """The page that Prometheus scrapes."""
        cards = await self.cards.text() if self.cards else b""
        return generate_latest(self.registry) + cards


class CardPage:
    """Cards and slices, read from the ledger at the moment of the scrape. ``used`` is what nodes say.

    40,000 cards are some hundred thousand lines. They are written here and not by the client library,
    some nodes at a time, so that a scrape does not hold up the scheduler.
    """

    def __init__(self, view: ClusterView, usage: Usage) -> None:
        self.view = view
        self.usage = usage

    async def text(self) -> bytes:
        lines: dict[str, list[str]] = {
            name: [f"# HELP gpushare_card_{name} {text}", f"# TYPE gpushare_card_{name} gauge"]
            for name, text in _CARD_METRICS.items()
        }
        for i, node in enumerate(list(self.view.ledger.nodes.values())):
            if i % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
            for state in node.states():
                labels = _labels(state.card, node.name)
                for name, value in self._values(node, state).items():
                    lines[name].append(f"gpushare_card_{name}{labels} {value}")
        return "".join(f"{line}\n" for family in lines.values() for line in family).encode()

    def _values(self, node: NodeAccount, state: CardState) -> dict[str, int]:
        card, book = state.card, node.accounts.get(state.card.uuid)
        holders = book.holders if book else {}
        slices = self.view.ledger.slices
        reserved = sum(mib for uid, (mib, _) in holders.items() if slices[uid].reserved)
        values = {
            "memory_bytes": card.memory << 20,
            "allocated_bytes": (book.used_mib if book else 0) << 20,
            "reserved_bytes": reserved << 20,
            "taken_bytes": card.taken << 20,
            "free_bytes": max(0, state.free_mib) << 20 if card.healthy else 0,
            "allocated_percent": book.used_percent if book else 0,
            "slices": len(holders),
            "healthy": int(card.healthy),
        }
        used = self.usage.card(node.name, card.uuid)
        if used is not None:
            values["used_bytes"] = used << 20
        return values


class ViewCollector(Collector):
    """What of the view should be 0."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view

    def collect(self) -> Iterator[Metric]:
        overbooked = GaugeMetricFamily(
            "gpushare_overbooked_cards", "Cards that hold more than they have; should be 0"
        )
        overbooked.add_metric((), sum(1 for _ in self.view.ledger.overbooked()))
        doubts = GaugeMetricFamily(
            "gpushare_doubtful_pods", "Bound pods whose placement is not believed"
        )
        doubts.add_metric((), len(self.view.doubts))
        yield from (overbooked, doubts)


def _labels(card: Card, node: str) -> str:
    model = card.short_model.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{card="{card.index}",model="{model}",node="{node}"}}'


class CountCollector(Collector):
    """Counters and gauges that live where they are counted. Values are read at the scrape."""

    def __init__(
        self,
        counters: Mapping[str, tuple[str, str, Callable[[], Mapping[str, float]]]],
        gauges: Mapping[str, tuple[str, str, Callable[[], Mapping[str, float]]]],
    ) -> None:
        self.counters = counters
        self.gauges = gauges

    def collect(self) -> Iterator[Metric]:
        for name, (text, label, read) in self.counters.items():
            counter = CounterMetricFamily(name, text, None, (label,))
            for value, count in read().items():
                counter.add_metric((value,), count)
            yield counter
        for name, (text, label, read) in self.gauges.items():
            gauge = GaugeMetricFamily(name, text, None, (label,))
            for value, amount in read().items():
                gauge.add_metric((value,), amount)
            yield gauge


def admission_counts(webhook: Webhook) -> CountCollector:
    """What the admission webhook decided."""
    return CountCollector(
        counters={
            "gpushare_admissions": (
                "Pods that the admission webhook looked at, by what it did",
                "result",
                lambda: {k: float(v) for k, v in webhook.counts.items()},
            )
        },
        gauges={},
    )
