"""The clock, in one place, so that tests can turn it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Something that will happen, unless cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """``now`` is monotonic, in seconds: jumps of the wall clock mean nothing here."""

    def now(self) -> float: ...

    def call_later(self, seconds: float, what: Callable[[], None]) -> Timer: ...


class LoopClock:
    """The event loop's clock."""

    def now(self) -> float:
        return time.monotonic()

    def call_later(self, seconds: float, what: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, what)
