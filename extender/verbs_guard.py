"""Who may call the verbs from elsewhere than the loopback: whoever calls them can bind pods.

A caller shows a client certificate (``Extender.verbs_client_ca``), or its path holds a secret, as
/scheduler/SECRET/filter: that is for the API server's service proxy, which passes on neither
certificates nor the Authorization header.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from extender.server import CannotListen

_ROOT = "/scheduler/"
_SHORTEST = 32


class Guard:
    """The verbs' application for a port that others can reach.

    ``names``: the common names whose certificates are welcome; none: every one of the authority.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = (), secret: str = "") -> None:
        self.app = app
        self.names = frozenset(names)
        self.secret = secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if not self._certified(scope):
            first, slash, rest = path.removeprefix(_ROOT).partition("/")
            known = path.startswith(_ROOT) and slash and self.secret
            if not known or not hmac.compare_digest(first.encode(), self.secret):
                await _refuse(send)
                return
            scope = {**scope, "path": _ROOT + rest, "raw_path": (_ROOT + rest).encode()}
        await self.app(scope, receive, send)

    def _certified(self, scope: Scope) -> bool:
        shown = scope.get("client_certificate")
        return shown is not None and (not self.names or shown.name in self.names)


async def _refuse(send: Send) -> None:
    text = b"show a client certificate, or the secret in the path"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def read_secret(file: str) -> str:
    """The secret in a file; '' for no file. Raises CannotListen."""
    if not file:
        return ""
    setting = f"Extender.verbs_secret={file!r}"
    try:
        secret = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotListen(f"{setting}: {error}") from None
    if len(secret) < _SHORTEST or not secret.isascii() or not secret.isalnum():
        raise CannotListen(
            f"{setting}: use at least {_SHORTEST} letters and digits (openssl rand -hex 32)"
        )
    return secret
