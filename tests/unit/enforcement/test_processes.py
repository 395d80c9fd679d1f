"""Real processes of this machine, and a /proc of our own for cgroups that it does not have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from device_plugin.enforcement.cgroup import Owner
from device_plugin.enforcement.processes import Gone, Processes

from .making import container_id, uid

SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]
OWNER = Owner(uid(1), container_id(1))


class Tree:
    """A /proc that shows real processes in pods' cgroups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, pid: int, cgroup: str, start: int | None = None) -> None:
        there = self.folder / str(pid)
        there.mkdir(parents=True, exist_ok=True)
        stat = Path(f"/proc/{pid}/stat").read_text()
        if start is not None:
            head, _, tail = stat.rpartition(")")
            fields = tail.split()
            fields[19] = str(start)
            stat = f"{head}) {' '.join(fields)}"
        (there / "stat").write_text(stat)
        (there / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t42\n")
        (there / "cgroup").write_text(f"0::{cgroup}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def start() -> Iterator[Callable[[], subprocess.Popen]]:
    started: list[subprocess.Popen] = []

    def run() -> subprocess.Popen:
        started.append(subprocess.Popen(SLEEP))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def in_pod(pod: int, container: int = 0) -> str:
    return f"/kubepods/burstable/pod{uid(pod)}/{container_id(container or pod)}"


@pytest.fixture(params=[True, False], ids=["pidfd", "old kernel"])
def table(request: pytest.FixtureRequest, tree: Tree) -> Iterator[Processes]:
    processes = Processes(tree.folder, pidfds=request.param)
    yield processes
    processes.close()


def test_this_process_is_described() -> None:
    table = Processes()
    me = table.look([os.getpid()])[os.getpid()]
    assert (me.pid, me.own_pid, me.owners) == (os.getpid(), os.getpid(), ())
    assert me.start > 0
    assert me.name
    table.close()


def test_a_pods_process(table: Processes, tree: Tree, start) -> None:
    child = start()
    tree.put(child.pid, in_pod(1))
    found = table.look([child.pid])[child.pid]
    assert (found.owners, found.own_pid) == ((OWNER,), 42)


def test_who_is_not_there_is_left_out(table: Processes) -> None:
    assert table.look([2**22 - 3]) == {}


def test_a_process_that_ended_is_forgotten(table: Processes, tree: Tree, start) -> None:
    child = start()
    tree.put(child.pid, in_pod(1))
    assert table.look([child.pid])
    child.kill()
    child.wait()
    (tree.folder / str(child.pid) / "stat").unlink()
    assert table.look([child.pid]) == {}


def test_a_pid_that_came_back_is_another_process(tree: Tree, start) -> None:
    table = Processes(tree.folder, pidfds=False)
    child = start()
    tree.put(child.pid, in_pod(1))
    first = table.look([child.pid])[child.pid]
    tree.put(child.pid, in_pod(2), start=first.start + 100)
    second = table.look([child.pid])[child.pid]
    assert second.start == first.start + 100
    assert second.owners[0].pod_uid == uid(2)
    with pytest.raises(Gone, match="another one"):
        table.signal(first, True, OWNER)
    assert child.poll() is None


def test_descriptors_are_given_back(tree: Tree, start) -> None:
    before = len(os.listdir("/proc/self/fd"))
    table = Processes(tree.folder)
    pids = []
    for _ in range(5):
        child = start()
        tree.put(child.pid, in_pod(1))
        pids.append(child.pid)
    table.look(pids)
    table.look(pids[:1])
    table.look([])
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_ending(table: Processes, tree: Tree, start) -> None:
    child = start()
    tree.put(child.pid, in_pod(1))
    info = table.look([child.pid])[child.pid]
    table.signal(info, False, OWNER)
    assert child.wait(10) == -signal.SIGTERM


def test_ending_hard(table: Processes, tree: Tree, start) -> None:
    child = start()
    tree.put(child.pid, in_pod(1))
    info = table.look([child.pid])[child.pid]
    table.signal(info, True, OWNER)
    assert child.wait(10) == -signal.SIGKILL


def test_who_left_the_container_is_not_ended(table: Processes, tree: Tree, start) -> None:
    child = start()
    tree.put(child.pid, in_pod(1))
    info = table.look([child.pid])[child.pid]
    tree.put(child.pid, in_pod(2))
    with pytest.raises(Gone, match="left its container"):
        table.signal(info, True, OWNER)
    assert child.poll() is None


def test_who_ended_meanwhile(table: Processes, tree: Tree, start) -> None:
    child = start()
    tree.put(child.pid, in_pod(1))
    info = table.look([child.pid])[child.pid]
    child.kill()
    child.wait()
    if table._pidfds:
        with pytest.raises(Gone):
            table.signal(info, True, OWNER)
    with pytest.raises(Gone):
        table.signal(replace(info, pid=2**22 - 3), True, OWNER)


def test_the_first_process_of_a_container_is_its_oldest(
    table: Processes, tree: Tree, start
) -> None:
    children = [start() for _ in range(4)]
    for age, child in enumerate(children):
        tree.put(child.pid, in_pod(1, container=1 + age // 2), start=1000 - age)
    (tree.folder / "self").mkdir()
    (tree.folder / "99999999").mkdir()  # it ends while we look
    owners = {Owner(uid(1), container_id(1)), Owner(uid(1), container_id(2))}
    assert table.first_of_containers(owners) == {children[1].pid, children[3].pid}
    assert table.first_of_containers({OWNER}) == {children[1].pid}
    assert table.first_of_containers(set()) == frozenset()
