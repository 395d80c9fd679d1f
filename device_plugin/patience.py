"""Waiting for an event, but not for ever."""

from __future__ import annotations

import asyncio


async def wait_at_most(event: asyncio.Event, seconds: float) -> bool:
    """Until ``event`` is set, at most ``seconds``; whether it is.

    Not asyncio.wait_for: in Python 3.11 it can lose the cancellation of a task whose wait ends at
    the same moment, and the task then runs on for ever.
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()
