"""The endpoints of the single-user server, for its own JupyterLab alone.

Looking at the slice is no use of the server: these requests do not count as activity, or an open
tab would keep every notebook alive.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import ensure_async, url_path_join
from tornado import web
from tornado.ioloop import PeriodicCallback

from gpushare.board import PATH, NoBoard
from hub_integration.lab.culler import CullerClient, CullerError, culler_url
from hub_integration.lab.kernels import kernels_of, owner_of, parent_of
from hub_integration.lab.shown import SAMPLE_SECONDS, History, nothing, shown
from hub_integration.lab.source import slice_now

BOARD = "GPUSHARE_BOARD"  # another place for the notice board's file, for tests and demos
_MOST_MINUTES = 7 * 24 * 60


class Watcher:
    """Looks at the slice every few seconds, so that the panel has a past when it is opened."""

    def __init__(self, path: Path, culler: CullerClient) -> None:
        self.path = path
        self.culler = culler
        self.history = History()

    def look(self) -> None:
        try:
            self.history.add(slice_now(self.path, os.environ), time.time())
        except NoBoard:
            return

    async def answer(self, manager: Any, sessions: Any) -> dict[str, Any]:
        """What GET /gpushare/slice says."""
        verdict = await self.culler.verdict()
        try:
            board = await asyncio.to_thread(slice_now, self.path, os.environ)
        except NoBoard as error:
            return nothing(str(error), verdict)
        kernels = kernels_of(manager, await ensure_async(sessions.list_sessions()))
        return shown(
            board,
            time.time(),
            self.history,
            lambda pid: owner_of(pid, kernels, parent_of),
            verdict,
        )


class _Quiet(APIHandler):
    """For people who are let in, and no sign of activity."""

    def initialize(self, watcher: Watcher) -> None:
        self.watcher = watcher

    def update_api_activity(self) -> None:
        pass


class SliceHandler(_Quiet):
    """GET /gpushare/slice"""

    @web.authenticated
    async def get(self) -> None:
        self.finish(await self.watcher.answer(self.kernel_manager, self.session_manager))


class HoldHandler(_Quiet):
    """POST /gpushare/hold {"minutes": 30}"""

    @web.authenticated
    async def post(self) -> None:
        minutes = (self.get_json_body() or {}).get("minutes")
        if minutes is not None and (
            isinstance(minutes, bool)
            or not isinstance(minutes, int)
            or not 0 <= minutes <= _MOST_MINUTES
        ):
            raise web.HTTPError(400, "'minutes' is not a whole number of minutes")
        try:
            verdict = await self.watcher.culler.hold(minutes)
        except CullerError as error:
            self.set_status(error.status)
            self.finish(json.dumps({"message": str(error)}))
            return
        self.finish(verdict)


def add_handlers(server: Any) -> None:
    """Put the endpoints into a jupyter_server."""
    environment = os.environ
    culler = CullerClient(culler_url(environment), environment.get("JUPYTERHUB_API_TOKEN", ""))
    watcher = Watcher(Path(environment.get(BOARD) or PATH), culler)
    base = server.web_app.settings["base_url"]
    server.web_app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "gpushare", "slice"), SliceHandler, {"watcher": watcher}),
            (url_path_join(base, "gpushare", "hold"), HoldHandler, {"watcher": watcher}),
        ],
    )
    # The server has no loop yet where it only lists its extensions.
    callback = PeriodicCallback(watcher.look, SAMPLE_SECONDS * 1000)
    server.io_loop.add_callback(callback.start)
