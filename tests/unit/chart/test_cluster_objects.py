"""What the chart puts around its pods: network policies, budget, priorities, OpenShift, Prometheus."""

from __future__ import annotations

import pytest

from tests.unit.chart.rendering import Chart

SCHEDULER, PLUGIN = "gpushare-user-scheduler", "gpushare-device-plugin"


def test_only_the_state_api_and_the_webhook_can_be_reached(chart: Chart) -> None:
    release = chart.render()
    rules = release.of("NetworkPolicy", SCHEDULER)["spec"]["ingress"]
    assert rules == [
        {"ports": [{"protocol": "TCP", "port": name}]} for name in ("state", "webhook")
    ]
    (rule,) = release.of("NetworkPolicy", PLUGIN)["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "usage"}]
    (peer,) = rule["from"]
    labels = release.of("Deployment", SCHEDULER)["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()


def test_network_policies_are_about_our_pods(chart: Chart) -> None:
    release = chart.render()
    for kind, name in (("Deployment", SCHEDULER), ("DaemonSet", PLUGIN)):
        selector = release.of("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]
        labels = release.of(kind, name)["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items()


def test_agents_metrics_can_be_opened_for_prometheus(chart: Chart) -> None:
    prometheus = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    release = chart.render({"networkPolicy": {"metricsFrom": [prometheus]}})
    _, rule = release.of("NetworkPolicy", PLUGIN)["spec"]["ingress"]
    assert rule == {"ports": [{"protocol": "TCP", "port": "status"}], "from": [prometheus]}


def test_state_api_can_be_kept_for_some(chart: Chart) -> None:
    hub = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "jupyter"}}}
    release = chart.render({"networkPolicy": {"stateFrom": [hub]}})
    rule, _webhook = release.of("NetworkPolicy", SCHEDULER)["spec"]["ingress"]
    assert rule["from"] == [hub]


@pytest.mark.parametrize(("replicas", "made"), [(1, False), (2, True)])
def test_budget_needs_a_second_replica(chart: Chart, replicas: int, made: bool) -> None:
    release = chart.render({"scheduler": {"replicas": replicas}})
    assert (SCHEDULER in release.names("PodDisruptionBudget")) is made


def test_own_priority_class_is_used_when_made(chart: Chart) -> None:
    release = chart.render({"priorityClass": {"create": True}})
    assert release.of("PriorityClass", "gpushare")["value"] == 1_000_000
    for kind, name in (("Deployment", SCHEDULER), ("DaemonSet", PLUGIN)):
        assert release.pod_spec(kind, name)["priorityClassName"] == "gpushare"


def test_openshift_is_found_out(chart: Chart) -> None:
    bindings = {f"{SCHEDULER}-scc", f"{PLUGIN}-scc"}
    assert not bindings & set(chart.render().names("RoleBinding"))
    release = chart.render(apis=("security.openshift.io/v1",))
    assert bindings <= set(release.names("RoleBinding"))


def test_monitor_checks_whom_it_reads(chart: Chart) -> None:
    release = chart.render({"metrics": {"serviceMonitor": {"enabled": True}}})
    (monitor,) = release.all("ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] == "gpushare-extender.gpushare.svc"
    assert "insecureSkipVerify" not in endpoint["tlsConfig"]
    service = release.of("Service", "gpushare-extender")
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_agents_are_monitored_one_by_one(chart: Chart) -> None:
    release = chart.render({"metrics": {"serviceMonitor": {"enabled": True}}})
    (monitor,) = release.all("PodMonitor")
    labels = release.of("DaemonSet", PLUGIN)["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = {p["name"] for p in release.container("DaemonSet", PLUGIN, "device-plugin")["ports"]}
    assert endpoint["port"] in ports
