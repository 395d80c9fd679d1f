"""Asks the extender what is free. One client and one answer for all spawners of a Hub.

A form must never wait for the extender longer than the admin allows, and never fail because of
it: whatever goes wrong, the answer is None, and the form shows no numbers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from hub_integration.snapshot import Snapshot, read_snapshot

MAX_AGE = 1.0  # seconds for which an answer is good
_FAILURE_AGE = 3.0  # seconds for which the extender is not asked again when it did not answer
_MAX_BYTES = 64 << 20


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
    """Fetches snapshots, at most one at a time and one a second."""

    def __init__(self, address: StateAddress, log: logging.Logger) -> None:
        self.address = address
        self.log = log
        self._tls: tuple[float, ssl.SSLContext] | None = None
        self._fetching: asyncio.Task[Snapshot | None] | None = None
        self._answer: Snapshot | None = None
        self._good_until = 0.0
        self._said = ""

    async def snapshot(self) -> Snapshot | None:
        """What is free, at most a second old; None when that is not known. Never raises."""
        if time.monotonic() < self._good_until:
            return self._answer
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.ensure_future(self._refresh())
        return await asyncio.shield(self._fetching)

    async def _refresh(self) -> Snapshot | None:
        try:
            async with asyncio.timeout(self.address.timeout):
                self._answer = await self._fetch()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._answer = None
            self._complain(error)
            self._good_until = time.monotonic() + _FAILURE_AGE
        else:
            if self._said:
                self.log.info("The extender answers again: the form shows numbers")
                self._said = ""
            self._good_until = time.monotonic() + MAX_AGE
        return self._answer

    async def _fetch(self) -> Snapshot:
        headers = {}
        if self.address.token_file:
            # Read each time: the kubelet replaces a pod's token long before it expires.
            token = Path(self.address.token_file).read_text("utf-8").strip()  # noqa: ASYNC240
            headers["Authorization"] = f"Bearer {token}"
            # The API server's service proxy keeps Authorization for itself.
            headers["X-Gpushare-Authorization"] = f"Bearer {token}"
        url = f"{self.address.url.rstrip('/')}/v1/nodes"
        name = self.address.server_name or None
        # A session for one request: at one a second a kept connection gains nothing, and this way
        # there is nothing to close when the Hub ends.
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._context())) as session,
            session.get(
                url, headers=headers, server_hostname=name, allow_redirects=False
            ) as response,
        ):
            if response.status != 200:
                raise ValueError(f"it answered {response.status} {response.reason}")
            if (response.content_length or 0) > _MAX_BYTES:
                raise ValueError("its answer is too large")
            return read_snapshot(json.loads(await response.read()))

    def _context(self) -> ssl.SSLContext:
        """The authorities to believe, read again when the file has changed."""
        changed = Path(self.address.ca).stat().st_mtime if self.address.ca else 0.0
        if self._tls is None or self._tls[0] != changed:
            self._tls = (changed, ssl.create_default_context(cafile=self.address.ca or None))
        return self._tls[1]

    def _complain(self, error: Exception) -> None:
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
