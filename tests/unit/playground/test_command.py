"""`gpushare playground`, as far as it needs no cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpushare.cli.playground import playground
from playground import capability, packages
from playground.existing import VARIABLE
from playground.packages import PackagesMissing, install_missing
from playground.status import ENDED, RUNNING, ComponentStatus, NodeStatus, Status


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(playground, ["--name", "none", *arguments])


def test_status_of_nothing() -> None:
    result = call("status")
    assert result.exit_code == 3
    assert "'none' is not up" in result.output
    result = call("status", "-o", "json")
    assert json.loads(result.stdout)["up"] is False


def test_kubeconfig_of_nothing_says_what_to_do() -> None:
    result = call("kubeconfig")
    assert result.exit_code == 1
    assert "gpushare playground up" in result.output


def test_kubeconfig_of_the_users_own_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/etc/mine")
    assert call("kubeconfig").stdout.strip() == "/etc/mine"


def test_missing_kubeconfig_of_the_users_own_cluster_is_named(tmp_path: Path) -> None:
    result = call("up", "--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert f"there is no {tmp_path / 'none'}" in result.output
    assert VARIABLE in result.output


def test_silent_cluster_is_reported(tmp_path: Path) -> None:
    from playground import kubeconfigs

    config = kubeconfigs.render("https://127.0.0.1:1", b"", b"", b"", "x")
    del config["users"][0]["user"]["client-certificate-data"]
    del config["users"][0]["user"]["client-key-data"]
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "config").write_text(json.dumps(config))
    result = call("up", "--kubeconfig", str(tmp_path / "config"))
    assert result.exit_code == 1
    assert "does not answer" in result.output


def test_bad_name_is_refused_with_the_setting() -> None:
    result = CliRunner().invoke(playground, ["--name", "../x", "status"])
    assert result.exit_code == 1
    assert "GPUSHARE_PLAYGROUND_NAME" in result.output


def test_machine_that_cannot_run_containers_is_told_what_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capability, "can_run_containers", lambda: "No namespaces here.")
    result = call("up")
    assert result.exit_code == 1
    assert "No namespaces here. `gpushare playground up --simulated-nodes` works" in result.output


def test_reason_for_no_containers_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability.os, "geteuid", lambda: 1000)
    reason = capability.can_run_containers()
    assert reason
    assert "root" in reason
    assert reason.count(".") == 1


def test_dead_component_is_shown_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = ComponentStatus(
        "etcd", ENDED, problem="has ended", log_file="/log/etcd", log=("disk is full",)
    )
    alive = ComponentStatus("kubelet@t4-1", RUNNING, pid=7, seconds=61.2)
    status = Status("none", True, components=(dead, alive), nodes=(NodeStatus("t4-1", True),))
    monkeypatch.setattr("playground.cluster.Cluster.status", lambda self: status)
    result = call("status")
    assert result.exit_code == 1
    assert "| disk is full" in result.output
    assert "/log/etcd" in result.output
    assert "61 s" in result.output


def test_missing_packages_are_named_to_whom_cannot_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "missing", lambda: ["runc", "iptables"])
    monkeypatch.setattr(packages.os, "geteuid", lambda: 1000)
    with pytest.raises(PackagesMissing, match=r"apt-get install .* runc iptables"):
        install_missing(lambda text: None)


def test_every_package_is_asked_for_when_nothing_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_is_there", lambda wanted: False)
    monkeypatch.setattr(packages, "CNI_FOLDERS", ("/nowhere",))
    assert {"runc", "iptables", "containernetworking-plugins", "buildah"} <= set(packages.missing())
