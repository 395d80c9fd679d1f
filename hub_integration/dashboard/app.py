"""``python -m hub_integration.dashboard``: the service, run by the Hub."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import uvicorn
from fastapi import FastAPI
from traitlets import Float, Unicode
from traitlets.config import Application

from gpushare.names import DEFAULT_PREFIX, Names
from hub_integration.dashboard.cordon import Cordons
from hub_integration.dashboard.early import EarlyAnswers
from hub_integration.dashboard.feed import Feed
from hub_integration.dashboard.login import Login, Settings
from hub_integration.dashboard.neighbours import HubSide, StateApi
from hub_integration.dashboard.pages import Pages
from hub_integration.dashboard.screens import Screens
from hub_integration.dashboard.trends import Trends
from hub_integration.dashboard.web import Dashboard, application
from hub_integration.settings import SERVICE_ACCOUNT_TOKEN
from hub_integration.state_client import StateAddress


class DashboardApp(Application):
    """Shows people their slices, and admins all cards."""

    name = "gpushare-dashboard"
    description = "Shows people their GPU slices, and admins all cards. Run by JupyterHub."

    extender_url = Unicode(
        "",
        config=True,
        help="Address of the extender's state API, as c.GPUShareSpawner.extender_url.",
    )
    extender_ca = Unicode("", config=True, help="File with the authority of its certificate.")
    extender_server_name = Unicode(
        "", config=True, help="Name that its certificate must have, where the URL has another."
    )
    extender_token_file = Unicode(
        SERVICE_ACCOUNT_TOKEN,
        config=True,
        help="File with the Kubernetes token to show to it. Empty for none.",
    )
    extender_timeout = Float(5.0, config=True, help="Seconds to wait for an answer of it.")
    culler_url = Unicode(
        "",
        config=True,
        help="""
        Address of the culler's service, http://127.0.0.1:10102/services/gpushare-culler in the
        Hub's own pod. Empty: no times, no holds, no reclaimed slices, no hours.
        """,
    )
    history_file = Unicode(
        "gpushare-trends.json",
        config=True,
        help="""
        Where a week of the cluster's sums is kept, for the plots. Relative to the Hub's working
        folder. Empty to keep it in memory alone.
        """,
    )
    ip = Unicode("", config=True, help="Address to listen on. Empty for that in the service's URL.")
    prefix = Unicode(DEFAULT_PREFIX, config=True, help="Prefix of our annotations.")

    aliases: ClassVar[dict[str, str]] = {
        "config": "DashboardApp.config_file",
        "extender-url": "DashboardApp.extender_url",
        "extender-ca": "DashboardApp.extender_ca",
        "extender-server-name": "DashboardApp.extender_server_name",
        "extender-token-file": "DashboardApp.extender_token_file",
        "culler-url": "DashboardApp.culler_url",
        "history-file": "DashboardApp.history_file",
    }
    config_file = Unicode("", config=True, help="A configuration file.")

    early: EarlyAnswers | None = None

    def initialize(self, argv: list[str] | None = None) -> None:
        self.parse_command_line(argv)
        if self.config_file:
            self.load_config_file(self.config_file)
            self.parse_command_line(argv)

    def start(self) -> None:
        logging.basicConfig(level=self.log_level, format="%(levelname)s %(name)s: %(message)s")
        try:
            settings = Settings.from_environment()
        except KeyError as missing:
            sys.exit(
                f"gpushare-dashboard: {missing} is not set: it is a service of a JupyterHub, which "
                "starts it (hub_integration.config.configure_dashboard)"
            )
        if self.early is None:
            sys.exit("gpushare-dashboard: JUPYTERHUB_SERVICE_URL is not set, or has no port")
        # uvicorn hands on the signal that ended it; for a service of the Hub that is the usual end.
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(self._serve(settings, self.early))

    async def _serve(self, settings: Settings, early: EarlyAnswers) -> None:
        connector = aiohttp.TCPConnector(limit=100)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as http:
            dashboard = self.assemble(http, settings)
            config = uvicorn.Config(
                application(dashboard, _running(dashboard)),
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=2,
            )
            await uvicorn.Server(config).serve(sockets=[early.hand_over()])

    def assemble(self, http: aiohttp.ClientSession, settings: Settings) -> Dashboard:
        """All parts, nothing running."""
        service = os.environ["JUPYTERHUB_SERVICE_PREFIX"]
        base = os.environ.get("JUPYTERHUB_BASE_URL", "/")
        state = StateApi(
            http,
            StateAddress(
                url=self.extender_url,
                ca=self.extender_ca,
                token_file=self.extender_token_file,
                server_name=self.extender_server_name,
                timeout=self.extender_timeout,
            ),
        )
        hub = HubSide(http, settings.api_url, self.culler_url, settings.api_token)
        path = Path(self.history_file) if self.history_file else None
        feed = Feed(state, hub, Trends(path, self.log), self.log)
        pages = Pages(service, os.environ.get("JUPYTERHUB_HOST", "") + base)
        screens = Screens(feed, pages, hub)
        cordons = Cordons(None, Names(self.prefix), self.log)
        login = Login(http, hub, settings)
        return Dashboard(service, feed, login, hub, cordons, pages, screens)


def _running(dashboard: Dashboard) -> Any:
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        looking = asyncio.create_task(dashboard.feed.run())
        looking.add_done_callback(_end_with)
        connecting = asyncio.create_task(_connect(dashboard))
        yield
        looking.cancel()
        connecting.cancel()

    return lifespan


async def _connect(dashboard: Dashboard) -> None:
    """Find out whether cards can be cordoned here, while everything else is shown already."""
    await dashboard.cordons.connect()
    dashboard.screens.can_cordon = dashboard.cordons.allowed


def _end_with(task: asyncio.Task[None]) -> None:
    """A dashboard that cannot look any more must not go on serving: the Hub starts it again."""
    if not task.cancelled() and task.exception() is not None:
        logging.getLogger(__name__).critical("looking failed", exc_info=task.exception())
        os._exit(1)
