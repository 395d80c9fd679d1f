"""Runs a cell in a notebook server, over the kernel protocol that JupyterLab speaks."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests
import websocket

_TIMEOUT = 60.0


class CellFailed(Exception):
    """The cell raised; the text is its traceback."""


def run_cell(server: str, token: str, code: str, timeout: float = _TIMEOUT) -> str:
    """Start a kernel in ``server`` (the URL of a user's server), run ``code``, end the kernel.

    Returns what the cell printed. Raises CellFailed, TimeoutError, or what requests raises.
    """
    headers = {"Authorization": f"token {token}"}
    with requests.Session() as session:
        session.trust_env = False  # the playground is on this machine: no proxy is between
        session.headers.update(headers)
        answer = session.post(f"{server}api/kernels", json={}, timeout=timeout)
        answer.raise_for_status()
        kernel = f"{server}api/kernels/{answer.json()['id']}"
        try:
            return _execute(kernel, headers, code, timeout)
        finally:
            session.delete(kernel, timeout=timeout)


def _execute(kernel: str, headers: dict[str, str], code: str, timeout: float) -> str:
    session = uuid.uuid4().hex
    parts = urlsplit(kernel)
    scheme = "wss" if parts.scheme == "https" else "ws"
    address = urlunsplit(
        (scheme, parts.netloc, f"{parts.path}/channels", f"session_id={session}", "")
    )
    connection = websocket.create_connection(
        address, header=headers, timeout=timeout, http_no_proxy=["*"]
    )
    try:
        request = _message(session, code)
        connection.send(json.dumps(request))
        return _output(connection, request["header"]["msg_id"], time.monotonic() + timeout)
    finally:
        connection.close()


def _message(session: str, code: str) -> dict[str, Any]:
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "session": session,
        "username": "playground",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
    return {
        "channel": "shell",
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "buffers": [],
    }


def _output(connection: websocket.WebSocket, request: str, deadline: float) -> str:
    """What the cell prints, until the kernel is idle again."""
    printed: list[str] = []
    while time.monotonic() < deadline:
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            message = json.loads(connection.recv())
        except websocket.WebSocketTimeoutException:
            break
        if message.get("parent_header", {}).get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            printed.append(content["text"])
        elif kind == "error":
            raise CellFailed("\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return "".join(printed)
    raise TimeoutError("the cell did not end in time")
