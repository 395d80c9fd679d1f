"""How servers are ended: by jupyterhub-idle-culler itself, with our verdicts as its arbiter.

Since 2.0 it asks an arbiter about each server. Before (1.4, in zero-to-jupyterhub's image) there is
none: we ask the Hub for the end ourselves, and the bridge keeps servers that stay alive under
whatever other culler runs, by writing activity for them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import jupyterhub_idle_culler

from hub_integration.culling.hub_api import HubApi, HubFailed
from hub_integration.culling.observed import Server, moment

# Asked with the server as the Hub tells it a moment before its end; False: it stays after all.
Confirm = Callable[[Server], bool]


class Stopper:
    """Ends servers."""

    def __init__(self, hub: HubApi, token: str, log: logging.Logger) -> None:
        self.hub = hub
        self.log = log
        self._token = token
        cull_idle = jupyterhub_idle_culler.cull_idle
        self.has_arbiter = "cull_arbiter" in inspect.signature(cull_idle).parameters
        self._cull_idle: Callable[..., Awaitable[None]] = cull_idle

    @property
    def version(self) -> str:
        return str(getattr(jupyterhub_idle_culler, "__version__", "1"))

    async def stop(self, servers: Iterable[Server], confirm: Confirm) -> None:
        """Ask the Hub to end these servers, if ``confirm`` still says so. Raises HubFailed."""
        chosen = {server.url: server for server in servers}
        if not chosen:
            return
        if self.has_arbiter:
            await self._by_culler(chosen, confirm)
        else:
            await self._by_hand(chosen, confirm)

    async def _by_culler(self, chosen: Mapping[str, Server], confirm: Confirm) -> None:
        def arbiter(
            *, inactive: timedelta | None, inactive_limit: float, server: dict[str, Any]
        ) -> bool:
            known = chosen.get(str(server.get("url")))
            return known is not None and confirm(_newer(known, server))

        try:
            await self._cull_idle(
                self.hub.url, self._token, 0, self.log, api_page_size=0, cull_arbiter=arbiter
            )
        except Exception as error:  # tornado's, the socket's, or the reader's of the answer
            raise HubFailed(f"jupyterhub-idle-culler: {error or type(error).__name__}") from error

    async def _by_hand(self, chosen: Mapping[str, Server], confirm: Confirm) -> None:
        failed: list[str] = []
        for server in chosen.values():
            try:
                now = await self.hub.server(server.user, server.name)
                if now is not None and now.ready and not now.pending and confirm(now):
                    self.log.info("Ending server %s", server)
                    await self.hub.stop(server.user, server.name)
            except HubFailed as error:
                failed.append(str(error))
        if failed:
            raise HubFailed("; ".join(failed[:5]))


def _newer(known: Server, model: Mapping[str, Any]) -> Server:
    return Server(
        user=known.user,
        name=known.name,
        started=moment(model.get("started")) or known.started,
        last_activity=moment(model.get("last_activity")) or known.last_activity,
        url=known.url,
        ready=bool(model.get("ready", True)),
        pending=str(model.get("pending") or ""),
        groups=known.groups,
        options=known.options,
    )
