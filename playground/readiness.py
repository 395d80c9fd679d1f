"""How a component says that it is ready: an HTTP endpoint, or a socket that accepts."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_TIMEOUT = 2.0  # seconds for one try; a component that needs longer is not ready


class Check(Protocol):
    """One way to ask a component whether it is ready."""

    def failure(self, pid: int) -> str | None:
        """None when the component with process ``pid`` is ready, else why it is not."""


@dataclass(frozen=True, slots=True)
class Http:
    """Ready when ``url`` answers with 200. ``certificates``: (authority, certificate, key)."""

    url: str
    certificates: tuple[Path, Path, Path] | None = None

    def failure(self, pid: int) -> str | None:
        parts = urllib.parse.urlsplit(self.url)
        assert parts.hostname
        connection: http.client.HTTPConnection
        if self.certificates:
            authority, certificate, key = self.certificates
            context = ssl.create_default_context(cafile=str(authority))
            context.load_cert_chain(certificate, key)
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=_TIMEOUT, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT)
        try:
            connection.request("GET", parts.path)
            answer = connection.getresponse()
            body = answer.read(500).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            return f"{self.url}: {error}"
        finally:
            connection.close()
        if answer.status != 200:
            return f"{self.url}: {answer.status} {' '.join(body.split())}"
        return None


@dataclass(frozen=True, slots=True)
class Socket:
    """Ready when the Unix socket accepts; ``path`` is as the component's own mounts have it."""

    path: Path

    def failure(self, pid: int) -> str | None:
        seen_from_here = f"/proc/{pid}/root{self.path}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_TIMEOUT)
            try:
                client.connect(seen_from_here)
            except OSError as error:
                return f"{self.path}: {error}"
        return None
