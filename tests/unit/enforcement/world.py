"""A node in memory: cards, processes and pods that a test moves, and the real Enforcer over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from device_plugin.enforcement.accounts import ProcessInfo
from device_plugin.enforcement.cgroup import Owner
from device_plugin.enforcement.docket import Docket
from device_plugin.enforcement.enforcer import Enforcer
from device_plugin.enforcement.limiter import Limiter, NoLimiter
from device_plugin.enforcement.looker import Look
from device_plugin.enforcement.notices import NoticeBoards
from device_plugin.enforcement.outbox import Outbox
from device_plugin.enforcement.processes import Gone
from device_plugin.enforcement.settings import Enforcement
from device_plugin.enforcement.slices import Slice
from device_plugin.enforcement.start_gate import StartGate
from device_plugin.enforcement.teller import Teller
from device_plugin.nvml_thread import NvmlStuck
from device_plugin.usage.book import UsageBook
from device_plugin.usage.sample import CardActivity, CardSample
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.units import GIB

from .making import CARD, process, uid

MEMORY = 15000


class Failing(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"answer {status}")
        self.status = status


class Server:
    """The API server's end."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Mapping[str, Any]]] = []
        self.failing: Exception | None = None

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._take("POST", path, body)

    async def patch_list(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._take("PATCH", path, body)

    async def delete(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._take("DELETE", path, body)

    def _take(self, method: str, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.failing is not None:
            raise self.failing
        self.calls.append((method, path, body))
        return body

    def events(self) -> list[Mapping[str, Any]]:
        return [body for method, _, body in self.calls if method == "POST"]

    def reasons(self) -> list[str]:
        return [body["reason"] for body in self.events()]

    def deleted(self) -> list[str]:
        return [path.rpartition("/")[2] for method, path, _ in self.calls if method == "DELETE"]


class World:
    """``holding``: (pid, card) to MiB. ``stubborn`` processes ignore SIGTERM."""

    def __init__(
        self, tmp_path: Path | None = None, limiter: Limiter | None = None, **settings: Any
    ) -> None:
        self.now, self.wall = 100.0, 1_800_000_000.0
        self.cards = {CARD: Card(CARD, 0, 0, "Tesla T4", MEMORY)}
        self.slices: dict[str, Slice] = {}
        self.processes: dict[int, ProcessInfo] = {}
        self.holding: dict[tuple[int, str], int | None] = {}
        self.active: dict[int, int] | None = {}
        self.card_percent = 0
        self.inits: set[int] = set()
        self.stubborn: set[int] = set()
        self.signals: list[tuple[int, bool]] = []
        self.stuck = False
        self.problem = ""
        self.denied = False
        self.server = Server()
        self.outbox = Outbox(self.server, "node-1", Names())
        self.boards = NoticeBoards(tmp_path / "boards") if tmp_path else None
        self.teller = Teller(self.outbox, self.boards, lambda: self.wall)
        values = {
            "grace": 5.0,
            "urgent_grace": 2.0,
            "burst_grace": 3.0,
            "term_grace": 2.0,
            **settings,
        }
        self.enforcer = Enforcer(
            Enforcement(**values),
            Names(),
            GIB,
            lambda: self.slices,
            lambda: self.cards,
            self,  # type: ignore[arg-type]
            self.teller,
            UsageBook(),
            self.boards,
            limiter,
            lambda: self.now,
            lambda: self.wall,
            Docket(tmp_path) if tmp_path else None,
        )
        self.gate = StartGate(
            self.enforcer,
            lambda: self.slices,
            lambda: self.cards,
            limiter or NoLimiter(),
            self.boards,
            lambda: self.now,
        )

    # --- the node's side, in place of Looker

    async def look(self, cards: Sequence[str], busy: bool) -> Look:
        if self.stuck:
            raise NvmlStuck("an NVML call has not returned for 10 s")
        samples = [self._sample(card) for card in cards]
        seen = (
            {card: CardActivity(self.card_percent, self.active) for card in cards} if busy else {}
        )
        return Look(samples, seen, dict(self.processes))

    async def first_processes(self, containers: Collection[Owner]) -> frozenset[int]:
        return frozenset(self.inits)

    async def signal(self, process: ProcessInfo, hard: bool, owner: Owner) -> None:
        if self.denied:
            raise PermissionError
        if process.pid not in self.processes:
            raise Gone
        assert owner in process.owners
        self.signals.append((process.pid, hard))
        if hard or process.pid not in self.stubborn:
            self.end(process.pid)

    def stop(self) -> None:
        return None

    def _sample(self, card: str) -> CardSample:
        if self.problem:
            return CardSample(card, problem=self.problem)
        memory = {pid: mib for (pid, on), mib in self.holding.items() if on == card}
        used = sum(mib or 0 for mib in memory.values())
        return CardSample(card, MEMORY, used, 0, memory)

    # --- what a test does

    def add(self, *slices: Slice) -> None:
        self.slices |= {s.pod.uid: s for s in slices}

    def start(self, n: int) -> None:
        """A container of a pod that was only bound starts."""
        self.slices[uid(n)] = replace(self.slices[uid(n)], started=True)

    def run(self, pid: int, mib: int | None, pod: int | None = 1, card: str = CARD) -> None:
        """A process holds memory."""
        self.processes[pid] = process(pid, pod)
        self.holding[pid, card] = mib

    def end(self, pid: int) -> None:
        self.processes.pop(pid, None)
        for key in [k for k in self.holding if k[0] == pid]:
            del self.holding[key]

    async def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Look once a ``step``."""
        left = seconds
        while left > 1e-9:
            self.now += step
            self.wall += step
            left -= step
            await self.enforcer.look()
        await self.send()

    async def send(self) -> None:
        """Let the outbox do its work."""
        import asyncio

        task = asyncio.create_task(self.outbox.run())
        for _ in range(300):
            await asyncio.sleep(0)
        task.cancel()
