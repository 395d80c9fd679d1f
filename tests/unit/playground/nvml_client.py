"""Real nvidia-ml-py over the stand-in, in a process of its own that takes one expression a line.

A process of its own because pynvml keeps the library for ever, and tests want a fresh one.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_SERVER = """
import json, sys
import pynvml
from pynvml import *

def plain(value):
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "_fields_"):
        values = {field[0]: getattr(value, field[0]) for field in value._fields_}
        # opaque handles (pointers) have no plain form
        return {name: plain(item) for name, item in values.items() if not hasattr(item, "contents")}
    if hasattr(value, "__dict__"):
        return {name: plain(item) for name, item in vars(value).items()}
    return str(type(value))

names = globals()
for line in sys.stdin:
    line = json.loads(line)
    try:
        try:
            reply = {"value": plain(eval(line, names))}
        except SyntaxError:
            exec(line, names)
            reply = {"value": None}
    except NVMLError as error:
        reply = {"nvml": error.value, "text": str(error)}
    except Exception as error:
        reply = {"error": repr(error)}
    print(json.dumps(reply), flush=True)
"""


class Refused(Exception):
    """An NVML call returned ``code``."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class NvmlClient:
    def __init__(self, library: Path, prefix: list[str] | None = None, **environment: str) -> None:
        self._process = subprocess.Popen(
            [*(prefix or []), sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": str(library.parent), **environment},
        )
        self.pid = self._process.pid

    def send(self, expression: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(expression) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout is not None
        reply = json.loads(self._process.stdout.readline())
        if "nvml" in reply:
            raise Refused(reply["nvml"], reply["text"])
        if "error" in reply:
            raise AssertionError(reply["error"])
        return reply["value"]

    def __call__(self, expression: str) -> Any:
        self.send(expression)
        return self.receive()

    def answers_within(self, seconds: float) -> bool:
        """Whether the answer to what was sent comes so soon; it is then still to be received."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        timer = threading.Timer(10, self._process.kill)
        timer.start()
        self._process.wait()
        timer.cancel()
        assert self._process.stdout is not None
        self._process.stdout.close()
