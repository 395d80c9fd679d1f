"""What Prometheus sees. Units are in the names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.admission.review import Webhook
from extender.view import ClusterView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.003, 0.006, 0.0125, 0.025, 0.1, 0.5, 1, 5)
_CARD = ("node", "card", "model")


class Observer(Protocol):
    """Takes one measurement, in seconds."""

    def observe(self, amount: float) -> None: ...


class Metrics:
    """The registry and the instruments that are written to."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._verbs = Histogram(
            "gpushare_verb_duration_seconds",
            "Time that a scheduler verb took, without the transfer",
            ("verb",),
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def verb(self, name: str) -> Observer:
        return self._verbs.labels(name)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class CardCollector(Collector):
    """Cards and slices, read from the ledger at the moment of the scrape."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view

    def collect(self) -> Iterator[Metric]:
        capacity = GaugeMetricFamily(
            "gpushare_card_memory_bytes", "Memory of the card", None, _CARD
        )
        held = GaugeMetricFamily(
            "gpushare_card_allocated_bytes", "Memory of the card that slices hold", None, _CARD
        )
        percent = GaugeMetricFamily(
            "gpushare_card_allocated_percent", "Compute of the card that slices hold", None, _CARD
        )
        slices = GaugeMetricFamily("gpushare_card_slices", "Pods on the card", None, _CARD)
        healthy = GaugeMetricFamily(
            "gpushare_card_healthy", "1 for a card in service, else 0", None, _CARD
        )
        for node in self.view.ledger.nodes.values():
            for card in node.cards.values():
                labels = (node.name, str(card.index), card.short_model)
                book = node.accounts.get(card.uuid)
                capacity.add_metric(labels, card.memory << 20)
                held.add_metric(labels, (book.used_mib if book else 0) << 20)
                percent.add_metric(labels, book.used_percent if book else 0)
                slices.add_metric(labels, len(book.holders) if book else 0)
                healthy.add_metric(labels, int(card.healthy))
        overbooked = GaugeMetricFamily(
            "gpushare_overbooked_cards", "Cards that hold more than they have; should be 0"
        )
        overbooked.add_metric((), sum(1 for _ in self.view.ledger.overbooked()))
        doubts = GaugeMetricFamily(
            "gpushare_doubtful_pods", "Bound pods whose placement is not believed"
        )
        doubts.add_metric((), len(self.view.doubts))
        yield from (capacity, held, percent, slices, healthy, overbooked, doubts)


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
