"""A single-user server that only answers, for tests that need one to be there."""

from __future__ import annotations

import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("X-JupyterHub-Version", os.environ.get("JUPYTERHUB_VERSION", ""))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    url = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    HTTPServer((url.hostname or "127.0.0.1", url.port or 80), _Handler).serve_forever()
