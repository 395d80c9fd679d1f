"""Alerts and dashboard in the chart."""

from __future__ import annotations

import json

from tests.unit.chart.rendering import Chart


def test_alerts_and_dashboard_are_made_when_wanted(chart: Chart) -> None:
    release = chart.render()
    assert not release.all("PrometheusRule")
    assert "gpushare-dashboard" not in release.names("ConfigMap")
    release = chart.render(
        {
            "metrics": {
                "rules": {"enabled": True, "labels": {"release": "prometheus"}},
                "dashboard": {"enabled": True},
            }
        }
    )
    rule = release.of("PrometheusRule", "gpushare-extender")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    (group,) = rule["spec"]["groups"]
    for alert in group["rules"]:
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["description"]
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
    # Prometheus' own templates have survived helm's.
    assert any("{{ $labels.node }}" in a["annotations"]["summary"] for a in group["rules"])
    board = release.of("ConfigMap", "gpushare-dashboard")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["gpushare.json"])["title"] == "gpushare: shared cards"
