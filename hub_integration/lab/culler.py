"""Asks the culler when this server ends, and to keep it for a while.

Both are asked with the server's own token, so the culler answers about this server alone. Whatever
goes wrong, the notebook goes on: the answer is a sentence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

URL = "GPUSHARE_CULLER_URL"
SERVICE = "gpushare-culler"
_MAX_AGE = 20.0  # seconds; the culler decides every 15
_TIMEOUT = 5.0


class CullerError(Exception):
    """The culler refused, or could not be asked. ``status`` is HTTP's for the browser."""

    def __init__(self, text: str, status: int = 502) -> None:
        super().__init__(text)
        self.status = status


def culler_url(environment: Mapping[str, str]) -> str:
    """Where the culler is, seen from a single-user server; '' where that cannot be known.

    GPUSHARE_CULLER_URL says it. Otherwise it is a service of the Hub behind the proxy: at the Hub's
    public address if the Hub knows one, else where zero-to-jupyterhub's pods find the proxy.
    """
    if given := environment.get(URL, ""):
        return given.rstrip("/")
    base = environment.get("JUPYTERHUB_BASE_URL", "/").rstrip("/")
    service = f"{base}/services/{SERVICE}"
    for name in ("JUPYTERHUB_PUBLIC_HUB_URL", "JUPYTERHUB_PUBLIC_URL"):
        public = urlsplit(environment.get(name, ""))
        if public.netloc:
            return f"{public.scheme}://{public.netloc}{service}"
    host = environment.get("PROXY_PUBLIC_SERVICE_HOST", "")
    if host:
        return f"http://{host}:{environment.get('PROXY_PUBLIC_SERVICE_PORT', '80')}{service}"
    return ""


class CullerClient:
    """The verdict about this server, at most 20 s old."""

    def __init__(self, url: str, token: str, http: AsyncHTTPClient | None = None) -> None:
        self._url = url
        self._token = token
        self._http = http
        self._verdict: dict[str, Any] | None = None
        self._asked = -_MAX_AGE

    async def verdict(self) -> dict[str, Any] | None:
        """What the culler says of this server; None if it says nothing. Never raises."""
        if not self._url or not self._token:
            return None
        if time.monotonic() - self._asked >= _MAX_AGE:
            self._asked = time.monotonic()
            try:
                answer = await self._ask("GET", "api/verdicts/mine")
                self._verdict = _only(answer)
            except CullerError:
                self._verdict = None  # an old end would be wrong by now
        return self._verdict

    async def hold(self, minutes: int | None) -> dict[str, Any]:
        """Keep this server for ``minutes`` (None: as long as the policy says, 0: no longer).

        Raises CullerError with the culler's own sentence.
        """
        if not self._url or not self._token:
            raise CullerError("No culler watches this server: it does not end for lack of use", 409)
        body = {} if minutes is None else {"minutes": minutes}
        self._verdict = await self._ask("POST", "api/holds", body)
        self._asked = time.monotonic()
        return self._verdict

    async def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        request = HTTPRequest(
            f"{self._url}/{path}",
            method=method,
            headers={
                "Authorization": f"token {self._token}",
                "Content-Type": "application/json",
            },
            body=None if body is None else json.dumps(body),
            connect_timeout=_TIMEOUT,
            request_timeout=_TIMEOUT,
            follow_redirects=False,
        )
        http = self._http or AsyncHTTPClient()
        try:
            answer = json.loads((await http.fetch(request)).body)
        except HTTPClientError as error:
            raise CullerError(_detail(error), _status(error.code)) from None
        except (OSError, ValueError):
            raise CullerError("The culler does not answer; try again in a minute") from None
        if not isinstance(answer, dict):
            raise CullerError("The culler's answer cannot be understood")
        return answer


def _only(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    verdicts = answer.get("verdicts")
    if not isinstance(verdicts, list) or not verdicts or not isinstance(verdicts[0], dict):
        return None
    return verdicts[0]


def _detail(error: HTTPClientError) -> str:
    """The culler's sentence, if it said one."""
    try:
        detail = json.loads(error.response.body)["detail"] if error.response else ""
    except (ValueError, KeyError, TypeError):
        detail = ""
    return str(detail) or "The culler does not answer; try again in a minute"


def _status(code: int) -> int:
    """A refusal stays one; that the culler is away, or knows not our token, is not the user's."""
    return code if code in (400, 404, 409) else 502
