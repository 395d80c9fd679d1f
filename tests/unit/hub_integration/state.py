"""Answers of the extender's state API, made for tests."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gpushare.waiting import WaitingPod, waiting_object

T4, A10 = ("Tesla T4", 15360), ("NVIDIA A10", 23028)


def card(
    model: tuple[str, int], used_mib: int = 0, used_percent: int = 0, **more: Any
) -> dict[str, Any]:
    name, memory = model
    return {
        "uuid": "GPU-1",
        "index": 0,
        "model": name,
        "memory_mib": memory,
        "health": "ok",
        "free_mib": memory - used_mib,
        "free_percent": 100 - used_percent,
        "slices": [{"pod": "x"}] if used_mib or used_percent else [],
        **more,
    }


def answer(**nodes: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodes": [{"name": name, "cards": cards} for name, cards in nodes.items()]}


def waiting_pod(pod: str, **more: Any) -> WaitingPod:
    """Somebody who waits for 7 GiB."""
    values: dict[str, Any] = {
        "namespace": "jupyter",
        "pod": pod,
        "uid": f"uid-{pod}",
        "user": pod,
        "since": 0.0,
        "request": "7 GiB on one card",
        "mib": 7168,
        "percent": 0,
        "cards": 1,
        "models": ("T4",),
        "place": 1,
        "of": 1,
    }
    return WaitingPod(**{**values, **more})


def line(*pods: WaitingPod) -> dict[str, Any]:
    """The answer of GET /v1/waiting."""
    return {"waiting": [waiting_object(pod) for pod in pods]}


class FakeExtender:
    """The state API over HTTP. ``body`` is its answer to ``GET /v1/nodes``, ``paths`` are those to
    other paths; ``requests`` is what it was asked."""

    def __init__(self, body: Any, **paths: Any) -> None:
        self.body = body
        self.paths = {f"/v1/{name}": answer for name, answer in paths.items()}
        self.status = 200
        self.requests: list[dict[str, str]] = []
        self.asked = threading.Event()
        self.hold: threading.Event | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append({"path": self.path, **self.headers})
                outer.asked.set()
                if outer.hold is not None:
                    outer.hold.wait(10)
                path = self.path.partition("?")[0]
                body = outer.body if path == "/v1/nodes" else outer.paths.get(path, {})
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> FakeExtender:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.hold is not None:
            self.hold.set()
        self.server.shutdown()
        self.server.server_close()
