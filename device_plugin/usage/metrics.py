"""Usage for Prometheus. Labels are those of NVIDIA's DCGM exporter where it has one for the thing,
so that a board for its metrics can be pointed at these, and joins work: gpu, UUID, device,
modelName, Hostname, namespace, pod, container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpushare.cards import Card
from gpushare.usage import CardUse, ContainerUse, NodeUsage, SliceUse

_MIB = 1024 * 1024
_CARD = ["gpu", "UUID", "device", "modelName", "Hostname"]
_POD = [*_CARD, "namespace", "pod"]
_CONTAINER = [*_POD, "container"]

_CARD_GAUGES: dict[str, tuple[str, Callable[[CardUse], float | None]]] = {
    "gpushare_card_memory_total_bytes": ("Memory of the card", lambda c: c.total_mib * _MIB),
    "gpushare_card_memory_used_bytes": (
        "Memory of the card that is in use, the driver's own included",
        lambda c: c.used_mib * _MIB,
    ),
    "gpushare_card_memory_reserved_bytes": (
        "Memory of the card that the driver keeps for itself",
        lambda c: c.reserved_mib * _MIB,
    ),
    "gpushare_card_memory_stray_bytes": (
        "Memory of the card held by processes that have no slice of it",
        lambda c: c.stray_mib * _MIB,
    ),
    "gpushare_card_sm_utilization_ratio": (
        "Part of the time in which something computed on the card, 0 to 1",
        lambda c: None if c.sm_percent is None else c.sm_percent / 100,
    ),
}
# As the DCGM exporter itself names them, in its units, for boards that cannot be changed.
_DCGM_GAUGES: dict[str, tuple[str, Callable[[CardUse], float | None]]] = {
    "DCGM_FI_DEV_FB_USED": ("Framebuffer memory used (in MiB).", lambda c: c.used_mib),
    "DCGM_FI_DEV_FB_FREE": (
        "Framebuffer memory free (in MiB).",
        lambda c: max(0, c.total_mib - c.used_mib),
    ),
    "DCGM_FI_DEV_GPU_UTIL": ("GPU utilization (in %).", lambda c: c.sm_percent),
}
_SLICE_GAUGES: dict[str, tuple[str, Callable[[SliceUse], float | None]]] = {
    "gpushare_slice_memory_bytes": (
        "Memory of the card that the pod was given",
        lambda s: s.slice_mib * _MIB,
    ),
    "gpushare_slice_memory_limit_bytes": (
        "Memory that the pod may use now: its slice, and what it may borrow",
        lambda s: s.limit_mib * _MIB,
    ),
    "gpushare_slice_memory_used_bytes": (
        "Memory that all processes of the pod hold",
        lambda s: s.used_mib * _MIB,
    ),
    "gpushare_slice_memory_peak_bytes": (
        "The most that all processes of the pod held at once",
        lambda s: s.peak_mib * _MIB,
    ),
    "gpushare_slice_compute_ratio": (
        "Part of the card's compute that the pod was given, 0 to 1; 0 is best effort",
        lambda s: s.percent / 100,
    ),
    "gpushare_slice_sm_utilization_ratio": (
        "Part of the card's SM time that the pod used, 0 to 1",
        lambda s: None if s.sm_percent is None else s.sm_percent / 100,
    ),
    "gpushare_slice_last_kernel_timestamp_seconds": (
        "When a program of the pod last computed on the card",
        lambda s: s.last_kernel,
    ),
    "gpushare_slice_watched_since_timestamp_seconds": (
        "Since when the slice is measured",
        lambda s: s.watched_since,
    ),
}
_SLICE_COUNTERS: dict[str, tuple[str, Callable[[SliceUse], float]]] = {
    "gpushare_slice_over_limit_seconds": (
        "Time that the pod was over its limit",
        lambda s: s.over_seconds,
    ),
    "gpushare_slice_processes_ended": (
        "Processes of the pod that were ended for being over its limit",
        lambda s: s.ended,
    ),
}
_CONTAINER_GAUGES: dict[str, tuple[str, Callable[[ContainerUse], float | None]]] = {
    "gpushare_container_memory_used_bytes": (
        "Memory that the container's processes hold",
        lambda c: c.used_mib * _MIB,
    ),
    "gpushare_container_memory_peak_bytes": (
        "The most that the container's processes held at once",
        lambda c: c.peak_mib * _MIB,
    ),
    "gpushare_container_processes": (
        "Processes of the container that use the card",
        lambda c: float(c.processes),
    ),
    "gpushare_container_sm_utilization_ratio": (
        "Part of the card's SM time that the container used, 0 to 1",
        lambda c: None if c.sm_percent is None else c.sm_percent / 100,
    ),
}


class UsageCollector(Collector):
    """Reads all of it whenever Prometheus asks."""

    def __init__(
        self,
        usage: Callable[[], NodeUsage],
        cards: Callable[[], Mapping[str, Card]],
        counts: Callable[[], Mapping[str, int]],
        looks: Callable[[], tuple[int, int]],
        dcgm: bool = False,
    ) -> None:
        self._card_gauges = _CARD_GAUGES | (_DCGM_GAUGES if dcgm else {})
        self._usage, self._cards, self._counts, self._looks = usage, cards, counts, looks

    def collect(self) -> Iterable[Metric]:
        usage, cards = self._usage(), self._cards()
        labels = {uuid: _card_labels(card, usage.node) for uuid, card in cards.items()}
        slices = [s for s in usage.slices if s.card in labels]
        for name, (text, of_card) in self._card_gauges.items():
            gauge = GaugeMetricFamily(name, text, labels=_CARD)
            for card in usage.cards:
                _add(gauge, labels[card.uuid], of_card(card))
            yield gauge
        for name, (text, of_slice) in _SLICE_GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=_POD)
            for s in slices:
                _add(gauge, [*labels[s.card], s.namespace, s.pod], of_slice(s))
            yield gauge
        for name, (text, counted) in _SLICE_COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=_POD)
            for s in slices:
                counter.add_metric([*labels[s.card], s.namespace, s.pod], counted(s))
            yield counter
        for name, (text, of_container) in _CONTAINER_GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=_CONTAINER)
            for s in slices:
                for c in s.containers:
                    _add(gauge, [*labels[s.card], s.namespace, s.pod, c.name], of_container(c))
            yield gauge
        yield from self._own()

    def _own(self) -> Iterable[Metric]:
        told = CounterMetricFamily(
            "gpushare_enforcement_messages", "What pods were told, by reason", labels=["reason"]
        )
        for reason, count in self._counts().items():
            told.add_metric([reason], count)
        yield told
        looks, failed = self._looks()
        yield CounterMetricFamily("gpushare_enforcement_looks", "Looks at the cards", looks)
        yield CounterMetricFamily(
            "gpushare_enforcement_failed_looks", "Looks at the cards that failed", failed
        )


def _card_labels(card: Card, node: str) -> list[str]:
    return [str(card.index), card.uuid, f"nvidia{card.minor}", card.model, node]


def _add(gauge: GaugeMetricFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        gauge.add_metric(labels, value)
