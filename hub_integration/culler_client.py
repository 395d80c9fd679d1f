"""Asks the culler's service who is about to give a slice back. Away: nothing is known."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from gpushare.waiting import seconds_of

_AGE = 10.0  # seconds for which an answer is good: the culler decides every 15
_TIMEOUT = 1.0
_IDLE = 20 * 60  # seconds without use from which a server is called idle to those who wait


@dataclass(frozen=True)
class CullerAddress:
    """Where the service is, and the token to show."""

    url: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """What the culler thinks of one server. ``ends`` is None where nothing ends it."""

    namespace: str
    pod: str
    models: frozenset[str]
    idle_seconds: float
    ends: float | None

    @property
    def idle(self) -> bool:
        return self.idle_seconds >= _IDLE


def read_endings(text: bytes) -> tuple[Ending, ...]:
    """The answer of ``GET api/verdicts``. Raises ValueError that says what is wrong with it."""
    data = json.loads(text)
    verdicts = data.get("verdicts") if isinstance(data, Mapping) else None
    if not isinstance(verdicts, list):
        raise ValueError("the answer has no list of verdicts")
    if data.get("dry_run"):
        return ()  # nobody is ended, so nothing may be promised
    try:
        return tuple(_ending(verdict) for verdict in verdicts if verdict["slices"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a verdict lacks a field, or has it wrong: {error!r}") from None


def _ending(verdict: Mapping[str, Any]) -> Ending:
    ends = verdict["ends_at"]
    return Ending(
        str(verdict["namespace"]),
        str(verdict["pod"]),
        frozenset(str(part["model"]) for part in verdict["slices"]),
        float(verdict["idle_seconds"] or 0.0),
        None if ends is None else seconds_of(ends),
    )


class CullerClient:
    """Fetches the culler's verdicts, at most one at a time."""

    def __init__(self, address: CullerAddress, log: logging.Logger) -> None:
        self._address = address
        self._log = log
        self._asking: asyncio.Task[tuple[Ending, ...]] | None = None
        self._answer: tuple[Ending, ...] = ()
        self._good_until = 0.0
        self._said = ""

    async def endings(self) -> tuple[Ending, ...]:
        """Empty where that is not known. Never raises."""
        if time.monotonic() < self._good_until:
            return self._answer
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> tuple[Ending, ...]:
        url = f"{self._address.url.rstrip('/')}/api/verdicts"
        headers = {"Authorization": f"token {self._address.token}"}
        try:
            async with (
                asyncio.timeout(_TIMEOUT),
                aiohttp.ClientSession() as session,
                session.get(url, headers=headers, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise ValueError(f"it answered {response.status} {response.reason}")
                self._answer = read_endings(await response.read())
                self._said = ""
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._answer = ()
            self._complain(str(error) or type(error).__name__)
        self._good_until = time.monotonic() + _AGE
        return self._answer

    def _complain(self, what: str) -> None:
        if what != self._said:
            self._said = what
            self._log.warning(
                "The culler at %s cannot be asked what comes back (%s): people who wait are not "
                "told. Check culler_url and culler_token",
                self._address.url,
                what,
            )
