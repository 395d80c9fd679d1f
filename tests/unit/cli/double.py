"""An API server that is a small HTTP double, and the state it tells by default."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BASE = "/api/v1/namespaces/gpushare/services/https:gpushare-extender:state/proxy"
PROXY = f"{BASE}/v1/nodes"
TOKEN = "/api/v1/namespaces/gpushare/serviceaccounts/gpushare-state-reader/token"


def card(index: int, model: str = "T4", memory: int = 15360, **more: Any) -> dict[str, Any]:
    slices = more.pop("slices", [])
    held = sum(s["mib"] for s in slices)
    return {
        "uuid": f"GPU-{model}-{index}",
        "index": index,
        "model": f"Tesla {model}",
        "short_model": model,
        "memory_mib": memory,
        "health": "ok",
        "allocated_mib": held,
        "allocated_percent": sum(s["percent"] for s in slices),
        "free_mib": memory - held,
        "free_percent": 100,
        "used_mib": None,
        "slices": slices,
        **more,
    }


def held(pod: str, gib: float, percent: int = 0, user: str = "", **more: Any) -> dict[str, Any]:
    return {
        "namespace": "jupyter",
        "pod": pod,
        "uid": f"uid-{pod}",
        "user": user,
        "mib": int(gib * 1024),
        "percent": percent,
        **more,
    }


STATE = {
    "unit_mib": 1024,
    "totals": {"nodes": 3, "cards": 3, "waiting": 1},
    "nodes": [
        {"name": "a10-1", "cards": [card(0, "A10", 23028, used_mib=9523)]},
        {"name": "broken", "problem": "not JSON", "cards": []},
        {
            "name": "t4-1",
            "cards": [
                card(0, slices=[held("jupyter-alice", 7, user="alice"), held("train", 3, 40)]),
                card(1, health="XID 79", slices=[held("job", 15, 100)]),
            ],
        },
    ],
    "waiting": [],
}


class ApiServer:
    """Answers by path: (status, body)."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            TOKEN: (201, {"status": {"token": "a-token"}}),
            PROXY: (200, STATE),
        }
        self.seen: list[tuple[str, str, str]] = []
        self.sent: list[tuple[str, str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                token = self.headers.get("X-Gpushare-Authorization", "")
                outer.seen.append((self.command, self.path, token))
                if sent:
                    outer.sent.append((self.command, self.path, json.loads(sent)))
                status, body = outer.answer(self.command, self.path)
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = _answer

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, method: str, path: str) -> tuple[int, Any]:
        """Answers may be kept by method and path; one that is a list is told one by one."""
        found = self.answers.get(f"{method} {path}", self.answers.get(path))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        return found or (404, {"message": "not found"})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
