"""How long a program computes before it is another one's turn, on cards that several share without MPS.

The driver gives all programs on a card turns of one length, four to choose from; it knows no shares.
So this makes turns fairer or cheaper and holds nobody to a percentage. NVML has no call for it: it is
set by `nvidia-smi compute-policy -i CARD --set-timeslice=0..3` (nvidia-smi's own help; Volta and
later), and where that program is missing or refuses, compute is best effort, and that is said.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from device_plugin.nvml import find_library

log = logging.getLogger(__name__)

# As nvidia-smi numbers them.
LENGTHS = {"default": 0, "short": 1, "medium": 2, "long": 3}
TIME_SLICING, BEST_EFFORT = "time-slicing", "best-effort"
_EVERY = 60.0
_LIMIT = 20.0


class CannotSet(Exception):
    """The length of turns cannot be set, and this says why."""


def find_program(setting: str, driver_root: str) -> tuple[str, dict[str, str]]:
    """nvidia-smi, and the variables it needs. Raises CannotSet."""
    program = setting or shutil.which("nvidia-smi") or ""
    env: dict[str, str] = {}
    under = Path(driver_root, "usr/bin/nvidia-smi")
    if not program and under.exists():
        program = str(under)
    if not program:
        raise CannotSet("there is no nvidia-smi: set Enforcement.nvidia_smi to where it is")
    library = find_library(driver_root)
    if library is not None and driver_root not in ("", "/"):
        env["LD_LIBRARY_PATH"] = str(library.parent)
    return program, env


class TimeSlices:
    """Keeps the length of turns set on all cards. ``length`` '': it is left as it is."""

    def __init__(
        self,
        length: str,
        cards: Callable[[], Collection[str]],
        program: str = "",
        driver_root: str = "/",
    ) -> None:
        self._length, self._cards = length, cards
        self._program, self._driver_root = program, driver_root
        self._set: set[str] = set()
        self._listeners: list[Callable[[], None]] = []
        self.problem = ""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when what is in force changes."""
        self._listeners.append(listener)

    def compute(self, card: str) -> str:
        """By what the compute of slices on ``card`` is ruled."""
        return TIME_SLICING if card in self._set else BEST_EFFORT

    async def run(self) -> None:
        """Set it on all cards, for ever: cards are reset, and drivers are loaded anew."""
        while True:
            await self.look()
            await asyncio.sleep(_EVERY if self._set or self.problem else 1.0)

    async def look(self) -> None:
        """Set it on each card now."""
        before, problem = set(self._set), ""
        for card in self._cards() if self._length else ():
            try:
                await self._give(card)
                self._set.add(card)
            except CannotSet as error:
                self._set.discard(card)
                problem = f"the length of turns on {card} cannot be set: {error}"
        if problem and problem != self.problem:
            log.warning("%s; compute stays best effort", problem)
        self.problem = problem
        if before != self._set:
            for listener in self._listeners:
                listener()

    async def _give(self, card: str) -> None:
        program, env = find_program(self._program, self._driver_root)
        level = LENGTHS[self._length]
        await _run([program, "compute-policy", "-i", card, f"--set-timeslice={level}"], env)


async def _run(command: Sequence[str], env: dict[str, str]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **env},
        )
    except OSError as error:
        raise CannotSet(f"{command[0]} cannot be run: {error.strerror}") from None
    try:
        async with asyncio.timeout(_LIMIT):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CannotSet(f"{command[0]} did not end in {_LIMIT:g} s") from None
    if process.returncode:
        said = out.decode(errors="replace").strip().splitlines()
        raise CannotSet(said[-1][:200] if said else f"nvidia-smi ended with {process.returncode}")
