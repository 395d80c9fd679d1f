"""A small client of the playground's API server: enough to set the cluster up and to look at it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TIMEOUT = 30.0  # seconds for one request


class ApiError(Exception):
    """The API server refused a request. ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """The API server named by one of the playground's own kubeconfig files."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        parts = urllib.parse.urlsplit(cluster["server"])
        assert parts.hostname
        self._host, self._port = parts.hostname, parts.port
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=ca)
        with tempfile.NamedTemporaryFile() as pair:  # ssl reads key pairs from files alone
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            self._context.load_cert_chain(pair.name)
        self._kept = threading.local()

    def get(self, path: str) -> Any:
        return self._request("GET", path)

    def create(self, path: str, body: dict[str, Any]) -> Any:
        return self._request("POST", path, body)

    def ensure(self, path: str, body: dict[str, Any]) -> None:
        """Create an object unless it exists."""
        try:
            self.create(path, body)
        except ApiError as error:
            if error.status != 409:
                raise

    def delete(self, path: str) -> Any:
        return self._request("DELETE", path)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Merge ``body`` into the object (RFC 7386)."""
        return self._request("PATCH", path, body, "application/merge-patch+json")

    def watch(self, path: str, seconds: int) -> Iterator[dict[str, Any]]:
        """The events of ``path``, beginning with what exists, for so many seconds."""
        connection = self._connection(timeout=seconds + 5)
        try:
            connection.request("GET", f"{path}?watch=1&timeoutSeconds={seconds}")
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            while line := answer.readline():
                yield json.loads(line)
        finally:
            connection.close()

    def _connection(self, timeout: float = _TIMEOUT) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout, context=self._context
        )

    def _request(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> Any:
        content = None if body is None else json.dumps(body)
        status, text = self._exchange(method, path, content, {"Content-Type": kind})
        try:
            data = json.loads(text)
        except ValueError:
            data = {"message": text}
        if status >= 400:
            raise ApiError(status, data.get("message", text))
        return data

    def _exchange(
        self, method: str, path: str, content: str | None, headers: dict[str, str]
    ) -> tuple[int, str]:
        """One request over this thread's connection, or a new one if the server has closed it."""
        kept: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        connection = kept or self._connection()
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            connection.close()
            self._kept.connection = None
            if kept is None:
                raise
            return self._exchange(method, path, content, headers)
        self._kept.connection = connection
        return answer.status, text
