"""What the Hub answers for us, under /hub/gpushare/: the open form's numbers, the buttons of the
page of somebody who waits, and the accounts of quotas.

They are the Hub's own handlers: its login, its tokens, its scopes, its protection against forged
requests. ``hub_integration.config.configure`` adds them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import url_escape_path, url_path_join
from tornado import web
from tornado.httputil import url_concat
from tornado.iostream import StreamClosedError

from hub_integration.desk import desk
from hub_integration.live import LiveForms
from profiles.choice import IMAGE, PROFILE, SLICE

_HEARTBEAT = 20.0  # seconds; proxies end what is silent for longer
_MOST_FORMS = 12  # open forms of one user
_CANCEL_SECONDS = 15.0


class Free(BaseHandler):
    """The numbers of an open form, as a stream of events."""

    _accept_token_auth = True  # programs may watch as well
    _open: dict[str, int] = {}  # noqa: RUF012 - one Hub, one process

    @web.authenticated
    @needs_scope("servers")
    async def get(self, user_name: str) -> None:
        user = self.find_user(user_name)
        if user is None:
            raise web.HTTPError(404, f"There is no user {user_name!r}")
        spawner = user.spawners[""]
        channel_of = getattr(spawner, "form_channel", None)
        if channel_of is None:
            raise web.HTTPError(404, "This Hub's form has no numbers")
        if self._open.get(user_name, 0) >= _MOST_FORMS:
            raise web.HTTPError(429, f"{_MOST_FORMS} forms are open already")
        self._open[user_name] = self._open.get(user_name, 0) + 1
        key, look = channel_of()
        forms = desk().once("forms", lambda: LiveForms(self.log))
        channel = forms.join(key, look)
        try:
            await self._stream(channel)
        except StreamClosedError:
            pass
        finally:
            forms.leave(key)
            self._open[user_name] -= 1
            if not self._open[user_name]:
                del self._open[user_name]

    async def _stream(self, channel: Any) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-cache")
        self.set_header("X-Accel-Buffering", "no")
        self._gone = asyncio.Event()
        gone = asyncio.ensure_future(self._gone.wait())
        sent = b""
        try:
            while not self._gone.is_set():
                changed = channel.changed
                if channel.message != sent:
                    sent = channel.message
                    self.write(sent)
                else:
                    self.write(b":\n\n")
                await self.flush()
                waiting = asyncio.ensure_future(changed.wait())
                await asyncio.wait(
                    {waiting, gone}, timeout=_HEARTBEAT, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
        finally:
            gone.cancel()

    def on_connection_close(self) -> None:
        with contextlib.suppress(AttributeError):
            self._gone.set()
        super().on_connection_close()


class _Waiting(BaseHandler):
    """A button of the page of somebody who waits."""

    async def _give_up(self, user_name: str, server_name: str) -> Any:
        """End a start that is under way, wait until it has ended, and return its spawner."""
        user = self.find_user(user_name)
        if user is None or server_name not in user.spawners:
            raise web.HTTPError(404, f"{user_name} has no such server")
        spawner = user.spawners[server_name]
        if spawner.pending != "spawn":
            return spawner
        self.log.info("%s gives up the start of %s", self.current_user.name, spawner._log_name)
        starting = spawner._spawn_future
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting}, timeout=_CANCEL_SECONDS)
        await _until(lambda: not spawner.pending)
        if spawner.active or await spawner.poll() is None:
            await self.stop_single_user(user, server_name)
            await _until(lambda: not spawner.pending)
        return spawner

    def _form_url(self, user_name: str, server_name: str) -> str:
        parts = [url_escape_path(user_name), url_escape_path(server_name)]
        return str(url_path_join(self.hub.base_url, "spawn", *filter(None, parts)))


class Cancel(_Waiting):
    """Leave the line, and see the form again."""

    @web.authenticated
    @needs_scope("servers")
    async def post(self, user_name: str, server_name: str | None = None) -> None:
        server_name = server_name or ""
        await self._give_up(user_name, server_name)
        self.redirect(self._form_url(user_name, server_name))


class Instead(_Waiting):
    """Leave the line for another choice: PROFILE/SLICE in the field ``choice``."""

    @web.authenticated
    @needs_scope("servers")
    async def post(self, user_name: str, server_name: str | None = None) -> None:
        server_name = server_name or ""
        profile, _, part = self.get_body_argument("choice", "").partition("/")
        spawner = await self._give_up(user_name, server_name)
        options = {f"opt-{PROFILE}": profile}
        if part:
            options[f"opt-profile-option-{profile}--{SLICE}"] = part
        image = (spawner.user_options or {}).get(IMAGE)
        if isinstance(image, str) and (spawner.user_options or {}).get(PROFILE) == profile:
            options[f"opt-profile-option-{profile}--{IMAGE}"] = image
        self.redirect(url_concat(self._form_url(user_name, server_name), options))


class Quotas(APIHandler):
    """``GET /hub/gpushare/quotas``: everybody's account, for admins."""

    @needs_scope("admin:users")
    async def get(self) -> None:
        office = _office(self)
        self.write({"quotas": await office.all_accounts(self)})


class Quota(APIHandler):
    """``GET /hub/gpushare/quotas/USER``: one account."""

    @needs_scope("read:users")
    async def get(self, user_name: str) -> None:
        user = self.find_user(user_name)
        if user is None:
            raise web.HTTPError(404, f"There is no user {user_name!r}")
        self.write(await _office(self).account(user))


class Grants(APIHandler):
    """``POST /hub/gpushare/quotas/USER/grants {"gib_hours": 20, "note": "deadline"}``, by admins."""

    @needs_scope("admin:users")
    async def post(self, user_name: str) -> None:
        user = self.find_user(user_name)
        if user is None:
            raise web.HTTPError(404, f"There is no user {user_name!r}")
        body = self.get_json_body()
        hours = body.get("gib_hours") if isinstance(body, dict) else None
        if isinstance(hours, bool) or not isinstance(hours, int | float) or not abs(hours) < 1e6:
            raise web.HTTPError(
                400, "gib_hours must be a number, for example 20, or -5 to take away"
            )
        by = getattr(self.current_user, "name", "")
        note = str(body.get("note") or "")
        self.set_status(201)
        self.write(await _office(self).grant(user, float(hours), by, note))


def _office(handler: Any) -> Any:
    from hub_integration.quota.office import Office

    return desk().once("office", lambda: Office(handler.settings["config"], handler.log))


async def _until(done: Any) -> None:
    """The Hub has no event for this: it clears a flag some turns of the loop later."""
    async with asyncio.timeout(_CANCEL_SECONDS):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


_SERVER = r"/([^/]+)(?:/([^/]*))?"
HANDLERS = [
    (r"/gpushare/free/([^/]+)", Free),
    (r"/gpushare/cancel" + _SERVER, Cancel),
    (r"/gpushare/instead" + _SERVER, Instead),
    (r"/gpushare/quotas", Quotas),
    (r"/gpushare/quotas/([^/]+)", Quota),
    (r"/gpushare/quotas/([^/]+)/grants", Grants),
]
