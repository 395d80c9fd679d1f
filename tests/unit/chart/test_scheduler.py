"""The pair of kube-scheduler and extender."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from extender.app import Extender
from extender.scheduler_config import MTLS, PROXY
from gpushare.names import SCHEDULER_NAME, Names
from tests.unit.chart.rendering import Chart, Refused, Release

NAME = SCHEDULER_NAME


def scheduler_config(release: Release) -> dict[str, Any]:
    config = yaml.safe_load(release.of("ConfigMap", NAME)["data"]["config.yaml"])
    assert isinstance(config, dict)
    return config


def extender_config(release: Release) -> dict[str, Any]:
    config = json.loads(release.of("ConfigMap", "gpushare-extender")["data"]["config.json"])
    assert isinstance(config, dict)
    return config


def test_scheduler_asks_the_extender_about_our_resources_alone(chart: Chart) -> None:
    config = scheduler_config(chart.render())
    assert [p["schedulerName"] for p in config["profiles"]] == [SCHEDULER_NAME]
    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == "http://127.0.0.1:39999/scheduler"
    assert {m["name"] for m in extender["managedResources"]} == set(Names().resources)
    assert extender["bindVerb"] == "bind"
    # Otherwise pods would be bound without a card while the extender is away.
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True


def test_every_node_is_offered_to_the_extender(chart: Chart) -> None:
    assert scheduler_config(chart.render())["percentageOfNodesToScore"] == 100


def test_both_sides_agree_on_names_and_addresses(chart: Chart) -> None:
    release = chart.render(
        {"prefix": "gpu.example.org", "unit": "256MiB", "schedulerName": "cards"}
    )
    (extender,) = scheduler_config(release)["extenders"]
    settings = extender_config(release)["Extender"]
    assert extender["urlPrefix"] == f"http://{settings['verbs_address']}/scheduler"
    assert {m["name"] for m in extender["managedResources"]} == set(
        Names("gpu.example.org").resources
    )
    assert settings["prefix"] == "gpu.example.org"
    assert settings["unit"] == "256MiB"
    assert scheduler_config(release)["profiles"][0]["schedulerName"] == "cards"


def test_settings_exist(chart: Chart) -> None:
    assert (
        extender_config(chart.render())["Extender"].keys()
        <= Extender.class_traits(config=True).keys()
    )


def test_lease_lies_beside_the_scheduler(chart: Chart) -> None:
    election = scheduler_config(chart.render(namespace="elsewhere"))["leaderElection"]
    assert (election["resourceNamespace"], election["resourceName"]) == ("elsewhere", NAME)


def test_settings_of_the_admin_win(chart: Chart) -> None:
    release = chart.render({"extender": {"config": {"Extender": {"log_level": "DEBUG"}}}})
    settings = extender_config(release)["Extender"]
    assert settings["log_level"] == "DEBUG"
    assert settings["tls_cert"] == "/etc/gpushare/tls/tls.crt"


@pytest.mark.parametrize(
    ("kubernetes", "tag"), [("1.33.5-gke.1080000", "v1.33.5"), ("1.34.2-eks-1234", "v1.34.2")]
)
def test_scheduler_has_the_version_of_the_cluster(chart: Chart, kubernetes: str, tag: str) -> None:
    release = chart.render(kubernetes=kubernetes)
    image = release.container("Deployment", NAME, "scheduler")["image"]
    assert image == f"registry.k8s.io/kube-scheduler:{tag}"


def test_pods_are_confined(chart: Chart) -> None:
    release = chart.render()
    spec = release.pod_spec("Deployment", NAME)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "hostNetwork" not in spec
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


def test_only_the_extender_holds_the_key(chart: Chart) -> None:
    release = chart.render()
    mounts = {
        c["name"]: {m["name"] for m in c["volumeMounts"]}
        for c in release.pod_spec("Deployment", NAME)["containers"]
    }
    assert "tls" in mounts["extender"]
    assert "tls" not in mounts["scheduler"]


def test_verbs_have_no_port(chart: Chart) -> None:
    release = chart.render()
    ports = [
        port["containerPort"]
        for container in release.pod_spec("Deployment", NAME)["containers"]
        for port in container.get("ports", [])
    ]
    assert 39999 not in ports
    service = release.of("Service", "gpushare-extender")
    assert [(p["name"], p["port"]) for p in service["spec"]["ports"]] == [("state", 8443)]
    assert service["spec"].get("type", "ClusterIP") == "ClusterIP"


def test_new_settings_make_new_pods(chart: Chart) -> None:
    def checksum(values: dict[str, Any]) -> str:
        template = chart.render(values).of("Deployment", NAME)["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({})
    assert checksum({}) != checksum({"scheduler": {"weight": 3}})


def outside(chart: Chart, by: str, **more: object) -> Release:
    return chart.render({"scheduler": {"asked": {"by": by, **more}}})


def test_cluster_s_own_scheduler_is_served_by_certificate(chart: Chart) -> None:
    release = outside(chart, "mtls", clientCA="callers")
    (extender,) = release.pod_spec("Deployment", "gpushare-user-scheduler")["containers"]
    assert extender["name"] == "extender"
    settings = extender_config(release)["Extender"]
    assert settings["verbs_tls_address"] == "0.0.0.0:39998"
    assert settings["verbs_client_ca"] == "/etc/gpushare/callers/ca.crt"
    assert settings["verbs_client_names"] == ["system:kube-scheduler"]
    assert "verbs_secret" not in settings
    assert {"name": "callers", "configMap": {"name": "callers"}} in release.pod_spec(
        "Deployment", "gpushare-user-scheduler"
    )["volumes"]
    with pytest.raises(Refused, match=r"scheduler\.asked\.clientCA is not set"):
        outside(chart, "mtls")


def test_through_the_proxy_only_with_the_secret(chart: Chart) -> None:
    release = outside(chart, "proxy")
    secret = release.of("Secret", "gpushare-extender-verbs")["data"]["secret"]
    assert len(base64.b64decode(secret)) == 48
    settings = extender_config(release)["Extender"]
    assert settings["verbs_secret"] == "/etc/gpushare/callers/secret"
    (rule,) = release.of("Role", "gpushare-extender-verbs")["rules"]
    assert rule["resourceNames"] == ["https:gpushare-extender:verbs"]
    own = outside(chart, "proxy", existingSecret="mine")
    assert "gpushare-extender-verbs" not in own.names("Secret")


@pytest.mark.parametrize(("by", "more"), [("mtls", {"clientCA": "callers"}), ("proxy", {})])
def test_one_extender_and_no_scheduler_of_ours(
    chart: Chart, by: str, more: dict[str, object]
) -> None:
    """Two extenders without a lease would give away the same memory twice."""
    release = outside(chart, by, **more)
    deployment = release.of("Deployment", "gpushare-user-scheduler")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    assert "gpushare-user-scheduler" not in release.names("ConfigMap")
    roles = {b["roleRef"]["name"] for b in release.all("ClusterRoleBinding")}
    assert not roles & {"system:kube-scheduler", "system:volume-scheduler"}
    ports = {
        p["name"]: p["port"] for p in release.of("Service", "gpushare-extender")["spec"]["ports"]
    }
    assert ports == {"state": 8443, "verbs": 39998}
    ingress = release.of("NetworkPolicy", "gpushare-user-scheduler")["spec"]["ingress"]
    assert {"ports": [{"protocol": "TCP", "port": "verbs"}]} in ingress


def test_printed_configuration_leads_to_the_service(chart: Chart) -> None:
    """What the extender prints for others, against what the chart makes."""
    release = outside(chart, "mtls", clientCA="callers")
    service = release.of("Service", "gpushare-extender")
    (port,) = (p["port"] for p in service["spec"]["ports"] if p["name"] == "verbs")
    assert MTLS.url == f"https://gpushare-extender.gpushare.svc:{port}/scheduler"
    assert "/services/https:gpushare-extender:verbs/proxy/" in PROXY.url
