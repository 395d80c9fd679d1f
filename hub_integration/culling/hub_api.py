"""The Hub's REST API as the culler uses it, on JupyterHub 5.5 and 6.

Rights: list:users, read:users:activity, read:users:groups, read:servers, delete:servers; for the
bridge users:activity; for kernels access:servers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import aiohttp

from hub_integration.culling.observed import Server, moment, read_servers

_PAGE = {"Accept": "application/jupyterhub-pagination+json"}


class HubFailed(Exception):
    """The Hub did not do what was asked. ``status`` is 0 where it did not answer at all."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a single-user server."""

    id: str
    name: str
    state: str
    last_activity: datetime | None


class HubApi:
    """One Hub. ``url`` ends in /hub/api."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, token: str, timeout: float = 60
    ) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._headers = {"Authorization": f"token {token}"}
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    async def servers(self) -> list[Server]:
        """All servers that run, start or stop. Raises HubFailed."""
        found: list[Server] = []
        page: str | None = f"{self.url}/users?state=active"
        while page:
            answer = await self._json("GET", page, headers=_PAGE)
            users = answer["items"] if isinstance(answer, Mapping) else answer
            try:
                for user in users:
                    found += read_servers(user)
            except ValueError as error:
                raise HubFailed(f"the Hub's list of users: {error}") from None
            more = answer["_pagination"]["next"] if isinstance(answer, Mapping) else None
            page = more["url"] if more else None
        return found

    async def server(self, user: str, name: str) -> Server | None:
        """One server; None if it does not run."""
        try:
            model = await self._json("GET", f"{self.url}/users/{quote(user, safe='')}")
        except HubFailed as error:
            if error.status == 404:
                return None
            raise
        found = {server.key: server for server in read_servers({"servers": {}, **model})}
        return found.get((user, name))

    async def stop(self, user: str, name: str) -> None:
        """Ask for the end of a server; harmless where it has ended. Raises HubFailed."""
        try:
            await self._json("DELETE", _server_url(self.url, user, name))
        except HubFailed as error:
            if error.status not in (400, 404):  # as the Hub answers for one that does not run
                raise

    async def post_activity(self, user: str, name: str, when: float) -> None:
        """Say that a server was used. Raises HubFailed."""
        at = datetime.fromtimestamp(when, UTC).isoformat()
        await self._json(
            "POST",
            f"{self.url}/users/{quote(user, safe='')}/activity",
            body={"servers": {name: {"last_activity": at}}},
        )

    async def kernels(self, address: str) -> list[Kernel]:
        """The kernels of the server at ``address``. Asking does not count as use of it."""
        models = await self._json("GET", f"{address}api/kernels?no_track_activity=1")
        return [
            Kernel(
                str(model["id"]),
                str(model.get("name", "")),
                str(model.get("execution_state", "")),
                moment(model.get("last_activity")),
            )
            for model in models
            if isinstance(model, Mapping) and model.get("id")
        ]

    async def end_kernel(self, address: str, kernel: str) -> None:
        path = f"api/kernels/{quote(kernel, safe='')}?no_track_activity=1"
        await self._json("DELETE", address + path)

    async def _json(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Any:
        try:
            async with self._session.request(
                method,
                url,
                headers={**self._headers, **(headers or {})},
                json=body,
                timeout=self._timeout,
                allow_redirects=False,
            ) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise HubFailed(f"{url} does not answer: {error or type(error).__name__}") from None
        if answer.status >= 300:
            raise HubFailed(f"{method} {url}: {answer.status} {_message(text)}", answer.status)
        try:
            return json.loads(text) if text else {}
        except ValueError:
            raise HubFailed(f"{method} {url}: the answer is not JSON") from None


def _server_url(url: str, user: str, name: str) -> str:
    path = f"{url}/users/{quote(user, safe='')}"
    return f"{path}/servers/{quote(name, safe='')}" if name else f"{path}/server"


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", ""))[:300]
    except (ValueError, AttributeError):
        return ""
