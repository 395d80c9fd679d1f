"""The admission webhook in the chart: which pods are sent to it, and with whose certificate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.chart.rendering import Chart, Refused, Release

HOOK, SCHEDULER = "gpushare-webhook", "gpushare-user-scheduler"


def hook(release: Release) -> dict[str, Any]:
    (found,) = release.of("MutatingWebhookConfiguration", HOOK)["webhooks"]
    assert isinstance(found, dict)
    return found


def settings(release: Release) -> dict[str, Any]:
    data = release.of("ConfigMap", "gpushare-extender")["data"]["config.json"]
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


def test_only_pods_that_ask_for_a_slice_are_sent_to_it(chart: Chart) -> None:
    release = chart.render({"dialects": ["aliyun"]})
    (condition,) = hook(release)["matchConditions"]
    for resource in ("gpushare/gpu-mem", "gpushare/gpu-percent", "aliyun.com/gpu-mem"):
        assert f"'{resource}'" in condition["expression"]
    assert hook(release)["failurePolicy"] == "Fail"


def test_nobody_is_held_up_where_all_pods_are_sent_to_it(chart: Chart) -> None:
    release = chart.render({"webhook": {"voidOthers": True}})
    assert "matchConditions" not in hook(release)
    assert hook(release)["failurePolicy"] == "Ignore"
    assert settings(release)["Webhook"]["void_others"] is True
    release = chart.render({"webhook": {"voidOthers": True, "failurePolicy": "Fail"}})
    assert hook(release)["failurePolicy"] == "Fail"


def test_namespaces_may_opt_out_and_ours_is_never_asked(chart: Chart) -> None:
    out, system = hook(chart.render(namespace="gpu"))["namespaceSelector"]["matchExpressions"]
    assert out == {"key": "gpushare/admission", "operator": "NotIn", "values": ["disabled"]}
    assert system["values"] == ["kube-system", "gpu"]


def test_the_service_leads_to_the_extender(chart: Chart) -> None:
    release = chart.render()
    (port,) = release.of("Service", HOOK)["spec"]["ports"]
    ports = release.container("Deployment", SCHEDULER, "extender")["ports"]
    assert {"name": port["targetPort"], "containerPort": 9443} in ports
    assert settings(release)["Webhook"]["address"].endswith(":9443")
    client = hook(release)["clientConfig"]["service"]
    assert (client["name"], client["port"]) == (HOOK, port["port"])


def test_the_certificate_is_ours_or_cert_managers(chart: Chart) -> None:
    release = chart.render()
    assert "data" not in release.of("Secret", f"{HOOK}-tls")
    assert settings(release)["Webhook"]["secret"] == f"{HOOK}-tls"
    release = chart.render({"tls": {"certManager": {"enabled": True}}})
    assert f"{HOOK}-tls" not in release.names("Secret")
    assert HOOK not in release.names("ClusterRole")
    configuration = release.of("MutatingWebhookConfiguration", HOOK)
    inject = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    certificate = release.of("Certificate", HOOK)
    assert inject == f"gpushare/{certificate['metadata']['name']}"
    volumes = {v["name"]: v for v in release.pod_spec("Deployment", SCHEDULER)["volumes"]}
    assert volumes["webhook"]["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert settings(release)["Webhook"]["tls_cert"] == "/etc/gpushare/webhook/tls.crt"


def test_it_can_be_left_out(chart: Chart) -> None:
    release = chart.render({"webhook": {"enabled": False}})
    assert "Webhook" not in settings(release)
    assert not release.all("MutatingWebhookConfiguration")
    assert HOOK not in {m["metadata"]["name"] for m in release.manifests}


@pytest.mark.parametrize(
    "webhook", [{"failurePolicy": "Never"}, {"cardDelivery": "mail"}, {"timeoutSeconds": 60}]
)
def test_other_values_are_refused(chart: Chart, webhook: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        chart.render({"webhook": webhook})


def test_agents_are_asked_with_their_authority_and_without_their_key(chart: Chart) -> None:
    release = chart.render()
    extender = settings(release)["Extender"]
    assert extender["usage_service"] == "gpushare-device-plugin"
    volumes = {v["name"]: v for v in release.pod_spec("Deployment", SCHEDULER)["volumes"]}
    assert volumes["agents"]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    release = chart.render({"devicePlugin": {"enabled": False}})
    assert "usage_service" not in settings(release)["Extender"]


def test_client_certificates_need_an_authority(chart: Chart) -> None:
    assert "client_ca" not in settings(chart.render())["Extender"]
    release = chart.render({"stateApi": {"clientCA": "clients"}})
    assert settings(release)["Extender"]["client_ca"] == "/etc/gpushare/clients/ca.crt"
    volumes = {v["name"]: v for v in release.pod_spec("Deployment", SCHEDULER)["volumes"]}
    assert volumes["clients"] == {"name": "clients", "configMap": {"name": "clients"}}
