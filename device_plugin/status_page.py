"""/healthz, /readyz and /metrics, for the kubelet's probes and for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpushare.cards import Card

log = logging.getLogger(__name__)

# Container starts take milliseconds; the kubelet gives up after 30 s.
_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)


class Metrics:
    """What is counted. One registry for each plugin object, so that tests do not share any."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.starts = Histogram(
            "gpushare_container_start_seconds",
            "Time that PreStartContainer took, by result: started, or the kind of refusal",
            ["result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.xids = Counter(
            "gpushare_card_xid_total",
            "XID errors that the driver reported",
            ["uuid", "xid"],
            registry=self.registry,
        )

    def observe_start(self, seconds: float, result: str) -> None:
        """One PreStartContainer call has ended."""
        self.starts.labels(result).observe(seconds)

    def add_cards(
        self,
        cards: Callable[[], Iterable[Card]],
        held: Callable[[], Mapping[str, tuple[int, int]]],
    ) -> None:
        """Read gauges of the cards whenever somebody asks."""
        self.registry.register(_CardGauges(cards, held))

    def text(self) -> bytes:
        """In Prometheus's format."""
        return bytes(generate_latest(self.registry))


class _CardGauges(Collector):
    def __init__(
        self,
        cards: Callable[[], Iterable[Card]],
        held: Callable[[], Mapping[str, tuple[int, int]]],
    ) -> None:
        self._cards, self._held = cards, held

    def collect(self) -> Iterable[GaugeMetricFamily]:
        labels = ["uuid", "index", "model"]
        healthy = GaugeMetricFamily("gpushare_card_healthy", "1 if the card is well", labels=labels)
        memory = GaugeMetricFamily("gpushare_card_memory_mib", "The card's memory", labels=labels)
        mib = GaugeMetricFamily(
            "gpushare_card_held_mib", "Memory given to started pods", labels=labels
        )
        percent = GaugeMetricFamily(
            "gpushare_card_held_percent", "Compute given to started pods", labels=labels
        )
        held = self._held()
        for card in self._cards():
            values = [card.uuid, str(card.index), card.short_model]
            held_mib, held_percent = held.get(card.uuid, (0, 0))
            healthy.add_metric(values, float(card.healthy))
            memory.add_metric(values, card.memory)
            mib.add_metric(values, held_mib)
            percent.add_metric(values, held_percent)
        return [healthy, memory, mib, percent]


class StatusPage:
    """The HTTP server. ``problems`` says why the plugin is not ready; empty when it is. ``notes``
    are said beside them.

    /healthz answers as long as this process does. Whatever it waits for (a driver, the kubelet, the
    API server), a restart would not bring it.
    """

    def __init__(
        self,
        address: str,
        metrics: Metrics,
        problems: Callable[[], list[str]],
        notes: Callable[[], list[str]] = list,
    ) -> None:
        self._address, self._metrics = address, metrics
        self._problems, self._notes = problems, notes
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen. Raises OSError where the address cannot be had."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_page)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        if self._address.startswith("unix:"):
            await web.UnixSite(self._runner, self._address.removeprefix("unix:")).start()
            return
        host, _, port = self._address.rpartition(":")
        await web.TCPSite(self._runner, host.strip("[]"), int(port)).start()
        with suppress(IndexError):
            self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the door."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return _answer(200, [*self._problems(), *self._notes()])

    async def _readyz(self, request: web.Request) -> web.Response:
        problems = self._problems()
        return _answer(503 if problems else 200, [*problems, *self._notes()])

    async def _metrics_page(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), content_type="text/plain", charset="utf-8")


def _answer(status: int, said: list[str]) -> web.Response:
    return web.Response(status=status, text="\n".join(said or ["ok"]) + "\n")
