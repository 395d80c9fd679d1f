"""What the playground reads from, and changes on, the machine."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from playground.cgroups import Hierarchy, parse_hierarchies
from playground.description import Description
from playground.folders import Folders
from playground.host import RAISED, Host
from playground.locks import exclusive
from playground.mounts import StillMounted, parse_mount_points, remove_tree
from playground.node_space import mount_script
from playground.nodes import DEFAULT_NODES

HYBRID = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
30 29 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu
31 29 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
39 29 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
40 27 0:26 / /somewhere/else rw - cgroup cgroup rw,cpu
41 27 8:1 / /with\\040space rw - ext4 /dev/sda1 rw
"""
UNIFIED = "35 24 0:30 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_every_hierarchy_is_found_once() -> None:
    assert parse_hierarchies(HYBRID) == [
        Hierarchy(Path("/sys/fs/cgroup/cpu"), 1),
        Hierarchy(Path("/sys/fs/cgroup/memory"), 1),
        Hierarchy(Path("/sys/fs/cgroup/unified"), 2),
    ]
    assert parse_hierarchies(UNIFIED) == [Hierarchy(Path("/sys/fs/cgroup"), 2)]


def test_mount_points_are_read_with_their_spaces() -> None:
    assert parse_mount_points(HYBRID)[-1] == Path("/with space")


def test_nothing_is_removed_through_a_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "state" / "node" / "host"
    inside.mkdir(parents=True)
    monkeypatch.setattr("playground.mounts.mount_points", lambda below: [inside])
    with pytest.raises(StillMounted, match="node/host"):
        remove_tree(tmp_path / "state")
    assert inside.exists()


def test_tree_is_removed_without_following_links(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    state = tmp_path / "state"
    (state / "deep").mkdir(parents=True)
    (state / "deep" / "link").symlink_to(kept)
    with open(os.fsencode(state) + b"/no\xfftext", "w"):
        pass
    remove_tree(state)
    assert not state.exists()
    assert (kept / "file").exists()
    remove_tree(state)  # it need not be there


def test_mounts_are_shared_only_when_all_are_made() -> None:
    script = mount_script(Folders(Path("/s/a b")), [(Path("/s/a b/x"), Path("/run/x"))])
    lines = script.splitlines()
    assert lines[0] == "set -e"
    assert lines[-1] == "mount --make-rshared /"
    assert "mount --bind '/s/a b/x' /run/x" in lines
    assert lines.index("mkdir -p /run/x") > next(i for i, x in enumerate(lines) if "tmpfs" in x)


def test_description_survives_its_file(tmp_path: Path) -> None:
    description = Description(simulated=True, boot="b", nodes=DEFAULT_NODES)
    description.write(tmp_path / "p.json")
    assert Description.read(tmp_path / "p.json") == description


@pytest.mark.parametrize("content", ["", "null", "{}", '{"simulated": 1, "boot": 2, "nodes": [3]}'])
def test_broken_description_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.json").write_text(content)
    assert Description.read(tmp_path / "p.json") is None


class TestHost:
    @pytest.fixture
    def settings(self, tmp_path: Path) -> Path:
        for name, value in {"vm/overcommit_memory": "0", **dict.fromkeys(RAISED, "128")}.items():
            file = tmp_path / "sys" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        return tmp_path / "sys"

    def test_last_playground_takes_everything_back(self, tmp_path: Path, settings: Path) -> None:
        host, mounted = Host(tmp_path / "home", settings), tmp_path / "lib" / "kubelet"
        limit = settings / next(iter(RAISED))
        for name in ("one", "two"):
            (host.home / name).mkdir(parents=True)
            host.prepare([str(mounted)])
            (settings / "vm/overcommit_memory").write_text("1\n")  # as a kubelet does
        assert limit.read_text() == "1024"
        (host.home / "one").rmdir()
        host.restore()
        assert mounted.exists()
        (host.home / "two").rmdir()
        host.restore()
        assert not mounted.exists()
        assert (settings / "vm/overcommit_memory").read_text() == "0"
        assert limit.read_text() == "128"
        host.tidy()
        assert not host.home.exists()

    def test_what_others_changed_since_stays(self, tmp_path: Path, settings: Path) -> None:
        host, mounted = Host(tmp_path / "home", settings), tmp_path / "kubelet"
        host.home.mkdir()
        host.prepare([str(mounted)])
        (settings / "vm/overcommit_memory").write_text("2\n")
        (mounted / "theirs").touch()
        host.restore()
        assert (settings / "vm/overcommit_memory").read_text() == "2\n"
        assert (mounted / "theirs").exists()

    def test_folder_that_was_there_stays(self, tmp_path: Path, settings: Path) -> None:
        host, mounted = Host(tmp_path / "home", settings), tmp_path / "kubelet"
        mounted.mkdir()
        host.home.mkdir()
        host.prepare([str(mounted)])
        host.restore()
        assert mounted.exists()

    def test_high_limit_is_left_alone(self, tmp_path: Path, settings: Path) -> None:
        host, limit = Host(tmp_path / "home", settings), settings / next(iter(RAISED))
        host.home.mkdir()
        limit.write_text("8192\n")
        host.prepare([])
        assert limit.read_text() == "8192\n"


def test_lock_is_held_by_one_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with exclusive(path):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert not path.exists()
