"""The keeper of MPS daemons over the stand-in of NVIDIA's control program: real processes, real
pipes, real logs; only CUDA is missing."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from device_plugin.enforcement.messages import Message
from device_plugin.enforcement.mps.daemon import Users
from device_plugin.enforcement.mps.host import EXCLUSIVE_PROCESS, HostError, LocalHost
from device_plugin.enforcement.mps.keeper import MpsCard, MpsKeeper
from device_plugin.enforcement.mps.wire import HostServer, RemoteHost
from device_plugin.enforcement.slices import Slice
from device_plugin.refusal import Refused
from gpushare.placement import ContainerPlacement, Share
from gpushare.pods import PodRef
from gpushare.request import Role
from playground.mps import install

from .making import CARD, OTHER_CARD, pod_slice


class Modes:
    def __init__(self) -> None:
        self.modes: dict[str, int] = {CARD: 0, OTHER_CARD: 0}
        self.refuses = False

    async def get(self, card: str) -> int:
        return self.modes[card]

    async def set(self, card: str, mode: int) -> None:
        if self.refuses:
            raise HostError("the compute mode cannot be set; setting it needs root")
        self.modes[card] = mode


class Node:
    """A node's slices, and a keeper over the stand-in."""

    def __init__(self, folder: Path, users: Users = Users.AUTO, stand_in: str = "") -> None:
        self.folder, self.users = folder, users
        self.program = install(folder / "bin")
        self.environment = {"STAND_IN_MPS": stand_in}
        self.modes = Modes()
        self.slices: dict[str, Slice] = {}
        self.told: list[tuple[PodRef, str, Message]] = []
        self.blamed: list[tuple[str, str]] = []
        self.now = 0.0
        self.capability = "7.5"
        self.host, self.keeper = self.restart()

    def restart(self) -> tuple[LocalHost, MpsKeeper]:
        """As after a restart of the plugin: the daemons run on."""
        self.host = LocalHost(
            str(self.program), self.folder / "mps", self.folder / "shm", self.modes,
            own_shm=False, environment=self.environment,
        )  # fmt: skip
        self.keeper = MpsKeeper(
            self.host,
            self.users,
            1000,
            lambda: self.slices,
            lambda its, card: its.mib(card),
            lambda: (CARD, OTHER_CARD),
            lambda card: MpsCard("T4 card 0", "Tesla T4", self.capability),
            lambda pod, card, message: self.told.append((pod, card, message)),
            lambda card, problem: self.blamed.append((card, problem)),
            lambda: self.now,
        )
        return self.host, self.keeper

    async def start(self, its: Slice, card: str = CARD) -> dict[str, Any]:
        """A container of the slice starts."""
        share = Share(card, its.mib(card), its.percent(card))
        edits = await self.keeper.before_start(
            its, ContainerPlacement("notebook", Role.APP, (share,))
        )
        self.slices[its.pod.uid] = its
        return edits

    async def look(self) -> None:
        self.now += 10
        await self.keeper.look()

    def stop(self, its: Slice) -> None:
        del self.slices[its.pod.uid]

    async def program_runs(
        self, pid: int, edits: dict[str, Any], uid: int = 1000, **changed: str
    ) -> str:
        """A CUDA program starts in the container of ``edits``; what it gets: 'MIB PERCENT'."""
        env = dict(entry.split("=", 1) for entry in edits["env"]) | changed
        mib = env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=").partition("=")[2].rstrip("M")
        percent = env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
        return (
            await self.host.command(CARD, f"simulate_client {pid} {uid} {mib} {percent}")
        ).strip()

    async def pid(self, card: str = CARD) -> int:
        return await self.host.alive(card)


@pytest.fixture
async def node() -> AsyncIterator[Callable[..., Node]]:
    made: list[Node] = []
    # Not tmp_path: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="mps") as folder:

        def make(**options: Any) -> Node:
            made.append(Node(Path(folder, str(len(made))), **options))
            return made[-1]

        yield make
        for one in made:
            for card in (CARD, OTHER_CARD):
                one.modes.refuses = False
                await one.host.stop(card)


async def test_a_program_gets_its_slice_and_cannot_get_more_than_the_server_gives(node) -> None:
    here = node()
    edits = await here.start(pod_slice(1, 3072, percent=25))
    assert await here.program_runs(50, edits) == "3072 25"
    # With a changed environment, the server's limits are what is left: here the slice's own.
    assert await here.program_runs(51, {"env": []}) == "3072 25"
    assert here.keeper.held_by(here.slices[pod_slice(1).pod.uid], CARD) == (
        "mps-server",
        "mps-server",
    )


async def test_beside_a_larger_slice_a_smaller_one_is_held_by_its_environment(node) -> None:
    here = node()
    small, large = pod_slice(1, 3072), pod_slice(2, 7168)
    edits = await here.start(small)
    await here.start(large)
    assert await here.program_runs(50, edits) == "3072 100"
    assert await here.program_runs(51, {"env": []}) == "7168 100"
    assert here.keeper.held_by(small, CARD)[0] == "mps-client"
    assert here.keeper.held_by(large, CARD)[0] == "mps-server"
    here.stop(large)
    await here.look()
    assert await here.program_runs(52, {"env": []}) == "3072 100"
    assert here.keeper.held_by(small, CARD)[0] == "mps-server"


async def test_the_card_is_exclusive_while_it_is_shared_and_as_before_after_that(node) -> None:
    here = node()
    its = pod_slice(1)
    await here.start(its)
    assert here.modes.modes[CARD] == EXCLUSIVE_PROCESS
    here.stop(its)
    await here.look()
    assert await here.pid()  # it may be wanted again in a moment
    here.now += 30
    await here.look()
    assert not await here.pid()
    assert here.modes.modes[CARD] == 0


async def test_each_card_has_a_daemon_of_its_own(node) -> None:
    here = node()
    await here.start(pod_slice(1))
    await here.start(pod_slice(2, card=OTHER_CARD), OTHER_CARD)
    pids = {await here.pid(CARD), await here.pid(OTHER_CARD)}
    assert len(pids) == 2
    assert 0 not in pids
    environ = _read(await here.pid(OTHER_CARD), "environ").split("\0")
    assert f"CUDA_VISIBLE_DEVICES={OTHER_CARD}" in environ


async def test_a_running_daemon_is_used_on_after_a_restart(node) -> None:
    here = node()
    edits = await here.start(pod_slice(1, 3072))
    await here.program_runs(50, edits)
    before = await here.pid()
    here.restart()
    await here.look()
    assert await here.pid() == before
    clients = await here.host.command(CARD, f"get_client_list {here.keeper.pids(CARD)[1]}")
    assert clients.split() == ["50"]
    assert here.blamed == []
    assert here.keeper.held_by(here.slices[pod_slice(1).pod.uid], CARD)[0] == "mps-server"


async def test_a_daemon_that_nobody_needs_after_a_restart_is_ended(node) -> None:
    here = node()
    its = pod_slice(1)
    await here.start(its)
    here.stop(its)
    here.restart()
    for _ in range(5):
        await here.look()
    assert not await here.pid()
    assert here.modes.modes[CARD] == 0


async def test_a_dead_daemon_is_the_cards_fault_and_comes_back(node) -> None:
    here = node()
    await here.start(pod_slice(1))
    dead = await here.pid()
    await _kill(dead)
    await here.look()
    assert here.blamed[0] == (CARD, "MPS: its MPS control daemon has ended")
    assert here.blamed[-1] == (CARD, "")
    assert await here.pid() not in (0, dead)
    ((pod, _, message),) = here.told
    assert pod.name == "jupyter-user1"
    assert "restart the kernels" in message.text


async def test_a_dead_server_is_replaced(node) -> None:
    here = node()
    await here.start(pod_slice(1, 3072))
    _, server = here.keeper.pids(CARD)
    await _kill(server)
    await here.look()
    await here.start(pod_slice(2, 3072))
    assert here.keeper.pids(CARD)[1] != server


async def test_a_fault_of_one_program_is_told_to_its_neighbours(node) -> None:
    here = node()
    edits = await here.start(pod_slice(1))
    await here.start(pod_slice(2))
    await here.program_runs(50, edits)
    await here.program_runs(51, edits)
    await here.look()
    await here.host.command(CARD, "simulate_fault 50")
    await here.look()
    await here.look()  # the list of clients in the log is complete when nothing follows
    assert [pod.name for pod, _, _ in here.told] == ["jupyter-user1", "jupyter-user2"]
    assert "fatal GPU error" in here.told[0][2].text


async def test_a_client_is_terminated_before_it_is_ended(node) -> None:
    here = node()
    edits = await here.start(pod_slice(1))
    await here.program_runs(50, edits)
    await here.program_runs(51, edits)
    await here.keeper.before_end(CARD, 50)
    await here.host.command(CARD, "simulate_kill 50")
    await here.look()
    assert here.keeper.problems() == []
    # Without that, the server is left in a state that its clients suffer from.
    await here.host.command(CARD, "simulate_kill 51")
    await here.look()
    assert "blocked by a fault" in here.blamed[0][1]
    await here.look()
    assert here.blamed[-1] == (CARD, "")


async def test_many_users_where_the_driver_can(node) -> None:
    here = node()
    edits = await here.start(pod_slice(1, user=None))
    assert await here.program_runs(50, edits, uid=1000) == "1024 100"
    assert await here.program_runs(51, edits, uid=2000) == "1024 100"


async def test_one_user_where_it_cannot(node) -> None:
    here = node(stand_in="old")
    edits = await here.start(pod_slice(1, user=1000))
    assert await here.program_runs(50, edits, uid=1000) == "1024 100"
    assert await here.program_runs(51, edits, uid=2000) == "waits"  # which is why:
    with pytest.raises(Refused, match="runAsUser: 1000"):
        await here.start(pod_slice(2, user=2000))


async def test_many_users_demanded_of_a_driver_that_cannot(node) -> None:
    here = node(stand_in="old", users=Users.MANY)
    with pytest.raises(Refused, match="mps_users to 'one'"):
        await here.start(pod_slice(1))


async def test_a_whole_card_runs_without(node) -> None:
    here = node()
    its = pod_slice(1)
    await here.start(its)
    here.stop(its)
    assert await here.start(pod_slice(2, 15360, percent=100)) == {}
    assert not await here.pid()
    assert here.modes.modes[CARD] == 0


async def test_an_old_card_is_refused(node) -> None:
    here = node()
    here.capability = "6.1"
    with pytest.raises(Refused, match="level to 'watchdog'"):
        await here.start(pod_slice(1))
    assert not await here.pid()


async def test_a_driver_without_the_program_is_refused(node) -> None:
    here = node()
    here.program.unlink()
    with pytest.raises(Refused, match=r"Enforcement\.mps_control"):
        await here.start(pod_slice(1))
    assert here.modes.modes[CARD] == 0


async def test_without_the_right_to_set_modes_it_says_so(node) -> None:
    here = node()
    here.modes.refuses = True
    with pytest.raises(Refused, match="needs root"):
        await here.start(pod_slice(1))


async def test_a_server_that_never_comes_up_is_a_refusal_with_its_log(node, monkeypatch) -> None:
    monkeypatch.setattr("device_plugin.enforcement.mps.daemon._READY_SECONDS", 0.4)
    here = node(stand_in="no-server")
    with pytest.raises(Refused, match=r"MPS of card .* cannot serve it"):
        await here.start(pod_slice(1))


async def test_two_containers_that_start_at_once_share_one_daemon(node) -> None:
    here = node()
    first, second = pod_slice(1, 3072), pod_slice(2, 5120)
    await asyncio.gather(here.start(first), here.start(second))
    await here.look()
    assert await here.program_runs(50, {"env": []}) == "5120 100"
    logs = (here.folder / "mps" / CARD / "log" / "control.log").read_text()
    assert logs.count("] Start\n") == 1


async def test_daemons_in_a_process_of_their_own(node) -> None:
    here = node()
    path = here.folder / "host.sock"
    server = asyncio.create_task(HostServer(here.host, path).run())
    try:
        await asyncio.sleep(0.05)  # it binds its socket before it waits for anybody
        assert path.stat().st_mode & 0o077 == 0
        remote = RemoteHost(path, here.folder / "mps", here.folder / "shm")
        pid = await remote.start(CARD)
        assert await remote.alive(CARD) == pid == await here.pid()
        assert await remote.command(CARD, "get_default_active_thread_percentage") == "100.0\n"
        await remote.stop(CARD)
        assert await remote.alive(CARD) == 0
        with pytest.raises(HostError, match="not running"):
            await remote.command(CARD, "get_server_list")
    finally:
        server.cancel()
    path.unlink(missing_ok=True)
    with pytest.raises(HostError, match="is its DaemonSet there"):
        await remote.alive(CARD)


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b'{"call": "where", "with": []}', b"\xff"])
async def test_the_socket_takes_no_other_calls(node, line: bytes) -> None:
    answer = await HostServer(node().host, Path("unused"))._answer(line)
    assert "not a call" in answer["error"]


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(errors="replace")


async def _kill(pid: int) -> None:
    """Kill a process that is not ours, and wait for its end (a zombie has ended, too)."""
    descriptor = os.pidfd_open(pid)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    os.kill(pid, signal.SIGKILL)
    await ended.wait()
    loop.remove_reader(descriptor)
    os.close(descriptor)
