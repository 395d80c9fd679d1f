"""What the culler counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from hub_integration.culling.following import Trouble
from hub_integration.culling.memory import Reclaim
from hub_integration.culling.policy import Cause

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)


class Metrics:
    """One registry; all labels are there from the start, so that rates work."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.culls = self._counter("gpushare_culls", "Ends decided and asked for", "kind", "reason")
        self.dry_runs = self._counter("gpushare_cull_dry_runs", "Ends that a dry run left out",
                                      "kind", "reason")  # fmt: skip
        self.warnings = self._counter("gpushare_cull_warnings", "Warnings put up", "reason")
        self.holds = self._counter("gpushare_cull_holds", "Holds that users took")
        self.passes = self._counter("gpushare_culler_passes", "Looks at all servers", "result")
        self.kept_alive = self._counter(
            "gpushare_culler_kept_alive", "Activity written for servers that stay"
        )
        self.given_back = Gauge(
            "gpushare_reclaimed_gib_hours",
            "GPU-GiB-hours that slices were free for others because of an end, by its reason",
            ["reason"],
            registry=self.registry,
        )
        self.reclaim = Histogram(
            "gpushare_reclaim_seconds",
            "From the decision to end a server until its node reports the slice free",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.alarms = Gauge(
            "gpushare_reclaim_alarms",
            "Slices that do not come back, by what holds them",
            ["why"],
            registry=self.registry,
        )
        self.following = Gauge(
            "gpushare_reclaims_open", "Slices on their way back", registry=self.registry
        )
        self.pass_seconds = Gauge(
            "gpushare_culler_pass_seconds", "How long the last look took", registry=self.registry
        )
        self.last_pass = Gauge(
            "gpushare_culler_last_pass_timestamp_seconds",
            "When all servers were looked at last",
            registry=self.registry,
        )
        self.idle_workloads = Gauge(
            "gpushare_idle_workloads",
            "Pods beside the notebooks whose slice is idle beyond their namespace's policy",
            registry=self.registry,
        )
        for reason in Cause:
            self.warnings.labels(reason.value)
            self.culls.labels("server", reason.value)
            self.dry_runs.labels("server", reason.value)
            self.given_back.labels(reason.value).set(0)
        for trouble in Trouble:
            self.alarms.labels(trouble.value).set(0)
        for result in ("ok", "failed"):
            self.passes.labels(result)

    def show_alarms(self, reclaims: Iterable[Reclaim]) -> None:
        """The alarms and the slices on their way back, as they are now."""
        reclaims = list(reclaims)
        self.following.set(len(reclaims))
        for trouble in Trouble:
            count = sum(1 for reclaim in reclaims if reclaim.alarm == trouble.value)
            self.alarms.labels(trouble.value).set(count)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)
