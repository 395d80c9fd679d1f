"""Keeps MPS in step with the node's slices: a daemon where a card is shared, none where it is not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from device_plugin.enforcement.messages import Message, Reason
from device_plugin.enforcement.mps import plan
from device_plugin.enforcement.mps.daemon import CardDaemon, Users
from device_plugin.enforcement.mps.host import Host, HostError
from device_plugin.enforcement.mps.layout import client_edits
from device_plugin.enforcement.mps.logs import Fault, LogEvent, LogReader, ServerEnded, ServerFailed
from device_plugin.enforcement.mps.tail import Tail, rotate
from device_plugin.enforcement.slices import Slice
from device_plugin.refusal import Code, Refused
from gpushare.placement import ContainerPlacement
from gpushare.pods import PodRef

log = logging.getLogger(__name__)

_EVERY = 2.0
_ASK_EVERY = 10.0  # a question to a daemon is a process each time
_IDLE = 30.0  # a card that nobody shares any more keeps its daemon so long
_FIRST_RETRY, _LONGEST_RETRY = 2.0, 60.0

Tell = Callable[[PodRef, str, Message], None]


@dataclass(frozen=True, slots=True)
class MpsCard:
    """What has to be known of a card: for the refusal, and to name it."""

    name: str
    model: str
    capability: str


_STRENGTH = ("best-effort", "watchdog", "mps-client", "mps-server")


def _weakest(words: Iterable[str]) -> str:
    return min(words, key=_STRENGTH.index)


class _Kept:
    """A card's daemon, and what is remembered of it."""

    def __init__(self, daemon: CardDaemon, host: Host) -> None:
        self.daemon = daemon
        self.lock = asyncio.Lock()
        where = host.where(daemon.card)
        self.tails = [Tail(where.logs / "server.log"), Tail(where.logs / "control.log")]
        self.reader = LogReader()
        self.problem = ""
        self.unused_since: float | None = None
        self.retry_at, self.delay = 0.0, _FIRST_RETRY
        self.asked_at = float("-inf")


class MpsKeeper:
    """The Limiter of nodes at level 'mps'. ``blame(card, problem)`` makes a card unhealthy ('': well)."""

    def __init__(
        self,
        host: Host,
        users: Users,
        uid: int,
        slices: Callable[[], Mapping[str, Slice]],
        most: Callable[[Slice, str], int],
        cards: Callable[[], Collection[str]],
        card: Callable[[str], MpsCard | None],
        tell: Tell,
        blame: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._users, self._uid = host, users, uid
        self._slices, self._most, self._cards, self._card = slices, most, cards, card
        self._tell, self._blame, self._clock = tell, blame, clock
        self._kept: dict[str, _Kept] = {}

    # --- Limiter

    async def before_start(self, its: Slice, placed: ContainerPlacement) -> dict[str, Any]:
        cards = [share.card for share in placed.shares]
        if all(share.percent == 100 for share in placed.shares):
            for card in cards:
                await self._release(card)
            return {}
        sharing = self._sharing(cards[0])
        others = {uid: s for uid, s in sharing.items() if uid != its.pod.uid}
        about = self._card(cards[0])
        problem = plan.card_refusal(about.capability, about.model) if about else ""
        if problem:
            raise Refused(Code.NOT_NOW, problem=problem)
        kept = self._of(cards[0])
        async with kept.lock:
            try:
                await self._ensure(kept, {**others, its.pod.uid: its})
            except HostError as error:
                raise Refused(
                    Code.NOT_NOW, problem=f"MPS of card {cards[0]} cannot serve it: {error}"
                ) from None
            only = None if kept.daemon.many_users else self._uid
        problem = plan.slice_refusal(its, cards, others, only)
        if problem:
            raise Refused(Code.NOT_NOW, problem=problem)
        share = placed.shares[0]
        alone = share.mib == its.mib(share.card)
        mib = max(share.mib, self._most(its, share.card)) if alone else share.mib
        return client_edits(self._host.where(share.card), mib, share.percent)

    async def before_end(self, card: str, pid: int) -> None:
        kept = self._kept.get(card)
        if kept is None or not kept.daemon.running:
            return
        with contextlib.suppress(HostError):
            if await kept.daemon.terminate(pid):
                log.info("card %s: the MPS contexts of process %d are ended", card, pid)

    def pids(self, card: str) -> Collection[int]:
        kept = self._kept.get(card)
        return (kept.daemon.pid, *kept.daemon.servers) if kept else ()

    def held_by(self, its: Slice, card: str) -> tuple[str, str]:
        if not plan.shares_card(its, card):
            return "watchdog", "whole-card"
        kept = self._kept.get(card)
        server = kept.daemon.limits if kept and not kept.problem else None
        return plan.held_by(self._wanted(its, card), server)

    def in_force(self, card: str) -> tuple[str, str]:
        kept = self._kept.get(card)
        if kept is None or kept.problem or kept.daemon.limits is None:
            return "watchdog", "best-effort"
        server, sharing = kept.daemon.limits, self._sharing(card).values()
        words = [plan.held_by(self._wanted(its, card), server) for its in sharing]
        if not words:
            return "mps-server", "mps-server"
        # The weakest of them is what can be promised of the card.
        return _weakest(memory for memory, _ in words), _weakest(compute for _, compute in words)

    def problems(self) -> list[str]:
        return [f"MPS of card {c}: {k.problem}" for c, k in self._kept.items() if k.problem]

    # --- the loop

    async def run(self) -> None:
        """Look after the daemons for ever. They are not stopped at the end: programs go on."""
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("MPS could not be looked after by a fault of ours")
            await asyncio.sleep(_EVERY)

    async def look(self) -> None:
        """One look at each card's daemon."""
        for card in self._cards():
            kept = self._kept.get(card)
            new, kept = kept is None, kept or self._of(card)
            async with kept.lock:
                if new:
                    await self._adopt(kept)
                await self._look_at(kept)

    async def _adopt(self, kept: _Kept) -> None:
        """Take over the daemon that an earlier run started, also to end it where nobody needs it."""
        try:
            await kept.daemon.adopt()
        except HostError as error:
            log.warning("card %s: its MPS daemon cannot be asked: %s", kept.daemon.card, error)

    async def _look_at(self, kept: _Kept) -> None:
        card, sharing = kept.daemon.card, self._sharing(kept.daemon.card)
        events = self._read_logs(kept)
        for event in events:
            self._heard(kept, event, sharing)
        if not sharing:
            await self._retire(kept)
            return
        kept.unused_since = None
        now = self._clock()
        thoroughly = bool(events or kept.problem) or now - kept.asked_at >= _ASK_EVERY
        kept.asked_at = now if thoroughly else kept.asked_at
        problem = await kept.daemon.check(thoroughly)
        if problem and not kept.problem:
            self._broken(kept, problem, sharing)
        kept.problem = problem or kept.problem
        wanted = self._limits(sharing, card)
        if not kept.problem and wanted == kept.daemon.limits:
            return
        if kept.problem and now < kept.retry_at:
            return
        try:
            await self._mend(kept, problem)
            await self._ensure(kept, sharing)
        except HostError as error:
            kept.delay = min(_LONGEST_RETRY, kept.delay * 2)
            kept.retry_at = now + kept.delay
            if not kept.problem:
                self._broken(kept, str(error), sharing)
            return
        kept.delay, kept.retry_at = _FIRST_RETRY, 0.0

    async def _mend(self, kept: _Kept, problem: str) -> None:
        """A server in fault comes back by itself when the faulty clients are gone; then it may go."""
        if problem and kept.daemon.running and not await kept.daemon.clients():
            await kept.daemon.restart_servers()

    async def _ensure(self, kept: _Kept, sharing: Mapping[str, Slice]) -> None:
        card = kept.daemon.card
        wanted = self._limits(sharing, card)
        if wanted is None:
            return
        serves = not kept.problem and not await kept.daemon.check(thoroughly=False)
        if kept.daemon.limits == wanted and serves:
            return
        await kept.daemon.ensure(wanted)
        kept.unused_since = None
        if kept.problem:
            log.info("card %s: MPS serves again", card)
            self._blame(card, "")
        kept.problem = ""

    async def _retire(self, kept: _Kept) -> None:
        now = self._clock()
        if not kept.daemon.running:
            return
        if kept.unused_since is None:
            kept.unused_since = now
        if now - kept.unused_since >= _IDLE:
            await self._stop(kept)

    async def _release(self, card: str) -> None:
        """A whole card runs without MPS: several programs could not use it otherwise."""
        kept = self._of(card)
        async with kept.lock:
            try:
                await self._stop(kept)
            except HostError as error:
                raise Refused(
                    Code.NOT_NOW, problem=f"MPS of card {card} cannot be stopped: {error}"
                ) from None

    async def _stop(self, kept: _Kept) -> None:
        await kept.daemon.stop()
        if kept.problem:
            self._blame(kept.daemon.card, "")
        kept.problem, kept.unused_since = "", None

    # --- what happens to daemons

    def _read_logs(self, kept: _Kept) -> list[LogEvent]:
        lines = [line for tail in kept.tails for line in tail.lines()]
        for tail in kept.tails:
            if rotate(tail.path):
                log.info(
                    "%s was long and is begun anew; what was in it is in %s.1", *[tail.path] * 2
                )
        return kept.reader.read(lines) if lines else kept.reader.settle()

    def _heard(self, kept: _Kept, event: LogEvent, sharing: Mapping[str, Slice]) -> None:
        card = kept.daemon.card
        if isinstance(event, Fault):
            pids = ", ".join(map(str, sorted(event.clients)))
            log.error("card %s: a fatal GPU error of one MPS client ended these: %s", card, pids)
            text = (
                f"a program on {self._name(card)} made a fatal GPU error. Under MPS that ends every "
                "GPU program that runs on the card: restart kernels whose GPU calls fail now"
            )
            self._tell_all(sharing, card, text)
        elif isinstance(event, ServerEnded):
            log.error("card %s: MPS server %d ended with status %d", card, event.pid, event.status)
        elif isinstance(event, ServerFailed):
            log.error("card %s: an MPS server failed to start", card)

    def _broken(self, kept: _Kept, problem: str, sharing: Mapping[str, Slice]) -> None:
        card = kept.daemon.card
        kept.problem = problem
        log.error("card %s: MPS is out of order: %s", card, problem)
        self._blame(card, f"MPS: {problem}")
        text = (
            f"MPS on {self._name(card)} is out of order ({problem}): GPU calls fail until it is "
            "back; then restart the kernels that used the GPU"
        )
        self._tell_all(sharing, card, text)

    def _tell_all(self, sharing: Mapping[str, Slice], card: str, text: str) -> None:
        for its in sharing.values():
            if its.started:
                self._tell(its.pod, card, Message(Reason.FAULT, text))

    # --- small things

    def _sharing(self, card: str) -> dict[str, Slice]:
        slices = self._slices()
        return {uid: s for uid, s in slices.items() if s.started and plan.shares_card(s, card)}

    def _wanted(self, its: Slice, card: str) -> plan.Wanted:
        return plan.wanted(its, card, self._most(its, card))

    def _limits(self, sharing: Mapping[str, Slice], card: str) -> plan.Limits | None:
        return plan.limits(self._wanted(s, card) for s in sharing.values())

    def _of(self, card: str) -> _Kept:
        kept = self._kept.get(card)
        if kept is None:
            daemon = CardDaemon(self._host, card, self._users, self._uid)
            kept = self._kept[card] = _Kept(daemon, self._host)
        return kept

    def _name(self, card: str) -> str:
        about = self._card(card)
        return about.name if about else card
