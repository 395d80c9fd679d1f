"""A running extender against the API double, and a clock that tests turn."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from extender.fitting import Rules
from extender.service import Service
from gpushare.names import Names
from gpushare.request import Policy
from gpushare.units import GIB
from tests.unit.extender.api_double import ApiDouble

RULES = Rules(Names(), GIB, Policy.BINPACK)


@dataclass
class HandClock:
    """Time that passes when a test says so."""

    time: float = 1000.0
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def call_later(self, seconds: float, what: Callable[[], None]) -> Any:
        entry = (self.time + seconds, what)
        self.timers.append(entry)
        clock = self

        class Handle:
            def cancel(self) -> None:
                if entry in clock.timers:
                    clock.timers.remove(entry)

        return Handle()

    def pass_by(self, seconds: float) -> None:
        self.time += seconds
        due = [entry for entry in self.timers if entry[0] <= self.time]
        for entry in due:
            self.timers.remove(entry)
            entry[1]()


@dataclass
class Extender:
    """The service under test, with the double that it follows."""

    service: Service
    api: ApiDouble

    def filter(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        body = {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
        answer: dict[str, Any] = json.loads(self.service.verbs.filter(json.dumps(body).encode()))
        return answer

    def prioritize(self, pod: dict[str, Any], *names: str) -> dict[str, int]:
        body = {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
        answer = json.loads(self.service.verbs.prioritize(json.dumps(body).encode()))
        return {entry["Host"]: entry["Score"] for entry in answer}

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        answer = json.loads(await self.service.verbs.bind(json.dumps(body).encode()))
        return str(answer["Error"])

    async def caught_up(self) -> None:
        """Wait until every change in the double has been seen."""
        for kind in ("nodes", "pods"):
            self.api.bookmark(kind)
        reached = self.api.version - 1
        await until(
            lambda: all(
                reflector._version.isdecimal() and int(reflector._version) >= reached
                for reflector in (self.service.nodes, self.service.pods)
            ),
            "the extender has caught up",
        )


async def until(true: Callable[[], object], what: str, seconds: float = 10) -> None:
    """Let the loop run until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not after {seconds} s: {what}"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running(api: ApiDouble, rules: Rules = RULES, **more: Any) -> AsyncIterator[Extender]:
    """An extender that follows the double and is ready."""
    async with api.serving() as client:
        service = Service(client, rules, **more)
        task = asyncio.create_task(service.run())
        try:
            await until(lambda: service.verbs.ready or task.done(), "ready")
            yield Extender(service, api)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def api() -> ApiDouble:
    return ApiDouble()
