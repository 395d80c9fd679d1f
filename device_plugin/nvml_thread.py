"""A thread for NVML calls, so that a driver that hangs stops nothing but this thread.

A C call cannot be broken off. One that outlives its time limit is left alone; until it returns,
further calls fail at once instead of piling up behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_Job = Callable[[], None]


class NvmlStuck(Exception):
    """NVML did not answer within the time limit."""


class NvmlThread:
    """One daemon thread, so that a hanging driver does not keep the process from ending either."""

    # Always the same words: this is published with the cards, and only changes are news.
    _STUCK = "the driver hangs: an NVML call does not return; look at 'dmesg' on the node"

    def __init__(self, name: str = "nvml") -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._busy = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[], T], limit: float) -> T:
        """Run ``function`` in the thread. Raises NvmlStuck after ``limit`` seconds."""
        if self._busy:
            raise NvmlStuck(self._STUCK)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._busy = True

        def deliver(result: T | None, error: BaseException | None) -> None:
            self._busy = False
            if answer.done():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]
            else:
                answer.set_exception(error)

        def job() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = function()
            except Exception as failure:
                error = failure
            # The loop may be closed by now: then nobody waits either.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(deliver, result, error)

        self._jobs.put(job)
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            raise NvmlStuck(self._STUCK) from None

    def stop(self) -> None:
        """Let the thread end when its call has returned."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
