"""Counters on the Hub's own /hub/metrics page."""

from __future__ import annotations

from prometheus_client import Counter

from hub_integration.hub_versions import Why

_REFUSALS = Counter(
    "gpushare_spawn_refusals_total",
    "Spawns that were refused, by reason",
    ["reason"],
)
for _why in Why:
    _REFUSALS.labels(_why.value)


def count_refusal(why: Why) -> None:
    """The Hub's own metric does not see what is refused at the form."""
    _REFUSALS.labels(why.value).inc()
