"""The real nvidia-ml-py over the stand-in library, with two simulated cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from playground.cards import A10, T4, cards_of
from playground.nvml import CompilerError, library
from playground.simulated_cards import SimulatedCards
from playground.simulated_state import SimulatedState

from ..playground.nvml_client import NvmlClient


@pytest.fixture
def cards(tmp_path: Path) -> SimulatedCards:
    """Card 0 is a T4, card 1 an A10."""
    devices = tmp_path / "dev"
    devices.mkdir()
    for name in ("nvidiactl", "nvidia0", "nvidia1"):
        (devices / name).touch()
    (t4,) = cards_of("usage-t4", T4, (0x3B,))
    (a10,) = cards_of("usage-a10", A10, (0xCA,))
    simulated = SimulatedCards(tmp_path / "gpushare-nvml" / "state")
    simulated.write(SimulatedState(devices=str(devices), cards=(t4, replace(a10, minor=1))))
    return simulated


@pytest.fixture
def sampler(cards: SimulatedCards) -> Iterator[Callable[..., list]]:
    """``sampler(uuid, …, busy=False)``: one look, as plain values; a process for each test, as the
    library is loaded once."""
    try:
        path = library(lambda _: None)
    except CompilerError as error:
        pytest.skip(str(error))
    client = NvmlClient(path, GPUSHARE_NVML_STATE=str(cards.path))
    client("from device_plugin.usage.sampler import Sampler")
    client("s = Sampler()")
    client(
        "flat = lambda samples, activity: [[[c.card, c.total, c.used, c.reserved,"
        " sorted(c.memory.items()), c.problem] for c in samples], [[k, a.card_percent,"
        " None if a.processes is None else sorted(a.processes.items())] for k, a in activity.items()]]"
    )

    def look(*uuids: str, busy: bool = False) -> list:
        return client(f"flat(*s.look({list(uuids)!r}, {busy}))")

    def lack(function: str) -> None:
        """From now on the library is one that is too old to have this function."""
        client("real = pynvml._nvmlGetFunctionPointer")
        client(
            f"def old(name):\n  if name == {function!r}:"
            "\n    raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)\n  return real(name)"
        )
        client("pynvml._nvmlGetFunctionPointer = old")

    look.lack = lack  # type: ignore[attr-defined]
    yield look
    client.close()
