"""The services that the dashboard asks: the extender's state API, the culler, the Hub.

All calls have a time limit and end in an answer or in ``Away`` with a sentence. The dashboard reads
with its own token; what a person clicks is done with that person's own rights.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from hub_integration.state_client import StateAddress

_MAX_BYTES = 64 << 20
_SILENCE = 45.0  # seconds; the stream has a heartbeat every 15


class Away(Exception):
    """No answer, or a refusal. ``status`` is HTTP's; 0 where there was no answer at all."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


async def fetch(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    seconds: float,
    headers: Mapping[str, str],
    body: Any = None,
    **more: Any,
) -> Any:
    """The JSON of an answer. Raises Away."""
    try:
        async with session.request(
            method,
            url,
            headers=dict(headers),
            json=body,
            timeout=aiohttp.ClientTimeout(total=seconds),
            allow_redirects=False,
            **more,
        ) as answer:
            if (answer.content_length or 0) > _MAX_BYTES:
                raise Away("the answer is too large")
            data = await answer.read()
    except TimeoutError:
        raise Away(f"no answer within {seconds:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise Away(str(error) or type(error).__name__) from None
    if answer.status >= 300:
        raise Away(_detail(data) or f"{answer.status} {answer.reason}", answer.status)
    if not data:
        return {}
    try:
        # Megabytes of a large cluster are read beside the loop, which serves everybody.
        if len(data) > 1 << 18:
            return await asyncio.to_thread(json.loads, data)
        return json.loads(data)
    except ValueError:
        raise Away("the answer is not JSON") from None


def _detail(data: bytes) -> str:
    try:
        answer = json.loads(data)
        return str(answer.get("detail") or answer.get("message") or "")[:500]
    except (ValueError, AttributeError):
        return ""


class StateApi:
    """The extender. ``address.timeout`` in seconds holds for each question."""

    def __init__(self, session: aiohttp.ClientSession, address: StateAddress) -> None:
        self._session = session
        self._address = address
        self._tls: tuple[float, ssl.SSLContext] | None = None

    async def get(self, path: str) -> Any:
        """Raises Away."""
        address = self._address
        url, headers, more = self._request(path)
        return await fetch(self._session, "GET", url, address.timeout, headers, **more)

    async def changes(self) -> AsyncIterator[None]:
        """One turn for each change of the cluster. Raises Away when the stream ends."""
        url, headers, more = self._request("/v1/events")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENCE)
        try:
            async with self._session.get(url, headers=headers, timeout=timeout, **more) as answer:
                if answer.status != 200:
                    raise Away(f"{answer.status} {answer.reason}", answer.status)
                async for line in answer.content:
                    if line.startswith(b"event:"):
                        yield
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Away(str(error) or type(error).__name__) from None
        raise Away("the stream ended")

    def _request(self, path: str) -> tuple[str, dict[str, str], dict[str, Any]]:
        address = self._address
        if not address.url:
            raise Away("extender_url is not set: configure_dashboard(c, extender_url=…)")
        headers = {}
        try:
            if address.token_file:
                # Read each time: the kubelet replaces a pod's token long before it expires.
                token = Path(address.token_file).read_text("utf-8").strip()
                headers["Authorization"] = f"Bearer {token}"
                # The API server's service proxy keeps Authorization for itself.
                headers["X-Gpushare-Authorization"] = f"Bearer {token}"
            tls = self._context()
        except OSError as error:
            raise Away(f"extender_token_file or extender_ca: {error}") from None
        more = {"ssl": tls, "server_hostname": address.server_name or None}
        return f"{address.url.rstrip('/')}{path}", headers, more

    def _context(self) -> ssl.SSLContext | bool:
        """The authorities to believe, read again when the file has changed."""
        if not self._address.url.startswith("https"):
            return True
        ca = self._address.ca
        changed = Path(ca).stat().st_mtime if ca else 0.0
        if self._tls is None or self._tls[0] != changed:
            self._tls = (changed, ssl.create_default_context(cafile=ca or None))
        return self._tls[1]


class HubSide:
    """The Hub and the services beside it, asked with one token."""

    def __init__(
        self, session: aiohttp.ClientSession, hub_api: str, culler: str, token: str
    ) -> None:
        self._session = session
        self._hub = hub_api.rstrip("/")
        self._culler = culler.rstrip("/")
        self._headers = {"Authorization": f"token {token}"}

    def as_person(self, token: str) -> HubSide:
        """The same with the rights of the person whose token it is."""
        return HubSide(self._session, self._hub, self._culler, token)

    @property
    def has_culler(self) -> bool:
        return bool(self._culler)

    async def culler(self, method: str, path: str, body: Any = None) -> Any:
        """Raises Away with the culler's own sentence."""
        return await self._ask(method, f"{self._culler}/{path}", body)

    async def whoami(self) -> dict[str, Any]:
        """The Hub's model of the token's owner. Raises Away; status 401 or 403: a dead token."""
        return dict(await self._ask("GET", f"{self._hub}/user"))

    async def servers(self, user: str) -> dict[str, dict[str, Any]]:
        """The running servers of a user, by name. Raises Away."""
        model = await self._ask("GET", f"{self._hub}/users/{quote(user, safe='')}")
        servers = model.get("servers") if isinstance(model, Mapping) else None
        return dict(servers) if isinstance(servers, Mapping) else {}

    async def stop(self, user: str, server: str) -> None:
        """Ask the Hub to end a server. Raises Away."""
        path = f"{self._hub}/users/{quote(user, safe='')}"
        path += f"/servers/{quote(server, safe='')}" if server else "/server"
        await self._ask("DELETE", path)

    async def quotas(self) -> list[dict[str, Any]]:
        """Everybody's accounts. Raises Away; 404: this Hub keeps none."""
        answer = await self._ask("GET", f"{self._pages}/quotas")
        found = answer.get("quotas") if isinstance(answer, Mapping) else None
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    async def quota(self, user: str) -> dict[str, Any]:
        """One account. Raises Away."""
        answer = await self._ask("GET", f"{self._pages}/quotas/{quote(user, safe='')}")
        return answer if isinstance(answer, dict) else {}

    async def grant(self, user: str, gib_hours: float, note: str) -> None:
        """Give (or, negative, take) GiB-hours. Raises Away."""
        path = f"{self._pages}/quotas/{quote(user, safe='')}/grants"
        await self._ask("POST", path, {"gib_hours": gib_hours, "note": note})

    @property
    def _pages(self) -> str:
        return f"{self._hub.removesuffix('/api')}/gpushare"

    async def _ask(self, method: str, url: str, body: Any = None) -> Any:
        return await fetch(self._session, method, url, 15, self._headers, body)
