"""The extender and the culler over HTTP, as their contracts say, with answers made for tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from gpushare.waiting import rfc3339

T4, A10 = ("Tesla T4", 15360), ("NVIDIA A10", 23028)


def held(user: str, mib: int, used: int | None, **more: Any) -> dict[str, Any]:
    """A slice as GET /v1/nodes has it. A name with a slash is a pod that is nobody's notebook."""
    namespace, _, pod = user.rpartition("/")
    return {
        "namespace": namespace or "jupyter",
        "pod": pod if namespace else f"jupyter-{user}",
        "uid": f"uid-{user}",
        "user": "" if namespace else user,
        "mib": mib,
        "percent": 0,
        "reserved": False,
        "leaving": False,
        "used_mib": used,
        **more,
    }


def card(
    model: tuple[str, int], index: int, *slices: dict[str, Any], node: str = "n", **more: Any
) -> dict[str, Any]:
    name, memory = model
    allocated = sum(its["mib"] for its in slices)
    used = sum(its["used_mib"] or 0 for its in slices)
    return {
        "uuid": f"GPU-{node}-{index}",
        "index": index,
        "model": name,
        "short_model": name.split()[-1],
        "memory_mib": memory,
        "health": "ok",
        "allocated_mib": allocated,
        "free_mib": memory - allocated,
        "free_percent": 100,
        "taken_mib": 0,
        "used_mib": used,
        "slices": list(slices),
        **more,
    }


def node(name: str, *cards: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "problem": "", "takes_pods": True, "cards": list(cards), **more}


def classroom() -> dict[str, Any]:
    """Two nodes with everything that a screen can show."""
    return {
        "nodes": [
            node(
                "t4-1",
                card(
                    T4,
                    0,
                    held("alice", 7168, 5222),
                    held("bob", 3072, 0),
                    held("carol", 3072, 2150),
                    node="t4-1",
                ),
                card(T4, 1, held("job/train", 15360, 14900), node="t4-1"),
            ),
            node(
                "a10-1",
                card(A10, 0, held("dave", 11264, 1024), node="a10-1"),
                card(A10, 1, node="a10-1", health="XID 79 at 13:58", free_mib=0),
                card(A10, 2, node="a10-1", health="cordoned"),
                card(A10, 3, held("erin", 5120, 400, leaving=True), node="a10-1", taken_mib=2048),
            ),
        ]
    }


def usage(nodes: Mapping[str, Any], now: float) -> dict[str, Any]:
    """GET /v1/usage that fits: dave has not used his card for 42 minutes."""

    def use(its: dict[str, Any], uuid: str) -> dict[str, Any]:
        idle = 42 * 60 if its["user"] in ("dave", "bob") else 0
        return {
            "namespace": its["namespace"],
            "pod": its["pod"],
            "uid": its["uid"],
            "card": uuid,
            "slice_mib": its["mib"],
            "limit_mib": its["mib"],
            "used_mib": its["used_mib"] or 0,
            "sm_percent": 0 if idle else 61,
            "last_kernel": now - idle,
            "watched_since": now - 3600,
            "over_since": None,
        }

    return {
        "nodes": [
            {
                "v": 1,
                "node": one["name"],
                "time": now,
                "slices": [use(s, c["uuid"]) for c in one["cards"] for s in c["slices"]],
            }
            for one in nodes["nodes"]
        ],
        "age_seconds": {one["name"]: 1.0 for one in nodes["nodes"]},
    }


def waiter(user: str = "frank", **more: Any) -> dict[str, Any]:
    return {
        "namespace": "jupyter",
        "pod": f"jupyter-{user}",
        "uid": f"uid-{user}",
        "user": user,
        "since": rfc3339(time.time() - 180),
        "request": "7 GiB on one card (T4)",
        "mib": 7168,
        "percent": 0,
        "cards": 1,
        "models": ["T4"],
        "place": 1,
        "of": 1,
        "reasons": [],
        "more": 0,
        "would_end": [
            {
                "node": "t4-1",
                "card": "GPU-t4-1-0",
                "slices": [
                    {
                        "namespace": "jupyter",
                        "pod": "jupyter-alice",
                        "user": "alice",
                        "mib": 7168,
                        "percent": 0,
                    }
                ],
            }
        ],
        **more,
    }


def history(now: float, minutes: int = 1440) -> dict[str, Any]:
    """A day with a night in it."""
    rows = []
    for back in range(minutes, 0, -1):
        hour = (time.gmtime(now - 60 * back).tm_hour + 24 - 5) % 24
        busy = min(1.0, max(0.05, 1.1 - abs(hour - 9) / 8))
        wave = 0.06 * ((back * 7919) % 100) / 100
        rows.append(
            {
                "at": rfc3339(now - 60 * back),
                "capacity_mib": 122832,
                "allocated_mib": int(122832 * min(1, busy * 0.9 + wave)),
                "used_mib": int(122832 * min(1, busy * 0.55 + wave)),
                "waiting": 2 if busy > 0.98 else 0,
            }
        )
    return {"minutes": rows}


def verdict(user: str, **more: Any) -> dict[str, Any]:
    return {
        "user": user,
        "server": "",
        "title": "7 GiB on NVIDIA T4",
        "namespace": "jupyter",
        "pod": f"jupyter-{user}",
        "uid": f"uid-{user}",
        "slices": [],
        "idle_seconds": 60,
        "gpu_idle_seconds": 0,
        "action": "keep",
        "ends_at": None,
        "seconds_left": None,
        "sentence": "Does not end while it is used.",
        "warned": False,
        "held_until": None,
        "hold": {"minutes": 30, "until_at_most": None, "allowed": True, "why_not": ""},
        "policy": {"warn_seconds": 300},
        **more,
    }


def reclaimed(now: float) -> dict[str, Any]:
    one = {
        "kind": "server",
        "user": "grace",
        "server": "",
        "namespace": "jupyter",
        "pod": "jupyter-grace",
        "models": ["T4"],
        "gib": 7.0,
        "reason": "idle-while-others-wait",
        "sentence": "20 min without use while 2 others waited for such a slice.",
        "decided_at": rfc3339(now - 1800),
        "freed_after_seconds": 2.4,
        "state": "freed",
        "alarm": None,
    }
    stuck = {
        **one,
        "user": "heidi",
        "state": "stuck",
        "freed_after_seconds": None,
        "alarm": {
            "why": "stuck-finalizer",
            "sentence": "A finalizer keeps the pod: example.org/backup.",
        },
    }
    sums = {"count": 3, "gib_hours": 4.25}
    return {"reclaimed": [stuck, one], "totals": {"today": sums, "all": sums, "by_reason": {}}}


class Double:
    """A threaded server. ``answers`` maps 'GET /path' to an object or a callable of the request."""

    def __init__(self, port: int = 0) -> None:
        self.answers: dict[str, Any] = {}
        self.requests: list[dict[str, Any]] = []
        self.arrived = threading.Condition()
        self.streams = 0
        self._changed = threading.Condition()
        self._changes = 0
        self._closed = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.handle(self, "GET")

            def do_POST(self) -> None:
                outer.handle(self, "POST")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handle(self, handler: BaseHTTPRequestHandler, method: str) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        data = handler.rfile.read(length)
        path = urlsplit(handler.path).path
        request = {
            "method": method,
            "path": path,
            "query": urlsplit(handler.path).query,
            "token": (handler.headers.get("Authorization") or "").partition(" ")[2],
            "body": json.loads(data) if data else None,
        }
        with self.arrived:
            self.requests.append(request)
            self.arrived.notify_all()
        answer = self.answers.get(f"{method} {path}")
        if answer == "stream":
            self._stream(handler)
            return
        status = 200
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, tuple):
            status, answer = answer
        if answer is None:
            status, answer = 404, {"detail": "there is no such page"}
        body = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _stream(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        self.streams += 1
        with self._changed:
            seen = self._changes
            while not self._closed:
                self._changed.wait(15)
                if self._changes != seen:
                    seen = self._changes
                    handler.wfile.write(b"event: change\nid: %d\ndata: {}\n\n" % seen)
                else:
                    handler.wfile.write(b":\n\n")
                handler.wfile.flush()

    def change(self) -> None:
        """Tell those who listen."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def await_request(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first request that is ``wanted``, past or to come."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: any(wanted(r) for r in self.requests), 60)
            return next(r for r in self.requests if wanted(r))

    def close(self) -> None:
        self._closed = True
        self.change()
        self.server.shutdown()
        self.server.server_close()


def fake_extender(nodes: Mapping[str, Any] | None = None) -> Double:
    """A state API. Change ``answers`` and call ``change`` for something to happen."""
    now = time.time()
    nodes = nodes or classroom()
    double = Double()
    double.answers = {
        "GET /v1/nodes": nodes,
        "GET /v1/usage": usage(nodes, now),
        "GET /v1/waiting": {"waiting": [waiter()]},
        "GET /v1/history": history(now),
        "GET /v1/events": "stream",
    }
    return double
