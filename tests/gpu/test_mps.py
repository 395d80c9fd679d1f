"""MPS on a real card: what the stand-in cannot know."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_plugin.enforcement.mps.daemon import CardDaemon, Users
from device_plugin.enforcement.mps.host import DEFAULT, LocalHost
from device_plugin.enforcement.mps.modes import NvmlModes
from device_plugin.enforcement.mps.plan import Limits

from .test_watching import end, start


@pytest.fixture
async def daemon(mps_card: str) -> AsyncIterator[tuple[CardDaemon, dict[str, str]]]:
    """A running daemon with a limit of 2 GiB and half of the SMs, and its clients' environment."""
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        shm = Path("/dev/shm/gpushare-mps-test")
        host = LocalHost("nvidia-cuda-mps-control", Path(folder), shm, NvmlModes(), own_shm=False)
        daemon = CardDaemon(host, mps_card, Users.AUTO, os.getuid())
        await daemon.ensure(Limits(2048, 50))
        yield daemon, {"CUDA_MPS_PIPE_DIRECTORY": str(host.where(mps_card).pipes)}
        await daemon.stop()
        assert await NvmlModes().get(mps_card) == DEFAULT


async def test_the_server_holds_a_program_to_its_limits(daemon, program: list[str]) -> None:
    _, env = daemon
    running, said = await asyncio.to_thread(start, program, 1024, **env)
    end(running)
    assert said.startswith("ok"), said
    running, said = await asyncio.to_thread(start, program, 4096, **env)
    end(running)
    assert not said.startswith("ok"), "it got more than the server's limit"


async def test_no_environment_gives_more(daemon, program: list[str]) -> None:
    _, env = daemon
    wish = {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    }
    running, said = await asyncio.to_thread(start, program, 4096, **env, **wish)
    end(running)
    assert not said.startswith("ok")


async def test_going_past_the_pipes_finds_the_card_busy(daemon, program: list[str]) -> None:
    running, said = await asyncio.to_thread(
        start, program, 256, CUDA_MPS_PIPE_DIRECTORY="/nonexistent"
    )
    end(running)
    assert not said.startswith("ok"), said


async def test_clients_are_known_and_can_be_terminated(daemon, program: list[str]) -> None:
    keeper, env = daemon
    running, _ = await asyncio.to_thread(start, program, 256, **env)
    other, _ = await asyncio.to_thread(start, program, 256, **env)
    try:
        assert {running.pid, other.pid} <= await keeper.clients()
        assert await keeper.terminate(running.pid)
        running.kill()
        running.wait(30)
        assert await keeper.check() == ""
        assert other.poll() is None
    finally:
        end(other)
