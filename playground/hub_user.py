"""A user of a JupyterHub, as a person with a browser or a program with a token is one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import requests

from playground.kernel import run_cell

_TIMEOUT = 30.0
_START = 320.0


class HubError(Exception):
    """The Hub refused something, or a server did not start; the text is the Hub's own."""


class HubUser:
    """Somebody logged in through the Hub's own login page."""

    def __init__(self, hub: str, name: str, password: str) -> None:
        self.hub = hub.rstrip("/")
        self.name = name
        self.session = _session()
        self._log_in(password)
        self.token = self._own_token()

    def _log_in(self, password: str) -> None:
        page = f"{self.hub}/hub/login"
        self.session.get(page, timeout=_TIMEOUT).raise_for_status()
        form = {
            "username": self.name,
            "password": password,
            "_xsrf": self.session.cookies.get("_xsrf", path="/hub/") or "",
        }
        answer = self.session.post(page, data=form, timeout=_TIMEOUT, allow_redirects=False)
        if answer.status_code != 302:
            raise HubError(f"{self.name} cannot log in: {answer.status_code} {answer.reason}")

    def _own_token(self) -> str:
        """A token of one's own, as the Hub's token page makes one."""
        answer = self.session.post(
            f"{self.hub}/hub/api/users/{self.name}/tokens",
            json={"note": "playground", "expires_in": 24 * 3600},
            headers={"X-XSRFToken": self.session.cookies.get("_xsrf", path="/hub/") or ""},
            timeout=_TIMEOUT,
        )
        if answer.status_code != 201:
            raise HubError(f"{self.name} gets no token: {_text(answer)}")
        return str(answer.json()["token"])

    @property
    def server_url(self) -> str:
        return f"{self.hub}/user/{self.name}/"

    def spawn_page(self) -> str:
        """The form, as the browser gets it."""
        answer = self.session.get(f"{self.hub}/hub/spawn", timeout=_TIMEOUT)
        answer.raise_for_status()
        return answer.text

    def request_server(self, options: Mapping[str, Any]) -> None:
        """Ask the Hub's API for a server; returns before it runs. Raises HubError."""
        answer = self._api("POST", "server", json=dict(options))
        if answer.status_code not in (201, 202):
            raise HubError(f"{self.name}'s server is refused: {_text(answer)}")

    def progress(self) -> Iterator[dict[str, Any]]:
        """The events that the spawn page shows, until the server is ready or has failed."""
        with self._api("GET", "server/progress", stream=True, timeout=_START) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    def await_ready(self) -> float:
        """Wait for the server; the seconds that took. Raises HubError with the Hub's reason."""
        started = time.monotonic()
        last: dict[str, Any] = {}
        for event in self.progress():
            last = event
            if event.get("ready"):
                return time.monotonic() - started
        raise HubError(
            f"{self.name}'s server did not start: {last.get('message', 'no reason given')}"
        )

    def start_server(self, options: Mapping[str, Any]) -> float:
        """Start a server and wait for it; the seconds that took."""
        started = time.monotonic()
        self.request_server(options)
        self.await_ready()
        return time.monotonic() - started

    def run_cell(self, code: str) -> str:
        """Run a cell in a new kernel of the running server; what it printed."""
        return run_cell(self.server_url, self.token, code)

    def server(self) -> dict[str, Any] | None:
        """The Hub's model of the running or starting server; None without one."""
        answer = self._api("GET", "")
        answer.raise_for_status()
        server = answer.json().get("servers", {}).get("")
        return server if server else None

    def stop_server(self) -> None:
        """Stop the server and wait until the Hub says that it is gone."""
        stop_server(self.hub, self.token, self.name)

    def _api(self, method: str, path: str, **more: Any) -> requests.Response:
        return _request(self.hub, self.token, method, f"users/{self.name}/{path}", **more)


def stop_server(hub: str, token: str, user: str) -> float:
    """Stop somebody's server, as an idle culler does; seconds until the Hub says that it is gone."""
    started = time.monotonic()
    path = f"users/{user}/server"
    answer = _request(hub, token, "DELETE", path)
    if answer.status_code not in (202, 204):
        raise HubError(f"{user}'s server cannot be stopped: {_text(answer)}")
    while answer.status_code == 202:  # it is slow to stop; asking again is how one waits
        if time.monotonic() - started > _START:
            raise HubError(f"{user}'s server does not stop")
        time.sleep(0.25)
        answer = _request(hub, token, "DELETE", path)
        if answer.status_code in (400, 404):
            break
    return time.monotonic() - started


def _request(hub: str, token: str, method: str, path: str, **more: Any) -> requests.Response:
    url = f"{hub}/hub/api/{path.rstrip('/')}"
    headers = {"Authorization": f"token {token}"}
    return _session().request(method, url, headers=headers, **{"timeout": _TIMEOUT, **more})


def _session() -> requests.Session:
    """Without the environment's proxies: the playground is on this machine."""
    session = requests.Session()
    session.trust_env = False
    return session


def _text(answer: requests.Response) -> str:
    try:
        return str(answer.json().get("message") or answer.reason)
    except ValueError:
        return f"{answer.status_code} {answer.reason}"
