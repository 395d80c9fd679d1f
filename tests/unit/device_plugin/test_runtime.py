"""Does the runtime heed CDI: by versions, and by what became of containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_plugin.edits import env_edits, spec
from device_plugin.runtime import Runtime, by_version
from device_plugin.slice_specs import VARIABLE, Record, SliceSpecs

UID = "0a1b2c3d-0000-4000-8000-000000000001"
CONTAINER = "c" * 64
INFO = {"containerRuntimeVersion": "containerd://1.7.27", "kubeletVersion": "v1.34.1"}
BOARD = {"hostPath": "/run/gpushare/boards/x", "containerPath": "/run/gpushare"}


@pytest.mark.parametrize(
    ("runtime", "kubelet", "expected"),
    [
        ("containerd://2.2.1", "v1.36.3", True),
        ("containerd://1.7.27", "v1.30.0", None),  # as its enable_cdi says
        ("containerd://1.6.28", "v1.30.0", False),
        ("containerd://2.0.0", "v1.28.9", False),  # the kubelet hands on no names
        ("cri-o://1.22.5", "v1.30.0", False),
        ("cri-o://1.31.3", "v1.31.3+k3s1", True),
        ("docker://24.0.7", "v1.30.0", False),
        ("cri-dockerd://0.3", "v1.30.0", None),
        ("containerd://unknown", "v1.30.0", None),
        ("", "", None),
    ],
)
def test_versions(runtime: str, kubelet: str, expected: bool | None) -> None:
    assert by_version(runtime, kubelet) is expected


class Node:
    """A node with one running container of a slice."""

    def __init__(self, root: Path) -> None:
        self.root, self.proc = root, root / "proc"
        self.info: dict[str, Any] = dict(INFO)
        self.specs = SliceSpecs(root, "gpushare")
        self.pods: dict[str, Any] = {}
        self.start(CONTAINER, pid=42)

    def start(self, container: str, pid: int, board: bool = True) -> None:
        status = {"name": "main", "containerID": f"containerd://{container}"}
        self.pods[UID] = {"status": {"containerStatuses": [status | {"state": {"running": {}}}]}}
        record = Record(UID, "jupyter", "alice", "main", ("GPU-a",), {"GPU-a": (1024, 0)})
        edits = env_edits({VARIABLE: record.encode()}) | ({"mounts": [BOARD]} if board else {})
        self.specs.write("abc", spec("gpushare/slice", "abc", edits), record)
        there = self.proc / str(pid)
        there.mkdir(parents=True)
        (there / "cgroup").write_text(f"0::/kubepods/pod{UID}/{container}\n")
        (there / "stat").write_text(f"{pid} (python3) S" + " 0" * 18 + f" {pid} 0\n")
        self.mount(pid, "/proc")

    def mount(self, pid: int, point: str) -> None:
        with (self.proc / str(pid) / "mountinfo").open("a") as file:
            file.write(f"36 35 98:0 /mnt1 {point} rw,noatime master:1 - ext3 /dev/root rw\n")

    def runtime(self, setting: str = "auto") -> Runtime:
        memory = self.root / "run" / "cdi"
        return Runtime(setting, lambda: self.info, self.specs, lambda: self.pods, memory, self.proc)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_container_without_its_board_shows_a_runtime_without_cdi(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = node.runtime()
    told = []
    runtime.listen(lambda: told.append(runtime.cdi))
    assert runtime.cdi is None
    await runtime.look()
    await runtime.look()
    assert runtime.cdi is False
    assert told == [False]
    assert "enable_cdi = true" in caplog.text
    # Mended there: the next container has it.
    node.start("d" * 64, pid=43)
    node.mount(43, "/run/gpushare")
    await runtime.look()
    assert told == [False, True]


async def test_of_several_containers_the_one_that_started_last_counts(node: Node) -> None:
    node.mount(42, "/run/gpushare")
    first, ids = node.pods[UID], UID.replace("1", "2")
    node.start("f" * 64, pid=77)  # a higher pid started later here, and it has no board
    node.pods[ids] = first
    record = Record(ids, "jupyter", "bob", "main", ("GPU-a",), {"GPU-a": (1024, 0)})
    edits = env_edits({VARIABLE: record.encode()}) | {"mounts": [BOARD]}
    node.specs.write("def", spec("gpushare/slice", "def", edits), record)
    (node.proc / "42" / "cgroup").write_text(f"0::/kubepods/pod{ids}/{CONTAINER}\n")
    runtime = node.runtime()
    await runtime.look()
    assert runtime.cdi is False


async def test_a_container_with_its_board_shows_that_all_is_well(node: Node) -> None:
    node.mount(42, "/run/gpushare")
    runtime = node.runtime()
    await runtime.look()
    assert runtime.cdi is True


async def test_a_container_that_was_to_have_no_board_shows_nothing(node: Node) -> None:
    node.start("e" * 64, pid=44, board=False)
    runtime = node.runtime()
    await runtime.look()
    assert runtime.cdi is None


async def test_the_answer_is_kept_for_a_restart_without_the_api_server(node: Node) -> None:
    before = node.runtime()
    await before.look()
    await before.look()  # what is known is kept with the next look
    node.info.clear()
    node.pods.clear()
    assert node.runtime().cdi is False


@pytest.mark.parametrize(("setting", "expected"), [("yes", True), ("no", False)])
async def test_a_setting_counts_for_most(node: Node, setting: str, expected: bool) -> None:
    runtime = node.runtime(setting)
    await runtime.look()
    assert runtime.cdi is expected
