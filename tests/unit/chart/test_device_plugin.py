"""The node agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from device_plugin.app import DevicePlugin
from device_plugin.enforcement.settings import Enforcement
from tests.unit.chart.rendering import Chart, Refused, Release

NAME = "gpushare-device-plugin"


def container(release: Release) -> dict[str, Any]:
    return release.container("DaemonSet", NAME, "device-plugin")


def mounts(release: Release) -> dict[str, tuple[str, bool]]:
    """Folder of the node → where the agent sees it, and whether it may write."""
    volumes = {
        volume["name"]: volume["hostPath"]["path"]
        for volume in release.pod_spec("DaemonSet", NAME)["volumes"]
        if "hostPath" in volume
    }
    return {
        volumes[mount["name"]]: (mount["mountPath"], not mount.get("readOnly", False))
        for mount in container(release)["volumeMounts"]
        if mount["name"] in volumes
    }


def settings(release: Release, section: str = "DevicePlugin") -> dict[str, Any]:
    config = json.loads(release.of("ConfigMap", NAME)["data"]["config.json"])[section]
    assert isinstance(config, dict)
    return config


def test_it_sees_the_kubelet_the_driver_and_cdi(chart: Chart) -> None:
    assert mounts(chart.render()) == {
        "/var/lib/kubelet/device-plugins": ("/var/lib/kubelet/device-plugins", True),
        "/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", False),
        "/run/gpushare": ("/run/gpushare", True),
        "/": ("/driver", False),
        "/var/run/cdi": ("/var/run/cdi", True),
        "/etc/cdi": ("/etc/cdi", False),
    }


def test_settings_exist_and_fit_the_mounts(chart: Chart) -> None:
    release = chart.render({"devicePlugin": {"cdiDirs": ["/etc/cdi", "/run/cdi"]}})
    config = settings(release)
    assert config.keys() <= DevicePlugin.class_traits(config=True).keys()
    inside = dict(mounts(release).values())
    assert inside[config["cdi_spec_dir"]] is True
    assert set(config["cdi_dirs"]) <= inside.keys()
    assert config["driver_root"] in inside
    defaults = DevicePlugin()
    assert defaults.kubelet_dir in inside
    assert defaults.podresources_socket.rsplit("/", 1)[0] in inside


def test_kubelet_elsewhere_looks_the_same_inside(chart: Chart) -> None:
    release = chart.render({"devicePlugin": {"kubeletRoot": "/var/lib/k0s/kubelet"}})
    assert mounts(release)["/var/lib/k0s/kubelet/device-plugins"] == (
        "/var/lib/kubelet/device-plugins",
        True,
    )


def test_it_runs_where_cards_are_shared_and_stays(chart: Chart) -> None:
    spec = chart.render().pod_spec("DaemonSet", NAME)
    assert spec["nodeSelector"] == {"gpushare/enabled": "true"}
    assert spec["priorityClassName"] == "system-node-critical"
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]


def test_nodes_are_chosen_by_label_and_selector(chart: Chart) -> None:
    def selector(values: dict[str, Any]) -> object:
        release = chart.render({"devicePlugin": values})
        return release.pod_spec("DaemonSet", NAME).get("nodeSelector")

    assert selector({"nodeLabel": ""}) is None
    assert selector({"nodeLabel": "", "nodeSelector": {"pool": "t4"}}) == {"pool": "t4"}
    assert selector({"nodeSelector": {"pool": "t4"}}) == {"gpushare/enabled": "true", "pool": "t4"}


@pytest.mark.parametrize("access", ["runtime", "none"])
def test_it_is_confined_unless_told(chart: Chart, access: str) -> None:
    release = chart.render({"devicePlugin": {"access": access}})
    assert container(release)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["KILL"]},
    }
    spec = release.pod_spec("DaemonSet", NAME)
    assert not spec.keys() & {"hostNetwork", "hostIPC"}


def test_agent_that_ends_nothing_cannot(chart: Chart) -> None:
    release = chart.render({"devicePlugin": {"access": "none", "enforcement": "advisory"}})
    assert container(release)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert settings(release, "Enforcement")["level"] == "advisory"


def test_enforcement_settings_exist(chart: Chart) -> None:
    release = chart.render()
    config = settings(release, "Enforcement")
    assert config.keys() <= Enforcement.class_traits(config=True).keys()
    inside = {m["mountPath"] for m in container(release)["volumeMounts"]}
    assert config["state_dir"] in inside
    assert config["tls_cert"].rsplit("/", 1)[0] in inside


def test_mps_has_a_daemon_set_of_its_own(chart: Chart) -> None:
    release = chart.render({"devicePlugin": {"enforcement": "mps", "access": "runtime"}})
    daemon_set = release.of("DaemonSet", "gpushare-mps")
    # A restart ends every GPU program of the node.
    assert daemon_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    agent, mps = (release.pod_spec("DaemonSet", name) for name in (NAME, "gpushare-mps"))
    for key in ("nodeSelector", "tolerations", "runtimeClassName"):
        assert mps[key] == agent[key]
    assert mps["automountServiceAccountToken"] is False
    config = settings(release, "Enforcement")
    assert config["level"] == "mps"
    folders = {m["mountPath"] for m in mps["containers"][0]["volumeMounts"]}
    assert {config["state_dir"], "/dev/shm"} <= folders
    options = dict(arg.split("=", 1) for arg in mps["containers"][0]["args"])
    assert config["mps_socket"] == f"{options['--folder']}/host.sock"
    assert config["mps_shm_dir"] == options["--shm"]


def test_mps_is_there_only_when_wanted(chart: Chart) -> None:
    assert "gpushare-mps" not in chart.render().names("DaemonSet")
    with pytest.raises(Refused, match=r"enforcement is mps.*RuntimeClass"):
        chart.render({"devicePlugin": {"enforcement": "mps", "access": "privileged"}})


def test_extender_finds_every_agent(chart: Chart) -> None:
    release = chart.render()
    service = release.of("Service", NAME)
    assert service["spec"]["clusterIP"] == "None", "one answer would be one node's"
    (port,) = service["spec"]["ports"]
    assert settings(release, "Enforcement")["usage_address"].endswith(f":{port['port']}")
    ports = {p["name"]: p["containerPort"] for p in container(release)["ports"]}
    assert ports[port["targetPort"]] == port["port"]


def test_ways_to_the_cards(chart: Chart) -> None:
    def template(access: str) -> dict[str, Any]:
        release = chart.render({"devicePlugin": {"access": access}})
        found = release.of("DaemonSet", NAME)["spec"]["template"]
        assert isinstance(found, dict)
        return found

    runtime = template("runtime")["spec"]
    assert runtime["runtimeClassName"] == "nvidia"
    env = {e["name"]: e.get("value") for e in runtime["containers"][0]["env"]}
    assert env["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert "driver" not in {v["name"] for v in runtime["volumes"]}, "the runtime brings the driver"
    privileged = template("privileged")["spec"]["containers"][0]["securityContext"]
    assert privileged == {"privileged": True, "readOnlyRootFilesystem": True}
    # Without a cluster to ask, the way that needs nothing of it.
    assert template("auto") == template("privileged")


def test_it_knows_its_node(chart: Chart) -> None:
    fields = {
        e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"]
        for e in container(chart.render())["env"]
        if "valueFrom" in e
    }
    assert fields["NODE_NAME"] == "spec.nodeName"


def test_settings_of_the_admin_win(chart: Chart) -> None:
    release = chart.render(
        {"devicePlugin": {"config": {"DevicePlugin": {"unit": "MiB", "log_level": "DEBUG"}}}}
    )
    config = settings(release)
    assert (config["unit"], config["log_level"], config["prefix"]) == ("MiB", "DEBUG", "gpushare")


def test_it_can_be_left_out(chart: Chart) -> None:
    release = chart.render({"devicePlugin": {"enabled": False}})
    assert release.all("DaemonSet") == []
    assert "gpushare-device-plugin" not in release.names("ClusterRole")
