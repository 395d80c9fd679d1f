"""Who may do what. Written out in full, so that a right more is a test to change."""

from __future__ import annotations

from typing import Any

from tests.unit.chart.rendering import Chart, Release

Rights = set[tuple[str, str]]

EXTENDER: Rights = {
    *((resource, verb) for resource in ("nodes", "pods") for verb in ("get", "list", "watch")),
    ("pods/binding", "create"),
    ("pods/status", "patch"),
    ("events", "create"),
    ("events", "patch"),
    ("tokenreviews", "create"),
    ("subjectaccessreviews", "create"),
}
DEVICE_PLUGIN: Rights = {
    *((resource, verb) for resource in ("nodes", "pods") for verb in ("get", "list", "watch")),
    ("nodes", "patch"),
    ("events", "create"),
    ("events", "patch"),
    ("tokenreviews", "create"),
    ("subjectaccessreviews", "create"),
}
WATCHDOG: Rights = {("pods", "delete"), ("pods/status", "patch")}


def rights(role: dict[str, Any]) -> Rights:
    return {
        (thing, verb)
        for rule in role["rules"]
        for thing in rule.get("resources", rule.get("nonResourceURLs"))
        for verb in rule["verbs"]
    }


def subjects_of(release: Release, role: str) -> set[tuple[str, str]]:
    """(namespace, name) of who is bound to the cluster role."""
    return {
        (subject["namespace"], subject["name"])
        for binding in release.all("ClusterRoleBinding")
        if binding["roleRef"]["name"] == role
        for subject in binding["subjects"]
    }


def test_rights_are_these_and_no_more(chart: Chart) -> None:
    release = chart.render()
    assert rights(release.of("ClusterRole", "gpushare-extender")) == EXTENDER
    agent = release.of("ClusterRole", "gpushare-device-plugin")
    assert rights(agent) == DEVICE_PLUGIN | WATCHDOG
    assert rights(release.of("ClusterRole", "gpushare-state-reader")) == {
        ("/v1", "get"),
        ("/v1/*", "get"),
    }
    assert rights(release.of("ClusterRole", "gpushare-usage-reader")) == {("/v1/usage", "get")}
    assert rights(release.of("ClusterRole", "gpushare-webhook")) == {
        ("mutatingwebhookconfigurations", "get"),
        ("mutatingwebhookconfigurations", "patch"),
    }
    assert len(release.all("ClusterRole")) == 5


def test_the_webhooks_certificate_is_the_only_secret_that_may_be_read(chart: Chart) -> None:
    release = chart.render()
    (rule,) = release.of("Role", "gpushare-webhook")["rules"]
    assert rule["resourceNames"] == ["gpushare-webhook-tls"]
    assert set(rule["verbs"]) == {"get", "patch"}
    assert not any(
        "secrets" in rule.get("resources", [])
        for role in release.all("ClusterRole")
        for rule in role["rules"]
    )
    (rule,) = release.of("Role", "gpushare-extender-agents")["rules"]
    assert rule["resources"] == ["endpointslices"]


def test_agent_that_ends_nothing_may_end_nothing(chart: Chart) -> None:
    release = chart.render({"devicePlugin": {"enforcement": "advisory"}})
    assert rights(release.of("ClusterRole", "gpushare-device-plugin")) == DEVICE_PLUGIN


def test_extender_reads_what_agents_measured(chart: Chart) -> None:
    release = chart.render()
    reader = subjects_of(release, "gpushare-usage-reader")
    assert reader == {("gpushare", "gpushare-user-scheduler")}


def test_nobody_may_do_everything(chart: Chart) -> None:
    release = chart.render()
    for role in [*release.all("ClusterRole"), *release.all("Role")]:
        for rule in role["rules"]:
            assert "*" not in rule["verbs"]
            assert "*" not in rule.get("resources", [])
            if "secrets" in rule.get("resources", []):
                assert rule["resourceNames"] == ["gpushare-webhook-tls"]


def test_scheduler_has_the_roles_that_belong_to_its_version(chart: Chart) -> None:
    release = chart.render(namespace="ours")
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        assert subjects_of(release, role) == {("ours", "gpushare-user-scheduler")}


def test_inspecting_needs_one_account_and_one_way(chart: Chart) -> None:
    release = chart.render({"stateApi": {"users": [{"kind": "Group", "name": "ml-platform"}]}})
    token, proxy = release.of("Role", "gpushare-inspect")["rules"]
    assert token["resourceNames"] == ["gpushare-state-reader"]
    assert proxy["resourceNames"] == ["https:gpushare-extender:state"]
    (subject,) = release.of("RoleBinding", "gpushare-inspect")["subjects"]
    assert (subject["kind"], subject["name"]) == ("Group", "ml-platform")


def test_nobody_is_bound_to_inspect_by_default(chart: Chart) -> None:
    assert "gpushare-inspect" not in chart.render().names("RoleBinding")


def test_the_hub_reads_in_its_own_name(chart: Chart) -> None:
    release = chart.render(
        {"stateApi": {"serviceAccounts": [{"namespace": "jupyter", "name": "hub"}]}}
    )
    assert subjects_of(release, "gpushare-state-reader") == {
        ("gpushare", "gpushare-state-reader"),
        ("jupyter", "hub"),
    }


def test_state_reader_gets_no_token_into_a_pod(chart: Chart) -> None:
    account = chart.render().of("ServiceAccount", "gpushare-state-reader")
    assert account["automountServiceAccountToken"] is False
