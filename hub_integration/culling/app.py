"""``gpushare-culler``: gives idle slices back. A service of the Hub, which starts it and asks it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import urlparse

import aiohttp
from tornado.httpserver import HTTPServer
from traitlets import Bool, Dict, Enum, Float, Int, TraitError, Unicode, validate
from traitlets.config import Application, Config

import gpushare
from gpushare.names import DEFAULT_PREFIX, Names
from gpushare.units import Unit
from hub_integration.accounting.accountant import Accountant
from hub_integration.accounting.book import Book
from hub_integration.catalogue_file import CatalogueFile
from hub_integration.culling import kube as kubernetes
from hub_integration.culling.culler import Culler, Options
from hub_integration.culling.holds import Limits
from hub_integration.culling.hub_api import HubApi
from hub_integration.culling.judging import Judged
from hub_integration.culling.kernels import KernelWatch
from hub_integration.culling.memory import Memory, MemoryFailed
from hub_integration.culling.policy_book import PolicyBook
from hub_integration.culling.state_api import StateApi
from hub_integration.culling.stopping import Stopper
from hub_integration.culling.web import Parts, application
from hub_integration.culling.workloads import WorkloadWatch, read_policies
from hub_integration.desk import catalogue_file
from hub_integration.quota.ledger import Ledger, LedgerError
from hub_integration.settings import SERVICE_ACCOUNT_TOKEN
from hub_integration.state_client import StateAddress

SETTINGS = "GPUSHARE_CULLER_SETTINGS"
_DEFAULTS = {"idle_minutes": 60, "warn_minutes": 5, "min_run_minutes": 10}


class CannotStart(Exception):
    """A setting cannot be used. The text names it."""


class GPUShareCuller(Application):
    """Ends servers that nobody uses, and sees to it that their slices come back."""

    name = "gpushare-culler"
    version = gpushare.__version__
    description = """Idle culler for shared GPU cards, as a service of JupyterHub.

    Ends servers by jupyterhub-idle-culler, with the catalogue's times, the GPU's use and who waits
    as its arbiter; warns before; follows each slice until its node says that it is free.
    """
    examples = """
        gpushare-culler --dry-run          # say what would be ended, end nothing
        gpushare-culler --config /etc/jupyterhub/gpushare_culler_config.py
    """
    aliases: ClassVar = {
        "config": "GPUShareCuller.config_file",
        "log-level": "Application.log_level",
    }
    flags: ClassVar = {
        "dry-run": ({"GPUShareCuller": {"dry_run": True}}, "Decide and report; end nothing.")
    }

    config_file = Unicode("", help="File with settings, JSON or Python.").tag(config=True)

    dry_run = Bool(
        False,
        help="""Decide, warn and report, but end nothing: for trying a policy out. What would have
        been ended is in `/api/reclaimed` with the state `dry-run`, and in the metrics.""",
    ).tag(config=True)

    interval = Float(
        15.0, min=0.1, help="Seconds between two looks at all servers."
    ).tag(config=True)  # fmt: skip

    alarm_after = Float(
        120.0,
        min=1,
        help="""Seconds after which a slice that does not come back raises the alarm: in the log,
        as the metric `gpushare_reclaim_alarms`, and in `/api/reclaimed`.""",
    ).tag(config=True)

    patience = Float(
        10.0,
        min=0,
        help="Seconds that a pod waits for a slice before it presses anybody.",
    ).tag(config=True)

    default_times = Dict(
        default_value=_DEFAULTS,
        help="""Policy of servers that are not of the catalogue, with the names and minutes as
        there; {} to leave them alone.""",
    ).tag(config=True)

    minute = Float(
        60.0,
        min=0.01,
        help="""Seconds that a minute of the catalogue lasts. Less than 60 is for demonstrations
        and for trying policies out.""",
    ).tag(config=True)

    hold_once = Float(60.0, min=0, help="Minutes that one hold may be at most.").tag(config=True)
    hold_total = Float(
        240.0, min=0, help="Minutes that one server may be held in all, from its start to its end."
    ).tag(config=True)

    bridge = Enum(
        ["auto", "always", "never"],
        "auto",
        help="""Whether to write activity for servers that stay, so that another culler leaves them
        alone. `auto`: where jupyterhub-idle-culler is older than 2.0, as in zero-to-jupyterhub's
        image with `cull.enabled`. `always` where another culler runs beside for any reason.""",
    ).tag(config=True)

    bridge_every = Float(
        60.0,
        min=0.5,
        help="""Activity is written when the Hub knows of none for so many seconds. Less than half
        of the other culler's timeout.""",
    ).tag(config=True)

    end_kernels = Bool(
        True,
        help="""Whether to end idle kernels that hold GPU memory, where the catalogue says
        `kernel_idle_minutes`. Needs the scope `access:servers`.""",
    ).tag(config=True)

    workload_policies = Dict(
        help="""Policies for pods beside the notebooks, by namespace; '*' for all others. They are
        reported in `/api/workloads`; ended only with `end`, for which the culler's account needs
        the rights in docs/culling.md::

            c.GPUShareCuller.workload_policies = {"batch": {"idle_minutes": 120, "end": False}}
        """,
    ).tag(config=True)

    database = Unicode(
        "sqlite:///gpushare-culler.sqlite",
        help="""Where warnings, holds, ends and hours are kept, as SQLAlchemy writes it. The Hub's
        own database may be it; the tables have names of their own.""",
    ).tag(config=True)

    ledger_url = Unicode(
        "",
        help="""The quota ledger of the Hub (`c.GPUShareSpawner.ledger_url`), which knows how long
        slices were given. Empty: the culler's own looks count.""",
    ).tag(config=True)

    keep_days = Int(400, min=1, help="Days that ends and hours are kept.").tag(config=True)

    given_back_hours = Float(
        8.0,
        min=0,
        help="""Hours that an end is taken to have given back at most: until the same server is
        started again, and no longer than this, since nobody knows when it would have ended.""",
    ).tag(config=True)

    ip = Unicode(
        "", help="Address to listen on. Empty: that in the URL which the Hub has of this service."
    ).tag(config=True)
    catalogue_file = Unicode("", help="As `c.GPUShareSpawner.catalogue_file`.").tag(config=True)
    extender_url = Unicode("", help="As `c.GPUShareSpawner.extender_url`.").tag(config=True)
    extender_ca = Unicode("", help="As `c.GPUShareSpawner.extender_ca`.").tag(config=True)
    extender_server_name = Unicode(
        "", help="As `c.GPUShareSpawner.extender_server_name`."
    ).tag(config=True)  # fmt: skip
    extender_token_file = Unicode(
        SERVICE_ACCOUNT_TOKEN, help="As `c.GPUShareSpawner.extender_token_file`."
    ).tag(config=True)
    extender_timeout = Float(
        10.0, min=0.1, help="Seconds that the extender may take to answer."
    ).tag(config=True)  # fmt: skip
    prefix = Unicode(DEFAULT_PREFIX, help="As `c.GPUShareSpawner.prefix`.").tag(config=True)
    unit = Unicode("GiB", help="As `c.GPUShareSpawner.unit`.").tag(config=True)

    kubeconfig = Unicode(
        "", help="How to reach Kubernetes; empty for the pod's own account, or $KUBECONFIG."
    ).tag(config=True)
    namespace = Unicode(
        "", help="Where notebooks run; empty for the culler's own, '*' for all namespaces."
    ).tag(config=True)

    hub_api_url = Unicode(
        os.environ.get("JUPYTERHUB_API_URL", "http://127.0.0.1:8081/hub/api"),
        help="The Hub's API; the Hub says it in JUPYTERHUB_API_URL.",
    ).tag(config=True)

    log_level = Application.log_level
    log_level.default_value = logging.INFO

    @validate("prefix")
    def _valid_prefix(self, proposal: dict[str, Any]) -> str:
        return _checked(Names, str(proposal["value"]), "prefix")

    @validate("unit")
    def _valid_unit(self, proposal: dict[str, Any]) -> str:
        return _checked(Unit.parse, str(proposal["value"]), "unit")

    def initialize(self, argv: list[str] | None = None) -> None:
        self.parse_command_line(argv)
        given = os.environ.get(SETTINGS)
        if given:
            self.update_config(Config({"GPUShareCuller": json.loads(given)}))
        if self.config_file:
            self.load_config_file(self.config_file)
        self.update_config(self.cli_config)

    def options(self, has_arbiter: bool) -> Options:
        bridge = self.bridge == "always" or (self.bridge == "auto" and not has_arbiter)
        return Options(
            interval=self.interval,
            follow_interval=min(1.0, self.interval),
            alarm_after=self.alarm_after,
            patience=self.patience,
            ask_again=min(30.0, 2 * self.interval),
            dry_run=self.dry_run,
            bridge=bridge,
            bridge_every=self.bridge_every,
            given_back_most=self.given_back_hours * 3600,
            keep=self.keep_days * 86400.0,
            limits=Limits(self.hold_once * self.minute, self.hold_total * self.minute, self.minute),
        )

    @contextlib.asynccontextmanager
    async def parts(self) -> AsyncIterator[Parts]:
        """All of it, put together. Raises CannotStart."""
        token = os.environ.get("JUPYTERHUB_API_TOKEN", "")
        if not token:
            raise CannotStart(
                "JUPYTERHUB_API_TOKEN is not set: let the Hub start the culler, with "
                "hub_integration.config.configure_culler(c), or set a token with the scopes in "
                "docs/culling.md"
            )
        names, minute = Names(self.prefix), timedelta(seconds=self.minute)
        async with contextlib.AsyncExitStack() as stack:
            try:
                memory = Memory(self.database)
                ledger = Ledger(self.ledger_url) if self.ledger_url else None
                policies = read_policies(self.workload_policies, minute)
                reader = await kubernetes.connect(self.kubeconfig, self.namespace, names)
            except (MemoryFailed, LedgerError, ValueError, kubernetes.KubeFailed) as error:
                raise CannotStart(str(error)) from None
            stack.callback(memory.close)
            if reader is None:
                self.log.warning(
                    "There is no Kubernetes to be asked (GPUShareCuller.kubeconfig): of servers "
                    "without a slice, ends are not followed to their pods"
                )
            else:
                stack.push_async_callback(reader.close)
            session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
            hub = HubApi(session, self.hub_api_url, token)
            stopper = Stopper(hub, token, self.log)
            book = PolicyBook(self._catalogue(names), self.default_times, minute)
            culler = Culler(
                hub,
                self._state(session),
                reader,
                memory,
                stopper,
                book.rules_of,
                self.options(stopper.has_arbiter),
                self.log,
            )
            workloads = WorkloadWatch(culler, reader, policies, self.log)
            accountant = Accountant(Book(self.database), ledger)
            stack.push_async_callback(accountant.flush)
            culler.watchers += [accountant, workloads]
            if self.end_kernels:
                culler.watchers.append(KernelWatch(culler, self.log))
            self.log.info(
                "jupyterhub-idle-culler %s: %s; bridge %s%s",
                stopper.version,
                "asks our arbiter" if stopper.has_arbiter else "has no arbiter, ends are our own",
                "on" if culler.options.bridge else "off",
                "; dry run, nobody is ended" if self.dry_run else "",
            )
            yield Parts(culler, workloads, accountant, lambda judged: title(book, judged))

    def _catalogue(self, names: Names) -> CatalogueFile:
        return catalogue_file(self.catalogue_file, Unit.parse(self.unit), names, self.log)

    def _state(self, session: aiohttp.ClientSession) -> StateApi | None:
        if not self.extender_url:
            self.log.warning(
                "GPUShareCuller.extender_url is not set: the GPU's use and who waits are not known"
            )
            return None
        address = StateAddress(
            self.extender_url,
            self.extender_ca,
            self.extender_token_file,
            self.extender_server_name,
            self.extender_timeout,
        )
        return StateApi(session, address, self.log)

    async def serve(self) -> None:
        """Until the Hub ends it. Raises CannotStart."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with self.parts() as parts:
            server = self._listen(parts)
            running = asyncio.create_task(parts.culler.run())
            ending = asyncio.create_task(stop.wait())
            done, _ = await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
            for task in (running, ending):
                task.cancel()
            if server is not None:
                server.stop()
            if running in done:
                running.result()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def _listen(self, parts: Parts) -> HTTPServer | None:
        """The API, where the Hub says that it expects it."""
        url, prefix = (os.environ.get(f"JUPYTERHUB_SERVICE_{n}", "") for n in ("URL", "PREFIX"))
        if not url or not prefix:
            self.log.warning("The Hub gave this service no URL: there is no API, nobody is warned")
            return None
        where = urlparse(url)
        server = HTTPServer(application(parts, prefix), xheaders=True)
        try:
            server.listen(where.port or 80, self.ip or where.hostname or "127.0.0.1")
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {url}: {error}; give configure_culler another port"
            ) from None
        return server

    def start(self) -> None:
        asyncio.run(self.serve())


def title(book: PolicyBook, judged: Judged) -> str:
    return book.title(judged.server, judged.pod)


def _checked(check: Any, value: str, name: str) -> str:
    try:
        check(value)
    except ValueError as error:
        raise TraitError(f"GPUShareCuller.{name}: {error}") from None
    return value


def main() -> None:
    """The command ``gpushare-culler``."""
    app = GPUShareCuller()
    try:
        app.initialize()
        app.start()
    except (CannotStart, TraitError) as error:
        print(f"gpushare-culler cannot start: {error}", file=sys.stderr)
        sys.exit(1)
