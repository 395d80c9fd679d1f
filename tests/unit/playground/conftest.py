"""Two simulated cards with their device nodes as plain files, and clients of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from playground.cards import A10, T4, cards_of
from playground.nvml import CompilerError, library
from playground.simulated_cards import SimulatedCards
from playground.simulated_state import SimulatedState

from .nvml_client import NvmlClient


@pytest.fixture(scope="session")
def nvml_library() -> Path:
    try:
        return library()
    except CompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """A /dev with the driver's control node and nodes for minors 0 to 3."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia2", "nvidia3"):
        (folder / name).touch()
    return folder


@pytest.fixture
def cards(tmp_path: Path, devices: Path) -> SimulatedCards:
    """Card 0 is a T4, card 1 an A10."""
    (t4,) = cards_of("unit-t4", T4, (0x3B,))
    (a10,) = cards_of("unit-a10", A10, (0xCA,))
    simulated = SimulatedCards(tmp_path / "gpushare-nvml" / "state")
    simulated.write(SimulatedState(devices=str(devices), cards=(t4, replace(a10, minor=1, numa=1))))
    return simulated


@pytest.fixture
def client(nvml_library: Path, cards: SimulatedCards) -> Iterator[Callable[..., NvmlClient]]:
    """Starts clients; by default initialised and with the handle of card 0 as ``h``."""
    started: list[NvmlClient] = []

    def start(
        *, init: bool = True, prefix: list[str] | None = None, **environment: str
    ) -> NvmlClient:
        environment.setdefault("GPUSHARE_NVML_STATE", str(cards.path))
        new = NvmlClient(nvml_library, prefix, **environment)
        started.append(new)
        if init:
            new("nvmlInit()")
            new("h = nvmlDeviceGetHandleByIndex(0)")
            new("h1 = nvmlDeviceGetHandleByIndex(1)")
        return new

    yield start
    for each in started:
        each.close()
