"""The extender's state API as the culler reads it: cards, use and who waits, in one look."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from gpushare import waiting
from hub_integration.culling.observed import View, read_cards, read_usage
from hub_integration.state_client import StateAddress


class StateFailed(Exception):
    """The extender did not say what was asked; the text says why."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class StateApi:
    """One extender."""

    def __init__(
        self, session: aiohttp.ClientSession, address: StateAddress, log: logging.Logger
    ) -> None:
        self.address = address
        self.log = log
        self._session = session
        self._tls: tuple[float, ssl.SSLContext] | None = None
        self._said: set[str] = set()

    async def look(self) -> View:
        """All of it. What an older extender does not tell is empty. Raises StateFailed."""
        nodes, usage, queue = await asyncio.gather(
            self._get("/v1/nodes"), self._optional("/v1/usage"), self._optional("/v1/waiting")
        )
        try:
            cards, silent = read_cards(nodes)
        except ValueError as error:
            raise StateFailed(f"{self.address.url}/v1/nodes: {error}") from None
        measured, ages = self._checked("/v1/usage", read_usage, usage, ({}, {}))
        pods = self._checked("/v1/waiting", _waiting, queue, ())
        return View(cards, silent, measured, ages, pods)

    def _checked(self, path: str, read: Any, data: Any, otherwise: Any) -> Any:
        if data is None:
            return otherwise
        try:
            return read(data)
        except ValueError as error:
            self._say_once(f"{path}: {error}; it counts as not known")
            return otherwise

    async def _optional(self, path: str) -> Any:
        try:
            return await self._get(path)
        except StateFailed as error:
            if error.status == 404:
                self._say_once(f"{path} is not there: the extender is older than this culler")
                return None
            self._say_once(str(error))
            return None

    async def _get(self, path: str) -> Any:
        headers = {}
        if self.address.token_file:
            # Read each time: the kubelet replaces a pod's token long before it expires.
            try:
                token = Path(self.address.token_file).read_text("utf-8").strip()  # noqa: ASYNC240
            except OSError as error:
                raise StateFailed(f"extender_token_file: {error}") from None
            headers["Authorization"] = f"Bearer {token}"
            # The API server's service proxy keeps Authorization for itself.
            headers["X-Gpushare-Authorization"] = f"Bearer {token}"
        url = f"{self.address.url.rstrip('/')}{path}"
        try:
            async with self._session.get(
                url,
                headers=headers,
                ssl=self._context(),
                server_hostname=self.address.server_name or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self.address.timeout),
            ) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise StateFailed(f"{url}: {error or 'no answer in time'}") from None
        if answer.status != 200:
            raise StateFailed(f"{url}: {answer.status} {answer.reason}", answer.status)
        try:
            data = json.loads(text)
        except ValueError:
            raise StateFailed(f"{url}: the answer is not JSON") from None
        if not isinstance(data, Mapping):
            raise StateFailed(f"{url}: the answer is no object")
        return data

    def _context(self) -> ssl.SSLContext | bool:
        """The authorities to believe, read again when the file has changed."""
        if not self.address.url.startswith("https"):
            return True
        changed = Path(self.address.ca).stat().st_mtime if self.address.ca else 0.0
        if self._tls is None or self._tls[0] != changed:
            self._tls = (changed, ssl.create_default_context(cafile=self.address.ca or None))
        return self._tls[1]

    def _say_once(self, text: str) -> None:
        if text not in self._said and len(self._said) < 100:
            self._said.add(text)
            self.log.warning("The extender at %s: %s", self.address.url, text)


def _waiting(data: Mapping[str, Any]) -> tuple[waiting.WaitingPod, ...]:
    return waiting.decode(json.dumps(data))
