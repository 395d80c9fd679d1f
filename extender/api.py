"""The Kubernetes API as the extender uses it: raw JSON over one aiohttp session.

Addresses, certificates and tokens are those of the official client's configuration (a kubeconfig,
or the service account inside a pod), so that everything it understands works here too. The client's
own models are not used: a list of 50,000 pods as models is minutes and gigabytes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

_JSON = {"Content-Type": "application/json", "Accept": "application/json"}
_MERGE = {**_JSON, "Content-Type": "application/merge-patch+json"}
_STRATEGIC = {**_JSON, "Content-Type": "application/strategic-merge-patch+json"}


class ApiError(Exception):
    """The API answered, and the answer is no. ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message or f"HTTP {status}")
        self.status = status
        self.message = message or f"HTTP {status}"


class NoAnswer(Exception):
    """No answer came: what was asked may or may not have happened."""


class NoCluster(Exception):
    """There is no usable configuration for reaching the API. The text names the setting."""


async def configuration(kubeconfig: str = "") -> Configuration:
    """The client configuration of a kubeconfig file, or of the pod's service account for ''."""
    settings: Configuration = Configuration()
    path = os.path.expanduser(kubeconfig)  # noqa: ASYNC240 - no I/O but reading $HOME
    try:
        if path:
            await config.load_kube_config(path, client_configuration=settings)
        else:
            config.load_incluster_config(settings)
    except (config.ConfigException, OSError, ValueError) as error:
        where = f"kubeconfig {kubeconfig!r}" if kubeconfig else "the pod's service account"
        raise NoCluster(
            f"cannot reach Kubernetes by {where}: {str(error).rstrip('.')}. "
            "Set Extender.kubeconfig to a readable kubeconfig, or run in a pod."
        ) from None
    return settings


class KubeApi:
    """One session with the API server. ``timeout`` in seconds holds for plain requests."""

    def __init__(self, settings: Configuration, timeout: float = 10) -> None:
        self._settings = settings
        self._host = settings.host.rstrip("/")
        self._timeout = timeout
        tls = RESTClientObject(settings).ssl_context if self._host.startswith("https") else False
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=256, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=timeout),
            auto_decompress=True,
            trust_env=True,
        )

    async def close(self) -> None:
        await self._session.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        return await self._request("GET", path, query, None, _JSON)

    async def post(
        self, path: str, body: Any, query: Mapping[str, str] | None = None, within: float = 0
    ) -> dict[str, Any]:
        return await self._request("POST", path, query, body, _JSON, within)

    async def merge_patch(self, path: str, body: Any) -> dict[str, Any]:
        return await self._request("PATCH", path, None, body, _MERGE)

    async def strategic_patch(self, path: str, body: Any) -> dict[str, Any]:
        return await self._request("PATCH", path, None, body, _STRATEGIC)

    async def delete(self, path: str, options: Any) -> dict[str, Any]:
        """``options`` are v1.DeleteOptions."""
        return await self._request("DELETE", path, None, options, _JSON)

    async def lines(
        self, path: str, query: Mapping[str, str], silence: float
    ) -> AsyncIterator[bytes]:
        """The lines of a streamed answer. Ends when the server ends it.

        Raises ApiError for a refusal, NoAnswer when the connection breaks or nothing at all has
        come for ``silence`` seconds.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=silence)
        try:
            async with self._session.get(
                self._url(path, query), headers=await self._headers(_JSON), timeout=timeout
            ) as answer:
                if answer.status != 200:
                    raise _refusal(answer.status, await answer.read())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *complete, rest = (rest + chunk).split(b"\n")
                    for line in complete:
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(_text(error)) from error

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        headers: dict[str, str],
        within: float = 0,
    ) -> dict[str, Any]:
        try:
            async with self._session.request(
                method,
                self._url(path, query or {}),
                data=None if body is None else orjson.dumps(body),
                headers=await self._headers(headers),
                timeout=aiohttp.ClientTimeout(total=within or self._timeout),
            ) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(_text(error)) from error
        if answer.status >= 400:
            raise _refusal(answer.status, data)
        try:
            decoded = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise NoAnswer(f"the API's answer is not JSON: {error}") from error
        return decoded if isinstance(decoded, dict) else {}

    def _url(self, path: str, query: Mapping[str, str]) -> str:
        return f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")

    async def credentials(self) -> dict[str, str]:
        """Headers that show who we are, for those who ask the API about us."""
        return {k: v for k, v in (await self._headers({})).items() if v}

    async def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        token = await self._settings.get_api_key_with_prefix("BearerToken")
        return {**headers, "Authorization": token} if token else headers


def _refusal(status: int, data: bytes) -> ApiError:
    try:
        message = orjson.loads(data).get("message", "")
    except (orjson.JSONDecodeError, AttributeError):
        message = data[:200].decode(errors="replace")
    return ApiError(status, str(message))


def _text(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
