"""Keeps open forms current: one look at the extender for all of them, however many are open.

Forms that show the same choices are sent the same bytes. Nothing is asked while no form is open,
and nothing is sent while nothing changes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

LOOK_SECONDS = 2.0

Look = Callable[[], Awaitable[Mapping[str, Any]]]


class Channel:
    """Forms that show the same. ``changed`` is set anew with each new message."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.listeners = 0
        self.message = b""
        self.changed = asyncio.Event()

    def tell(self, numbers: Mapping[str, Any]) -> None:
        text = json.dumps(numbers, separators=(",", ":"), ensure_ascii=False)
        message = f"data: {text}\n\n".encode()
        if message != self.message:
            self.message = message
            self.changed.set()
            self.changed = asyncio.Event()


class LiveForms:
    """All open forms of a Hub, by what they show."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._channels: dict[str, Channel] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        return sum(channel.listeners for channel in self._channels.values())

    def join(self, key: str, look: Look) -> Channel:
        """The channel of forms that show ``key``; ``look`` says their numbers."""
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(look)
        channel.listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
        return channel

    def leave(self, key: str) -> None:
        channel = self._channels[key]
        channel.listeners -= 1
        if not channel.listeners:
            del self._channels[key]

    async def _run(self) -> None:
        while self._channels:
            for channel in list(self._channels.values()):
                try:
                    channel.tell(await channel.look())
                except Exception:
                    # One form's trouble is not the others'; its page keeps the numbers it has.
                    self._log.exception("The numbers of an open form cannot be made")
            await asyncio.sleep(LOOK_SECONDS)
