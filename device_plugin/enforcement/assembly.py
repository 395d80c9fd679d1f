"""All parts of enforcement and usage, put together for the daemon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from device_plugin.enforcement.docket import Docket
from device_plugin.enforcement.enforcer import Enforcer
from device_plugin.enforcement.limiter import Limiter, NoLimiter
from device_plugin.enforcement.looker import Looker, Sampling
from device_plugin.enforcement.messages import name_card
from device_plugin.enforcement.mps.daemon import Users
from device_plugin.enforcement.mps.host import Host, LocalHost
from device_plugin.enforcement.mps.keeper import MpsCard, MpsKeeper
from device_plugin.enforcement.mps.modes import NvmlModes
from device_plugin.enforcement.mps.wire import RemoteHost
from device_plugin.enforcement.node_slices import NodeSlices, Pod, Started
from device_plugin.enforcement.notices import NoticeBoards
from device_plugin.enforcement.outbox import Outbox
from device_plugin.enforcement.processes import Processes
from device_plugin.enforcement.rules import Level
from device_plugin.enforcement.settings import Enforcement
from device_plugin.enforcement.slices import Slice
from device_plugin.enforcement.start_gate import StartGate
from device_plugin.enforcement.teller import Teller
from device_plugin.enforcement.time_slices import TimeSlices
from device_plugin.kube import Kube
from device_plugin.usage.access import Access
from device_plugin.usage.book import UsageBook
from device_plugin.usage.metrics import UsageCollector
from device_plugin.usage.report import node_usage
from device_plugin.usage.sampler import Sampler
from device_plugin.usage.server import UsageServer
from device_plugin.usage.shelf import Shelf
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.placement import ContainerPlacement
from gpushare.units import Unit
from gpushare.usage import NodeUsage

_SAVE_EVERY = 10.0
# A look takes milliseconds. A driver that takes this long is not to be waited for.
_LIMIT = 10.0


class Enforcing:
    """What the daemon holds: the hook before starts, the parts that run, what is wrong.

    ``started`` and ``pods`` are what the plugin knows now: records of started containers, and the
    node's pods by uid. ``capability`` tells a card's compute capability, and ``blame`` makes a card
    unhealthy for a reason ('': well again).
    """

    def __init__(
        self,
        settings: Enforcement,
        node: str,
        names: Names,
        unit: Unit,
        kube: Kube,
        started: Callable[[], Iterable[Started]],
        pods: Callable[[], Mapping[str, Pod]],
        cards: Callable[[], Iterable[Card]],
        capability: Callable[[str], str] = lambda card: "",
        blame: Callable[[str, str], None] = lambda card, problem: None,
        sampling: Sampling | None = None,
        driver_root: str = "/",
    ) -> None:
        self._settings, self._node = settings, node
        self._started, self._pods, self._cards = started, pods, cards
        self._slices = NodeSlices(node, names)
        folder = Path(settings.state_dir) if settings.state_dir else None
        book = UsageBook()
        self._shelf = Shelf(folder, book) if folder else None
        boards = NoticeBoards(folder / "boards") if folder else None
        self._outbox = Outbox(kube, node, names)
        self.teller = Teller(self._outbox, boards)
        self.turns = TimeSlices(settings.time_slice, self.cards, settings.nvidia_smi, driver_root)
        self._mps: MpsKeeper | None = None
        limiter: Limiter
        if settings.level == Level.MPS.value:
            limiter = self._mps = self._mps_keeper(capability, blame)
        else:
            advice = settings.level == Level.ADVISORY.value
            limiter = NoLimiter("advice" if advice else "watchdog", self.turns.compute)
        self._limiter = limiter
        self.enforcer = Enforcer(
            settings,
            names,
            unit,
            self.slices,
            self.cards,
            Looker(sampling or Sampler(), Processes(), _LIMIT),
            self.teller,
            book,
            boards,
            limiter,
            docket=Docket(folder) if folder else None,
        )
        self._gate = StartGate(self.enforcer, self.slices, self.cards, limiter, boards)
        self._server: UsageServer | None = None
        if settings.usage_address:
            self._server = UsageServer(
                settings.usage_address,
                Path(settings.tls_cert),
                Path(settings.tls_key),
                Access(kube),
                self.usage,
            )

    def slices(self) -> dict[str, Slice]:
        """The slices of this node, by pod uid."""
        return self._slices.slices(self._started(), self._pods())

    def cards(self) -> dict[str, Card]:
        """The cards of this node, by uuid."""
        return {card.uuid: card for card in self._cards()}

    def usage(self) -> NodeUsage:
        """All that is measured."""
        return node_usage(
            self.enforcer,
            self._node,
            self._settings.level,
            self.slices(),
            self.cards(),
            self.teller.incidents,
            time.time(),
        )

    async def before_start(
        self, pod: Mapping[str, Any], container: ContainerPlacement
    ) -> dict[str, Any]:
        """The hook of container starts: further CDI edits. Raises Refused."""
        return await self._gate.before_start(pod, container)

    @property
    def level(self) -> Level:
        """What this node does about slices."""
        return Level(self._settings.level)

    def in_force(self) -> dict[str, Any]:
        """By what slices are held now: the level, and per card what limits memory and compute."""
        words = {uuid: self._limiter.in_force(uuid) for uuid in self.cards()}
        return {
            "level": self._settings.level,
            "memory": {uuid: memory for uuid, (memory, _) in words.items()},
            "compute": {uuid: compute for uuid, (_, compute) in words.items()},
        }

    def problems(self) -> list[str]:
        """What keeps slices from being held or measured, one line each."""
        server = self._server.problem if self._server else ""
        turns = self.turns.problem
        return [
            *self.enforcer.problems(),
            *([turns] if turns else []),
            *([f"usage API: {server}"] if server else []),
        ]

    def register(self, registry: CollectorRegistry) -> None:
        """Add the metrics of usage and enforcement."""
        enforcer = self.enforcer
        registry.register(
            UsageCollector(
                self.usage,
                self.cards,
                lambda: self.teller.counts,
                lambda: (enforcer.looks, enforcer.failed_looks),
                dcgm=self._settings.dcgm_metrics,
            )
        )

    def parts(self) -> dict[str, Coroutine[Any, Any, object]]:
        """What has to run, by name."""
        parts: dict[str, Coroutine[Any, Any, object]] = {
            "enforcement": self.enforcer.run(),
            "outbox": self._outbox.run(),
        }
        if self._server is not None:
            parts["usage server"] = self._server.run()
        if self._mps is not None:
            parts["mps"] = self._mps.run()
        elif self._settings.time_slice:
            parts["turns"] = self.turns.run()
        if self._shelf is not None:
            self._shelf.load()
            parts["usage shelf"] = self._keep(self._shelf)
        return parts

    def _mps_keeper(
        self, capability: Callable[[str], str], blame: Callable[[str, str], None]
    ) -> MpsKeeper:
        settings = self._settings
        shm = Path(settings.mps_shm_dir)
        host: Host
        if settings.mps_control:
            root = Path(settings.state_dir or "/run/gpushare", "mps")
            host = LocalHost(settings.mps_control, root, shm, NvmlModes())
        else:
            socket = Path(settings.mps_socket)
            host = RemoteHost(socket, socket.parent, shm)

        def about(uuid: str) -> MpsCard | None:
            card = self.cards().get(uuid)
            return MpsCard(name_card(card), card.short_model, capability(uuid)) if card else None

        return MpsKeeper(
            host,
            Users(settings.mps_users),
            settings.mps_uid,
            self.slices,
            lambda its, card: self.enforcer.terms_of(its).most(card),
            self.cards,
            about,
            self.teller.tell,
            blame,
        )

    async def _keep(self, shelf: Shelf) -> None:
        try:
            while True:
                await asyncio.sleep(_SAVE_EVERY)
                shelf.save()
        finally:
            shelf.save()
