"""What several tests of the plugin stand on."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from device_plugin.kube import Kube
from playground.cards import A10, T4, cards_of
from playground.nvml import SONAME, CompilerError, library
from playground.simulated_cards import SimulatedCards
from playground.simulated_state import SimulatedState

from .api_server import ApiServer


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name: they end at 107 characters."""
    with tempfile.TemporaryDirectory(prefix="gs") as folder:
        yield Path(folder)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def kube(api: ApiServer) -> AsyncIterator[Kube]:
    async with Kube(api.credentials, timeout=2.0) as kube:
        yield kube


@pytest.fixture(scope="session")
def nvml_library() -> Path:
    try:
        return library()
    except CompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def cards(
    tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedCards]:
    """A T4 with minor 0 and an A10 with minor 1, answered for by the NVML stand-in."""
    devices = tmp_path / "dev"
    devices.mkdir()
    for name in ("nvidiactl", "nvidia0", "nvidia1"):
        (devices / name).touch()
    (t4,) = cards_of("unit-t4", T4, (0x3B,))
    (a10,) = cards_of("unit-a10", A10, (0xCA,))
    simulated = SimulatedCards(tmp_path / "state")
    both = (t4, replace(a10, minor=1))
    simulated.write(SimulatedState(devices=str(devices), cards=both))
    monkeypatch.setenv("GPUSHARE_NVML_STATE", str(simulated.path))
    yield simulated
    with simulated.edit() as edit:
        edit.clear_faults()  # a call that hangs ends


@pytest.fixture
def driver_root(tmp_path: Path, nvml_library: Path) -> Path:
    """A driver root as in a driver container. One process loads one library: the first one."""
    folder = tmp_path / "driver" / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / SONAME).symlink_to(nvml_library)
    return tmp_path / "driver"
