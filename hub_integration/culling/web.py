"""The culler's HTTP API, for the Hub's pages, the dashboard, the lab extension and Prometheus.

Who asks, the Hub says: by a token in the Authorization header, or by the cookie of a browser that
logged in through the Hub. People see and hold their own servers; a single-user server's token only
that server; admins everything.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated
from tornado.web import Application, HTTPError, RequestHandler

import gpushare
from gpushare.waiting import rfc3339
from hub_integration.accounting.accountant import Accountant
from hub_integration.accounting.report import as_csv
from hub_integration.culling.culler import Culler
from hub_integration.culling.holds import HoldRefused
from hub_integration.culling.judging import Judged
from hub_integration.culling.metrics import CONTENT_TYPE
from hub_integration.culling.reporting import reclaim_object, totals_object, verdict_object
from hub_integration.culling.workloads import WorkloadWatch

_ADMIN = {"delete:servers", "servers", "admin:servers"}
_SERVER = "access:servers!server="
_LARGEST = 10_000  # bytes of a request
_MOST = 1000  # reclaims in one answer


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. ``server`` is set for the token of one single-user server, which is no admin."""

    name: str
    admin: bool
    server: str | None = None

    def may(self, user: str, server: str) -> bool:
        if self.admin:
            return True
        return user == self.name and self.server in (None, server)


def caller(model: dict[str, Any]) -> Caller:
    """From the Hub's model of the token's owner."""
    name, scopes = str(model.get("name", "")), set(model.get("scopes") or ())
    service = model.get("kind") == "service"
    if scopes & _ADMIN:
        return Caller("" if service else name, True)
    if service:
        return Caller("", False)
    accesses = {s for s in scopes if s.startswith("access:servers")}
    mine = [s.removeprefix(_SERVER) for s in accesses if s.startswith(_SERVER)]
    if mine and len(accesses) == len(mine):
        user, _, server = mine[0].partition("/")
        return Caller(name, False, server if user == name and len(mine) == 1 else "\0")
    return Caller(name, bool(model.get("admin")))


@dataclass(frozen=True, slots=True)
class Parts:
    """What the handlers answer from."""

    culler: Culler
    workloads: WorkloadWatch
    accountant: Accountant
    title_of: Callable[[Judged], str]


def application(parts: Parts, prefix: str) -> Application:
    """To be served under ``prefix``, which ends in '/'."""
    options = {"parts": parts}
    return Application(
        [
            (prefix + "oauth_callback", HubOAuthCallbackHandler),
            (prefix + "?", Root, options),
            (prefix + "health", Health, options),
            (prefix + "api/verdicts", Verdicts, options),
            (prefix + "api/verdicts/mine", Mine, options),
            (prefix + "api/holds", Holds, options),
            (prefix + "api/reclaimed", Reclaimed, options),
            (prefix + "api/workloads", Workloads, options),
            (prefix + "api/usage", Usage, options),
            (prefix + "api/metrics", Prometheus, options),
        ],
        cookie_secret=os.urandom(32),
        default_handler_class=Unknown,
    )


class _Handler(RequestHandler):
    """JSON out, and a sentence for whatever goes wrong."""

    def initialize(self, parts: Parts) -> None:
        self.parts = parts
        self.culler = parts.culler

    def answer(self, value: object) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(value, separators=(",", ":")))

    def write_error(self, status_code: int, **more: Any) -> None:
        error = (more.get("exc_info") or (None, None))[1]
        text = error.log_message if isinstance(error, HTTPError) else None
        text = text.replace("%%", "%") if text else None  # tornado doubles them for its log
        self.set_status(status_code)
        self.answer({"detail": text or "The culler failed; its log says why."})


class Unknown(_Handler):
    def initialize(self) -> None:  # type: ignore[override]
        pass

    def prepare(self) -> None:
        raise HTTPError(404, "There is no such page here.")


class Health(_Handler):
    """Open to all: whether the culler looks, without a word about anybody."""

    def get(self) -> None:
        if self.culler.problem:
            self.set_status(503)
        self.answer({"ok": not self.culler.problem, "problem": self.culler.problem})


class Root(_Handler):
    """The Hub asks here whether its service lives."""

    def get(self) -> None:
        self.answer({"service": "gpushare-culler", "version": gpushare.__version__})


class _Known(HubOAuthenticated, _Handler):
    """Only for those whom the Hub lets in."""

    def check_xsrf_cookie(self) -> None:
        self.hub_auth.check_xsrf_cookie(self)

    async def prepare(self) -> None:
        auth: HubOAuth = self.hub_auth
        model = await auth.get_user(self, sync=False)
        if model is None:
            raise HTTPError(401, "Show a token of the Hub, or log in to it.")
        if not auth.check_scopes(auth.access_scopes, model):
            raise HTTPError(
                403,
                "The token lacks a scope of "
                f"{', '.join(sorted(auth.access_scopes))}: hub_integration.config.configure_culler "
                "gives it to users and their servers.",
            )
        self.caller = caller(model)

    def for_admins(self) -> None:
        if not self.caller.admin:
            raise HTTPError(403, "Only admins see what concerns others; ask for verdicts/mine.")

    def whose(self) -> str | None:
        """The user whose lines may be shown; None for all."""
        wanted = self.get_query_argument("user", "")
        if self.caller.admin:
            return wanted or None
        if wanted and wanted != self.caller.name:
            raise HTTPError(403, "Only admins see what concerns others.")
        return self.caller.name

    def verdicts(self, judged: Sequence[Judged]) -> dict[str, Any]:
        now, options = self.culler.now(), self.culler.options
        return {
            "at": None if self.culler.at is None else rfc3339(self.culler.at.timestamp()),
            "interval_seconds": options.interval,
            "dry_run": options.dry_run,
            "verdicts": [self.verdict(one, now) for one in judged],
        }

    def verdict(self, judged: Judged, now: datetime) -> dict[str, Any]:
        limits = self.culler.options.limits
        return verdict_object(judged, now, limits, self.parts.title_of(judged))


class Verdicts(_Known):
    def get(self) -> None:
        self.for_admins()
        self.answer(self.verdicts(self.culler.judged))


class Mine(_Known):
    def get(self) -> None:
        me = self.caller
        mine = [
            one
            for one in self.culler.judged
            if one.server.user == me.name and me.server in (None, one.server.name)
        ]
        self.answer(self.verdicts(mine))


class Holds(_Known):
    async def post(self) -> None:
        asked = self._asked()
        me = self.caller
        user = str(asked.get("user") or me.name)
        server = asked.get("server")
        if server is None:
            server = me.server or ""
        if not isinstance(server, str) or not me.may(user, server):
            raise HTTPError(403, "Only its owner and admins may keep a server.")
        minutes = asked.get("minutes")
        if minutes is not None:
            good = isinstance(minutes, int | float) and not isinstance(minutes, bool)
            if not good or not math.isfinite(minutes):
                raise HTTPError(400, "minutes must be a number.")
        try:
            held = await self.culler.hold(user, server, minutes)
        except HoldRefused as refused:
            raise HTTPError(refused.status, str(refused)) from None
        self.answer(self.verdict(held, self.culler.now()))

    def _asked(self) -> dict[str, Any]:
        if len(self.request.body) > _LARGEST:
            raise HTTPError(400, "The request is too large.")
        try:
            asked = json.loads(self.request.body or b"{}")
        except ValueError:
            raise HTTPError(400, "The request is not JSON.") from None
        if not isinstance(asked, dict):
            raise HTTPError(400, "The request is no object.")
        return asked


class Reclaimed(_Known):
    def get(self) -> None:
        try:
            limit = min(_MOST, max(1, int(self.get_query_argument("limit", "100"))))
        except ValueError:
            raise HTTPError(400, "limit must be a number.") from None
        user, memory = self.whose(), self.culler.memory
        now, most = self.culler.now().timestamp(), self.culler.options.given_back_most
        every = memory.since(now - self.culler.options.keep, user)
        self.answer(
            {
                "reclaimed": [reclaim_object(one, now, most) for one in memory.recent(limit, user)],
                "totals": totals_object(every, now, most),
            }
        )


class Workloads(_Known):
    def get(self) -> None:
        self.for_admins()
        self.answer({"workloads": self.parts.workloads.report})


class Usage(_Known):
    async def get(self) -> None:
        first, last = self.get_query_argument("from", ""), self.get_query_argument("to", "")
        by = [part for part in self.get_query_argument("by", "day,user").split(",") if part]
        user = self.whose()
        try:
            table = await self.parts.accountant.report(first, last, by, user)
        except ValueError as error:
            raise HTTPError(400, f"{error}.") from None
        if self.get_query_argument("format", "json") == "csv":
            self.set_header("Content-Type", "text/csv; charset=utf-8")
            self.set_header("Content-Disposition", 'attachment; filename="gpu-gib-hours.csv"')
            self.finish(as_csv(table, by))
            return
        self.answer({"rows": table, "given_back": self._given_back(user)})

    def _given_back(self, user: str | None) -> list[dict[str, Any]]:
        """GiB-hours that ends gave back, by the day of the decision."""
        now, options = self.culler.now().timestamp(), self.culler.options
        by_day: dict[str, float] = {}
        for one in self.culler.memory.since(now - options.keep, user):
            day = rfc3339(one.decided_at)[:10]
            by_day[day] = by_day.get(day, 0.0) + one.given_back(now, options.given_back_most)
        return [{"day": day, "gib_hours": round(h, 4)} for day, h in sorted(by_day.items())]


class Prometheus(_Known):
    def get(self) -> None:
        self.for_admins()
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(self.culler.metrics.text())
