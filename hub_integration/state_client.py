"""Asks the extender what is free. One client and one answer for all spawners of a Hub.

A form must never wait for the extender longer than the admin allows, and never fail because of
it: whatever goes wrong, the answer is None, and the form shows no numbers.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import aiohttp

from gpushare.waiting import WaitingPod
from gpushare.waiting import decode as read_waiting
from hub_integration.snapshot import Held, Snapshot, read_holdings, read_snapshot

T = TypeVar("T")

MAX_AGE = 1.0  # seconds for which an answer is good
_FAILURE_AGE = 3.0  # seconds for which the extender is not asked again when it did not answer
_MAX_BYTES = 64 << 20
_LARGE = 256 << 10  # bytes of JSON that take some milliseconds to read


@dataclass(frozen=True)
class StateAddress:
    """Where the state API is and how to be let in. Empty paths: the system's CAs, no token.

    ``server_name`` is the name that the certificate must have where it is not the one in the URL.
    """

    url: str
    ca: str = ""
    token_file: str = ""
    server_name: str = ""
    timeout: float = 1.0


class StateClient:
    """Asks the extender. Each question is asked at most once at a time, and seldom enough."""

    def __init__(self, address: StateAddress, log: logging.Logger) -> None:
        self.address = address
        self.log = log
        self._tls: tuple[float, ssl.SSLContext] | None = None
        self._said = ""
        self._nodes = Question(self, "/v1/nodes?slices=false", read_snapshot)
        self._line = Question(self, "/v1/waiting", read_waiting, may_lack=True)
        self._holdings = Question(self, "/v1/nodes", read_holdings)

    async def snapshot(self) -> Snapshot | None:
        """What is free, at most a second old; None when that is not known. Never raises."""
        return await self._nodes.answer()

    async def waiting(self) -> tuple[WaitingPod, ...] | None:
        """Who waits, in the order of the line; None when that is not known. Never raises."""
        return await self._line.answer()

    async def holdings(self) -> tuple[Held, ...] | None:
        """Who holds what; None when that is not known. Never raises."""
        return await self._holdings.answer()

    async def fetch(self, path: str) -> bytes:
        """The body of an answer. Raises whatever goes wrong."""
        headers = {}
        if self.address.token_file:
            # Read each time: the kubelet replaces a pod's token long before it expires.
            token = Path(self.address.token_file).read_text("utf-8").strip()  # noqa: ASYNC240
            headers["Authorization"] = f"Bearer {token}"
            # The API server's service proxy keeps Authorization for itself.
            headers["X-Gpushare-Authorization"] = f"Bearer {token}"
        url = f"{self.address.url.rstrip('/')}{path}"
        name = self.address.server_name or None
        # A session for one request: at one a second a kept connection gains nothing, and this way
        # there is nothing to close when the Hub ends.
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._context())) as session,
            session.get(
                url, headers=headers, server_hostname=name, allow_redirects=False
            ) as response,
        ):
            if response.status == 404:
                raise Lacking(f"it has no {path}")
            if response.status != 200:
                raise ValueError(f"it answered {response.status} {response.reason}")
            if (response.content_length or 0) > _MAX_BYTES:
                raise ValueError("its answer is too large")
            return await response.read()

    def _context(self) -> ssl.SSLContext:
        """The authorities to believe, read again when the file has changed."""
        changed = Path(self.address.ca).stat().st_mtime if self.address.ca else 0.0
        if self._tls is None or self._tls[0] != changed:
            self._tls = (changed, ssl.create_default_context(cafile=self.address.ca or None))
        return self._tls[1]

    def works(self) -> None:
        if self._said:
            self.log.info("The extender answers again: the form shows numbers")
            self._said = ""

    def complain(self, error: Exception) -> None:
        """Say it once, and again only when it is something else."""
        what = str(error) or type(error).__name__
        if what == self._said:
            return
        self._said = what
        self.log.warning(
            "The extender at %s cannot be asked what is free (%s): the form shows no numbers. "
            "Check extender_url, extender_ca, extender_token_file and the extender's own log",
            self.address.url,
            what,
        )


class Question(Generic[T]):
    """One path of the state API, and the last answer to it.

    ``may_lack``: whether an extender that does not know the path is fine, being an older one.
    """

    def __init__(
        self,
        client: StateClient,
        path: str,
        read: Callable[[bytes], T],
        *,
        may_lack: bool = False,
    ) -> None:
        self._client = client
        self._path = path
        self._read = read
        self._may_lack = may_lack
        self._asking: asyncio.Task[T | None] | None = None
        self._answer: T | None = None
        self._good_until = 0.0

    async def answer(self) -> T | None:
        if time.monotonic() < self._good_until:
            return self._answer
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> T | None:
        try:
            async with asyncio.timeout(self._client.address.timeout):
                body = await self._client.fetch(self._path)
            # Megabytes of JSON would hold up everybody's requests.
            large = len(body) > _LARGE
            self._answer = await asyncio.to_thread(self._read, body) if large else self._read(body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, Lacking) as error:
            self._answer = None
            if not (isinstance(error, Lacking) and self._may_lack):
                self._client.complain(error)
            self._good_until = time.monotonic() + _FAILURE_AGE
        else:
            self._client.works()
            self._good_until = time.monotonic() + MAX_AGE
        return self._answer


class Lacking(Exception):
    """The extender does not know the path."""
