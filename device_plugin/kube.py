"""The few calls that this program makes to the API server, as plain JSON."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any

import aiohttp

from device_plugin.credentials import Credentials

JSON = Mapping[str, Any]
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server refused, or could not be reached. ``status`` is 0 where there was no answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Kube:
    """A connection to the API server. Use as an async context manager."""

    def __init__(self, credentials: Credentials, timeout: float = 10.0) -> None:
        self._credentials = credentials
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Kube:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._credentials.tls or True, limit=16),
            headers={"Accept": "application/json", "User-Agent": "gpushare-device-plugin"},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, **params: str) -> dict[str, Any]:
        """GET an object or a list. Raises ApiError."""
        return await self._call("GET", path, params=params)

    async def post(self, path: str, body: JSON) -> dict[str, Any]:
        """Create an object. Raises ApiError."""
        return await self._call("POST", path, body=body)

    async def patch(self, path: str, body: JSON) -> dict[str, Any]:
        """Merge ``body`` into an object. Raises ApiError."""
        return await self._call("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def patch_list(self, path: str, body: JSON) -> dict[str, Any]:
        """Merge ``body`` into an object, lists such as conditions too. Raises ApiError."""
        return await self._call("PATCH", path, body=body, content_type=STRATEGIC_PATCH)

    async def delete(self, path: str, body: JSON) -> dict[str, Any]:
        """Delete an object; ``body`` are DeleteOptions. Raises ApiError."""
        return await self._call("DELETE", path, body=body)

    async def watch(
        self, path: str, version: str, seconds: int, **params: str
    ) -> AsyncIterator[dict[str, Any]]:
        """The events after ``version``, until the server ends it after about ``seconds``.

        Raises ApiError; status 410 means that ``version`` is too old.
        """
        seconds += random.randint(0, seconds // 4)  # noqa: S311  so that nodes don't reconnect together
        query = {
            **params,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeout, sock_read=seconds + self._timeout
        )
        try:
            async with self._request("GET", path, params=query, timeout=timeout) as answer:
                if answer.status != 200:
                    raise ApiError(answer.status, await _message(answer))
                async for line in _lines(answer.content):
                    event = json.loads(line)
                    if event.get("type") == "ERROR":
                        status = event.get("object", {})
                        raise ApiError(int(status.get("code", 500)), str(status.get("message")))
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ApiError(0, _said(error)) from error

    async def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: JSON | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        try:
            async with self._request(
                method,
                path,
                params=params,
                data=data,
                headers={"Content-Type": content_type},
                timeout=aiohttp.ClientTimeout(total=self._timeout),
            ) as answer:
                if answer.status >= 300:
                    raise ApiError(answer.status, await _message(answer))
                result = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ApiError(0, _said(error)) from error
        if not isinstance(result, dict):
            raise ApiError(0, f"{method} {path} was answered with no object")
        return result

    def _request(self, method: str, path: str, **more: Any) -> Any:
        if self._session is None:
            raise RuntimeError("use Kube as an async context manager")
        headers = {**self._credentials.headers(), **more.pop("headers", {})}
        return self._session.request(
            method, self._credentials.server + path, headers=headers, **more
        )


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    # Not the reader's own lines: they are limited in length, and pods may be long.
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in lines:
            if line:
                yield line


async def _message(answer: aiohttp.ClientResponse) -> str:
    text = await answer.text()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status} {text[:200]}"


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
