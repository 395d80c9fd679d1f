"""Logging in through the Hub, and who is who afterwards.

The Hub's OAuth (authorization code, with PKCE where the Hub knows it), in the few lines that it is
outside of tornado. The Hub's token stays in this process: the browser gets a random number that
names the session. A session is as good as its token: the Hub is asked again every half minute, so
whoever logs out of the Hub, or loses a right, is out here as well.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp

from hub_integration.dashboard.neighbours import Away, HubSide

SESSION_SECONDS = 14 * 24 * 3600
_LOGIN_SECONDS = 600
_FRESH_SECONDS = 30.0
_MOST_SESSIONS = 20_000
_MOST_LOGINS = 2_000
# Whoever may stop all servers and see the Hub's admin page is an admin here.
_ADMIN_SCOPES = ("admin-ui", "delete:servers")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the Hub tells its services by the environment."""

    client_id: str
    api_token: str
    api_url: str
    authorize_url: str
    redirect_path: str
    access_scopes: tuple[str, ...]
    pkce: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Raises KeyError for what only a service of a Hub has."""
        import json

        prefix = environment["JUPYTERHUB_SERVICE_PREFIX"]
        host = environment.get("JUPYTERHUB_HOST", "")
        base = environment.get("JUPYTERHUB_BASE_URL", "/")
        scopes = json.loads(environment.get("JUPYTERHUB_OAUTH_ACCESS_SCOPES") or "[]")
        return cls(
            client_id=environment["JUPYTERHUB_CLIENT_ID"],
            api_token=environment["JUPYTERHUB_API_TOKEN"],
            api_url=environment["JUPYTERHUB_API_URL"].rstrip("/"),
            authorize_url=f"{host}{base}hub/api/oauth2/authorize",
            redirect_path=environment.get("JUPYTERHUB_OAUTH_CALLBACK_URL")
            or f"{host}{prefix}oauth_callback",
            access_scopes=tuple(scopes),
            pkce=_knows_pkce(),
        )


def _knows_pkce() -> bool:
    """JupyterHub 5 keeps no challenge, and would fail on the verifier."""
    from jupyterhub.services.auth import HubOAuth

    return hasattr(HubOAuth, "generate_pkce_code_challenge")


@dataclass(slots=True)
class Session:
    """Somebody who is logged in. ``xsrf`` has to come with everything that changes something."""

    token: str
    user: str = ""
    scopes: frozenset[str] = frozenset()
    xsrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    began: float = field(default_factory=time.monotonic)
    checked: float = 0.0

    @property
    def admin(self) -> bool:
        return all(scope in self.scopes for scope in _ADMIN_SCOPES)

    def forged(self, token: str | None) -> bool:
        """Whether a request without our page's token wants to change something."""
        return not token or not hmac.compare_digest(token.encode(), self.xsrf.encode())


@dataclass(frozen=True, slots=True)
class _Pending:
    """A login on its way through the Hub."""

    next_path: str
    verifier: str
    began: float


class Login:
    """All sessions of this process."""

    def __init__(self, session: aiohttp.ClientSession, hub: HubSide, settings: Settings) -> None:
        self._http = session
        self._hub = hub
        self._settings = settings
        self._sessions: dict[str, Session] = {}
        self._pending: dict[str, _Pending] = {}
        self._checking: dict[str, asyncio.Task[bool]] = {}

    async def session(self, cookie: str | None) -> Session | None:
        """Whose cookie it is, if the Hub still lets them in. Raises Away if it cannot be asked."""
        found = self._sessions.get(cookie or "")
        if found is None or cookie is None:
            return None
        if time.monotonic() - found.began > SESSION_SECONDS:
            del self._sessions[cookie]
            return None
        if time.monotonic() - found.checked < _FRESH_SECONDS:
            return found
        # Ten requests of one page are one question.
        task = self._checking.get(cookie)
        if task is None:
            task = asyncio.create_task(self._check(found))
            self._checking[cookie] = task
            task.add_done_callback(lambda _: self._checking.pop(cookie, None))
        if await asyncio.shield(task):
            return found
        self._sessions.pop(cookie, None)
        return None

    def start(self, next_path: str) -> tuple[str, str]:
        """The Hub's address to send the browser to, and the state that must come back."""
        now = time.monotonic()
        for state, pending in list(self._pending.items()):
            if now - pending.began > _LOGIN_SECONDS or len(self._pending) >= _MOST_LOGINS:
                del self._pending[state]
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        self._pending[state] = _Pending(safe_path(next_path), verifier, now)
        query = {
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_path,
            "response_type": "code",
            "state": state,
        }
        if self._settings.pkce:
            digest = hashlib.sha256(verifier.encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            query |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        return f"{self._settings.authorize_url}?{urlencode(query)}", state

    async def finish(self, code: str, state: str, cookie: str | None) -> tuple[str, str] | None:
        """The new session's cookie and where to go on; None for a login that was not begun here.

        ``cookie`` is the state that the browser kept: a link from elsewhere has none. Raises Away.
        """
        pending = self._pending.pop(state, None)
        if pending is None or not cookie or not hmac.compare_digest(cookie, state):
            return None
        session = Session(await self._token(code, pending))
        if not await self._check(session):
            return None
        while len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        name = secrets.token_urlsafe(32)
        self._sessions[name] = session
        return name, pending.next_path

    async def _token(self, code: str, pending: _Pending) -> str:
        settings = self._settings
        form = {
            "client_id": settings.client_id,
            "client_secret": settings.api_token,
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_path,
        }
        if settings.pkce:
            form["code_verifier"] = pending.verifier
        try:
            async with self._http.post(
                f"{settings.api_url}/oauth2/token",
                data=form,
                timeout=aiohttp.ClientTimeout(total=15),
            ) as answer:
                if answer.status != 200:
                    raise Away("The Hub does not accept the login; try again.", answer.status)
                return str((await answer.json())["access_token"])
        except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as error:
            raise Away(f"The Hub does not answer: {error}") from None

    async def _check(self, session: Session) -> bool:
        """Ask the Hub whose token it is. Raises Away if it does not say."""
        try:
            model: dict[str, Any] = await self._hub.as_person(session.token).whoami()
        except Away as error:
            if error.status in (401, 403, 404):
                return False
            raise
        scopes = frozenset(str(scope) for scope in model.get("scopes") or ())
        wanted = self._settings.access_scopes
        if model.get("kind") != "user" or not (not wanted or scopes.intersection(wanted)):
            return False
        session.user = str(model.get("name", ""))
        session.scopes = scopes
        session.checked = time.monotonic()
        return bool(session.user)


def safe_path(path: str) -> str:
    """A path of this service alone; anything else is its first page."""
    parts = urlsplit(path)
    odd = "\\" in path or any(ord(letter) < 32 for letter in path)
    if parts.scheme or parts.netloc or odd or not path.startswith("/") or path.startswith("//"):
        return ""
    return path
