"""Paths as the kubelet, containerd, CRI-O and Docker really make them, and hostile ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.cgroup import Owner, choose, owners, owners_of_path

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
SYSTEMD = UID.replace("-", "_")
CID = "c0ffee" + "0123456789abcdef" * 3 + "0123456789"
OTHER = "99999999-8888-7777-6666-555555555555"
MINE = Owner(UID, CID)

PATHS = {
    "cgroupfs, guaranteed": f"/kubepods/pod{UID}/{CID}",
    "cgroupfs, burstable": f"/kubepods/burstable/pod{UID}/{CID}",
    "cgroupfs, own root": f"/gpushare/t4-1/kubepods/besteffort/pod{UID}/{CID}",
    "systemd, containerd": f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice"
    f"/cri-containerd-{CID}.scope",
    "systemd, guaranteed": f"/kubepods.slice/kubepods-pod{SYSTEMD}.slice/cri-containerd-{CID}.scope",
    "systemd, CRI-O": f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SYSTEMD}.slice"
    f"/crio-{CID}.scope",
    "systemd, CRI-O, systemd inside": f"/kubepods.slice/kubepods-pod{SYSTEMD}.slice/crio-{CID}.scope"
    "/container",
    "cgroupfs, CRI-O": f"/kubepods/burstable/pod{UID}/crio-{CID}",
    "systemd, Docker": f"/kubepods.slice/kubepods-pod{SYSTEMD}.slice/docker-{CID}.scope",
    "systemd kubelet, cgroupfs containerd": f"/system.slice/containerd.service"
    f"/kubepods-burstable-pod{SYSTEMD}.slice:cri-containerd:{CID}",
    "own cgroup namespace": f"/../../kubepods-burstable-pod{SYSTEMD}.slice/cri-containerd-{CID}.scope",
    "own cgroup namespace, cgroupfs": f"/../../pod{UID}/{CID}",
    "nested runtime": f"/kubepods/burstable/pod{UID}/{CID}/docker/{'d' * 64}",
    "systemd in the container": f"/kubepods/pod{UID}/{CID}/init.scope",
    "nested parent name": f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SYSTEMD}.slice"
    f"/cri-containerd-{CID}.scope",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_path_of_a_container(path: str) -> None:
    assert owners_of_path(path)[0] == MINE


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_both_versions_of_proc(path: str) -> None:
    assert owners(f"0::{path}\n")[0] == MINE
    v1 = f"12:pids:{path}\n11:cpu,cpuacct:{path}\n4:memory:{path}\n1:name=systemd:{path}\n0::/\n"
    assert owners(v1)[0] == MINE


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/init.scope",
        "/user.slice/user-1000.slice/session-3.scope",
        "/system.slice/docker.service",
        f"/docker/{CID}",
        f"/system.slice/docker-{CID}.scope",
        "/kubepods.slice/kubepods-burstable.slice",
        "/kubepods/burstable",
        "/machine.slice/libpod-pod_1234.slice",
        "/podman/podinfo",
    ],
)
def test_host_processes_have_no_pod(path: str) -> None:
    assert owners(f"0::{path}\n") == ()


def test_static_pod_has_a_hash_for_its_uid() -> None:
    assert owners_of_path(f"/kubepods/burstable/pod{'a1' * 16}/{CID}") == (Owner("a1" * 16, CID),)


def test_monitor_of_a_container_is_not_in_it() -> None:
    path = f"/kubepods.slice/kubepods-pod{SYSTEMD}.slice/crio-conmon-{CID}.scope"
    assert owners_of_path(path) == (Owner(UID, ""),)


def test_a_pod_inside_a_pod_cannot_take_another_ones_name() -> None:
    forged = f"/kubepods/pod{UID}/{CID}/kubepods/pod{OTHER}/{'e' * 64}"
    found = owners_of_path(forged)
    assert found == (MINE, Owner(OTHER, "e" * 64))
    assert choose(found, {UID, OTHER}) == MINE


def test_a_cluster_inside_a_pod_knows_only_its_own_pods() -> None:
    found = owners_of_path(f"/kubepods/pod{OTHER}/{'e' * 64}/kubelet/kubepods/pod{UID}/{CID}")
    assert choose(found, {UID}) == MINE
    assert choose(found, set()) == Owner(OTHER, "e" * 64)
    assert choose((), {UID}) is None


def test_where_controllers_disagree_devices_and_memory_are_believed() -> None:
    text = (
        f"3:name=systemd:/kubepods/pod{OTHER}/{CID}\n"
        f"5:memory:/kubepods/pod{UID}/{CID}\n"
        f"6:freezer:/kubepods/pod{OTHER}/{CID}\n"
    )
    assert owners(text)[0] == MINE


@given(
    st.lists(st.sampled_from(["kubepods", "burstable", "x.slice", "a-b", "..", ""]), max_size=4),
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="/\n"), max_size=30), max_size=4
    ),
)
def test_anything_above_and_below(above: list[str], below: list[str]) -> None:
    path = "/" + "/".join([*above, f"pod{UID}", CID, *below])
    assert owners_of_path(path)[0] == MINE


@given(st.text(max_size=300))
def test_garbage_is_nobodys(text: str) -> None:
    assert all(isinstance(o, Owner) for o in owners(text))
