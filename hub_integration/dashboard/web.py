"""The service over HTTP: pages, their streams, and what can be clicked.

Everything but the health page and the assets needs a login through the Hub. What changes something
is a POST with the session's own token, and is done with the clicking person's rights at the Hub and
at the culler; only cordoning a card is done with the service's, after a look at the person's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles

from hub_integration.dashboard.cordon import CordonFailed, Cordons
from hub_integration.dashboard.feed import Feed
from hub_integration.dashboard.login import SESSION_SECONDS, Login, Session
from hub_integration.dashboard.neighbours import Away, HubSide
from hub_integration.dashboard.pages import STATIC, Pages, Parts, patch
from hub_integration.dashboard.screens import Screens

log = logging.getLogger(__name__)

COOKIE = "gpushare-dashboard"
_LOGIN_COOKIE = "gpushare-dashboard-login"
_MARK = "@@xsrf@@"
_LARGEST_FORM = 10_000
_HEARTBEAT = 20.0  # seconds; proxies end what is silent for longer
_MANY = 200  # parts of a large cluster come at most every few seconds
_SLOWLY = 5.0
_MOST_STREAMS = 8  # open pages of one session
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(slots=True)
class Dashboard:
    """All parts of the service. ``prefix`` begins and ends with '/'."""

    prefix: str
    feed: Feed
    login: Login
    hub: HubSide
    cordons: Cordons
    pages: Pages
    screens: Screens


class _Refused(Exception):
    """Ends a request with a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _LoggedOut(Exception):
    """Nobody is logged in: a page goes to the Hub, anything else is refused."""


def application(
    dashboard: Dashboard, lifespan: Callable[[FastAPI], AsyncIterator[None]] | None = None
) -> FastAPI:
    """To be served under ``dashboard.prefix``."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=asynccontextmanager(lifespan) if lifespan else None,
    )
    _Routes(dashboard).add_to(app)
    return app


class _Routes:
    def __init__(self, dashboard: Dashboard) -> None:
        self.its = dashboard
        self.prefix = dashboard.prefix
        self._streams: dict[int, int] = {}

    def add_to(self, app: FastAPI) -> None:
        at = self.prefix
        pages: dict[str, Callable[..., Awaitable[Response]]] = {
            "": self.mine,
            "stream": self.my_stream,
            "cluster": self.cluster,
            "cluster/stream": self.cluster_stream,
            "cluster/nodes/{name}": self.node,
            "oauth_callback": self.callback,
            "health": self.health,
        }
        for path, page in pages.items():
            app.add_api_route(at + path, page, methods=["GET"], response_model=None)
        acts = {
            "stop": self.stop,
            "hold": self.hold,
            "cordon": self.cordon,
            "grant": self.grant,
        }
        for path, act in acts.items():
            app.add_api_route(at + path, self._act(act), methods=["POST"], response_model=None)
        app.mount(at + "static", StaticFiles(directory=STATIC))
        app.add_exception_handler(_LoggedOut, self._to_login)
        app.add_exception_handler(_Refused, self._refuse)
        app.add_exception_handler(Away, self._away)

        @app.middleware("http")
        async def headers(
            request: Request, call_next: Callable[[Request], Awaitable[Response]]
        ) -> Response:
            response = await call_next(request)
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            if request.url.path.startswith(at + "static/"):
                response.headers["Cache-Control"] = "no-cache"
            return response

    # --- pages

    async def mine(self, request: Request) -> Response:
        session = await self._session(request)
        parts = await self.its.screens.mine(session.user, self._person(session))
        return self._page(session, "mine.html", parts, stream="stream", place="mine")

    async def cluster(self, request: Request) -> Response:
        session = await self._admin(request)
        parts = await self.its.screens.cluster()
        order = parts["order"].split()
        return self._page(
            session,
            "cluster.html",
            parts,
            stream="cluster/stream",
            place="cluster",
            order=order,
            collapsed=any("data-node" in parts[id_] for id_ in order[:1]),
            allowances=await self.its.screens.allowances(self._person(session)),
        )

    async def node(self, request: Request, name: str) -> Response:
        session = await self._admin(request)
        html = self.its.screens.node(name)
        if html is None:
            raise _Refused(404, f"There is no node {name!r}.")
        return HTMLResponse(_signed(html, session))

    async def health(self) -> Response:
        """Open to all: whether it looks, without a word about anybody."""
        problem = self.its.feed.reading.problem
        return JSONResponse({"ok": not problem, "looks": self.its.feed.looks})

    def _page(
        self, session: Session, template: str, parts: Parts, stream: str, **more: object
    ) -> Response:
        html = self.its.pages.page(
            template,
            parts,
            user=session.user,
            admin=session.admin,
            stream=self.prefix + stream,
            **more,
        )
        return HTMLResponse(_signed(html, session))

    # --- streams

    async def my_stream(self, request: Request) -> Response:
        session = await self._session(request)
        person = self._person(session)
        return self._stream(
            request, session, lambda: self.its.screens.mine(session.user, person), admin=False
        )

    async def cluster_stream(self, request: Request) -> Response:
        session = await self._admin(request)
        return self._stream(request, session, self.its.screens.cluster, admin=True)

    def _stream(
        self,
        request: Request,
        session: Session,
        write: Callable[[], Awaitable[Parts]],
        *,
        admin: bool,
    ) -> Response:
        if self._streams.get(id(session), 0) >= _MOST_STREAMS:
            raise _Refused(429, f"{_MOST_STREAMS} pages of yours are open already.")
        messages = self._messages(request, session, write, admin)
        return StreamingResponse(
            messages, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def _messages(
        self,
        request: Request,
        session: Session,
        write: Callable[[], Awaitable[Parts]],
        admin: bool,
    ) -> AsyncIterator[bytes]:
        """Parts that differ from what this page has, as long as its session lasts."""
        cookie = request.cookies.get(COOKIE)
        sent: dict[str, bytes] = {}
        me = id(session)
        self._streams[me] = self._streams.get(me, 0) + 1
        try:
            while True:
                try:
                    alive = await self.its.login.session(cookie)
                except Away:
                    alive = session  # the Hub is away for a moment; the next round asks again
                if alive is not session or (admin and not session.admin):
                    yield b"event: gone\ndata: {}\n\n"
                    return
                next_look = self.its.feed.next_look
                parts = await write()
                news = {}
                for name, html in parts.items():
                    digest = hashlib.blake2b(html.encode(), digest_size=8).digest()
                    if sent.get(name) != digest:
                        sent[name] = digest
                        news[name] = _signed(html, session)
                yield patch(news) if news else b":\n\n"
                if len(parts) > _MANY:
                    await asyncio.sleep(_SLOWLY)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(next_look.wait(), _HEARTBEAT)
        finally:
            self._streams[me] -= 1
            if not self._streams[me]:
                del self._streams[me]

    # --- what can be clicked

    async def stop(self, session: Session, form: Mapping[str, str]) -> str:
        user = form.get("user") or session.user
        if user != session.user and not session.admin:
            raise _Refused(403, "You may stop your own servers only.")
        person = self._person(session)
        server = form.get("server")
        if server is None:
            running = list(await person.servers(user))
            if len(running) != 1:
                raise _Refused(
                    409, "It is not known which server this is: stop it on the Hub's page."
                )
            server = running[0]
        await person.stop(user, server)
        whose = "Your server" if user == session.user else f"The server of {user}"
        return f"{whose} stops. Its slice is free when its processes have ended."

    async def hold(self, session: Session, form: Mapping[str, str]) -> str:
        body = {"user": session.user, "server": form.get("server", "")}
        verdict = await self._person(session).culler("POST", "api/holds", body)
        minutes = (verdict.get("hold") or {}).get("minutes")
        return f"Kept for {minutes} minutes." if minutes else "Kept."

    async def cordon(self, session: Session, form: Mapping[str, str]) -> str:
        if not session.admin:
            raise _Refused(403, "Only admins take cards out of service.")
        node, uuid, out = form.get("node", ""), form.get("card", ""), form.get("out") != "0"
        card = next(
            (
                card
                for known in self.its.feed.reading.nodes
                if known.name == node
                for card in known.cards
                if card.uuid == uuid
            ),
            None,
        )
        if card is None:
            raise _Refused(404, "There is no such card.")
        try:
            await self.its.cordons.set(node, uuid, card.index, out)
        except CordonFailed as error:
            raise _Refused(502, str(error)) from None
        what = "cordons" if out else "uncordons"
        log.info("%s %s card %d of %s", session.user, what, card.index, node)
        took = "takes nothing new" if out else "takes pods again"
        return f"{card.model} {card.index} of {node} {took}."

    async def grant(self, session: Session, form: Mapping[str, str]) -> str:
        if not session.admin:
            raise _Refused(403, "Only admins give allowances.")
        user = form.get("user", "")
        try:
            hours = float(form.get("gib_hours", ""))
        except ValueError:
            raise _Refused(400, "GiB-hours must be a number, for example 20.") from None
        if not user or not abs(hours) < 1e6:
            raise _Refused(400, "GiB-hours must be a number, for example 20.")
        await self._person(session).grant(user, hours, form.get("note", "")[:200])
        return f"{user} has {hours:+g} GiB-hours in this day, week and month."

    def _act(
        self, act: Callable[[Session, Mapping[str, str]], Awaitable[str]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            session = await self._session(request)
            form = await _form(request)
            if session.forged(request.headers.get("X-XSRFToken") or form.get("_xsrf")):
                raise _Refused(403, "This page is too old: load it again.")
            said = await act(session, form)
            next_look = self.its.feed.next_look
            self.its.feed.look_soon()
            if "application/json" in request.headers.get("Accept", ""):
                return JSONResponse({"detail": said})
            with contextlib.suppress(TimeoutError):  # a page without a stream shows what was done
                await asyncio.wait_for(next_look.wait(), _SLOWLY)
            back = "cluster" if form.get("back") == "cluster" else ""
            return RedirectResponse(self.prefix + back, 303)

        return answer

    # --- who it is

    async def _session(self, request: Request) -> Session:
        session = await self.its.login.session(request.cookies.get(COOKIE))
        if session is None:
            raise _LoggedOut
        return session

    async def _admin(self, request: Request) -> Session:
        session = await self._session(request)
        if not session.admin:
            raise _Refused(403, "This page is for admins of the Hub.")
        return session

    def _person(self, session: Session) -> HubSide:
        return self.its.hub.as_person(session.token)

    async def callback(self, request: Request) -> Response:
        query = request.query_params
        done = await self.its.login.finish(
            query.get("code", ""), query.get("state", ""), request.cookies.get(_LOGIN_COOKIE)
        )
        if done is None:
            raise _Refused(
                403, "This login was not begun here, or took too long: open the page again."
            )
        name, next_path = done
        inside = next_path.startswith(self.prefix)
        response = RedirectResponse(next_path if inside else self.prefix, 303)
        self._set_cookie(request, response, COOKIE, name, SESSION_SECONDS)
        response.delete_cookie(_LOGIN_COOKIE, path=self.prefix)
        return response

    def _set_cookie(
        self, request: Request, response: Response, name: str, value: str, seconds: int
    ) -> None:
        https = request.headers.get("X-Forwarded-Proto", request.url.scheme)
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=self.prefix,
            httponly=True,
            samesite="lax",
            secure=https.split(",")[0].strip() == "https",
        )

    async def _to_login(self, request: Request, error: Exception) -> Response:
        page = "text/html" in request.headers.get("Accept", "")
        if request.method != "GET" or not page:
            return JSONResponse({"detail": "You are logged out: load the page again."}, 401)
        path = quote(request.url.path, safe="/%")
        address, state = self.its.login.start(path)
        response = RedirectResponse(address, 302)
        self._set_cookie(request, response, _LOGIN_COOKIE, state, 600)
        return response

    async def _refuse(self, request: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, _Refused) else 500
        return await self._told(request, status, str(error))

    async def _away(self, request: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, Away) else 0
        told = status if status in (400, 403, 404, 409) else 502
        return await self._told(request, told, str(error))

    async def _told(self, request: Request, status: int, sentence: str) -> Response:
        if "text/html" not in request.headers.get("Accept", ""):
            return JSONResponse({"detail": sentence}, status)
        html = self.its.pages.page(
            "refused.html",
            {},
            user="",
            admin=False,
            place="",
            heading="That did not work",
            sentence=sentence,
        )
        return HTMLResponse(html.replace(_MARK, ""), status)


def _signed(html: str, session: Session) -> str:
    """The page with the token that its forms have to show."""
    return html.replace(_MARK, session.xsrf)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a small form, each once."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _LARGEST_FORM:
            raise _Refused(413, "That is too much.")
    try:
        fields = parse_qs(data.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise _Refused(400, "That cannot be read.") from None
    return {name: values[0] for name, values in fields.items()}
