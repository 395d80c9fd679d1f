"""Looks at the cards once a second and holds every slice to its size.

This class is the adapter between the decisions (judgement, watchdog, burst) and the world. It
survives every part of the world failing: then it says so, and nobody is ended on a guess.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from device_plugin.enforcement.accounts import biggest
from device_plugin.enforcement.cgroup import Owner
from device_plugin.enforcement.docket import Docket
from device_plugin.enforcement.judgement import CardState, PodTerms, judge
from device_plugin.enforcement.limiter import Limiter, NoLimiter
from device_plugin.enforcement.looker import Look, Looker
from device_plugin.enforcement.messages import Message, Reason, message
from device_plugin.enforcement.notices import NoticeBoards
from device_plugin.enforcement.processes import Gone
from device_plugin.enforcement.settings import Enforcement
from device_plugin.enforcement.slices import Slice
from device_plugin.enforcement.strays import Damped
from device_plugin.enforcement.teller import Teller
from device_plugin.enforcement.terms import TermsBook
from device_plugin.enforcement.watchdog import Action, Case, End, Evict, step
from device_plugin.nvml_thread import NvmlStuck
from device_plugin.patience import wait_at_most
from device_plugin.usage.book import UsageBook
from device_plugin.usage.report import board
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.units import Unit, human_mib

log = logging.getLogger(__name__)

_IDLE_FACTOR = 5  # where nobody has a slice, strays are all there is to see


class Enforcer:
    """One for the node. ``slices`` and ``cards`` are asked at each look."""

    def __init__(
        self,
        settings: Enforcement,
        names: Names,
        unit: Unit,
        slices: Callable[[], Mapping[str, Slice]],
        cards: Callable[[], Mapping[str, Card]],
        looker: Looker,
        teller: Teller,
        book: UsageBook,
        boards: NoticeBoards | None = None,
        limiter: Limiter | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        docket: Docket | None = None,
    ) -> None:
        self._settings, self._slices, self._cards = settings, slices, cards
        self._looker, self._teller, self._boards = looker, teller, boards
        self._limiter: Limiter = limiter or NoLimiter()
        self._clock, self._wall = clock, wall
        self._terms = TermsBook(
            settings.rules(),
            settings.pod_bounds(),
            settings.burst_percent,
            names,
            unit,
            lambda its, text: teller.tell(its.pod, "", Message(Reason.SETTING, text)),
        )
        self.book = book
        self.states: dict[str, CardState] = {}
        self._docket = docket
        self.cases: dict[tuple[str, str], Case] = docket.load() if docket else {}
        self.problem = "the cards have not been looked at yet"
        self.looks = self.failed_looks = 0
        self._damped: dict[str, Damped] = {}
        self.looked, self._wake = asyncio.Event(), asyncio.Event()
        self._last_look = self._last_busy = float("-inf")
        self._last_problem = ""
        self._denied = ""
        self._boards_of: frozenset[str] | None = None
        self._taken_listeners: list[Callable[[Mapping[str, int]], None]] = []

    # --- what others ask

    def taken(self) -> dict[str, int]:
        """MiB of each card that strays hold, rounded and damped; cards without any are left out."""
        return {card: damped.mib for card, damped in self._damped.items() if damped.mib}

    def on_taken(self, listener: Callable[[Mapping[str, int]], None]) -> None:
        """Call ``listener`` with ``taken()`` whenever that changes."""
        self._taken_listeners.append(listener)

    def problems(self) -> list[str]:
        """What keeps slices from being held, one line each."""
        return [text for text in (self.problem, self._denied, *self._limiter.problems()) if text]

    def terms_of(self, its: Slice) -> PodTerms:
        """What holds for a slice."""
        return self._terms.of(its)

    def held_by(self, its: Slice, card: str) -> tuple[str, str]:
        """By what the memory and the compute of a slice are limited."""
        return self._limiter.held_by(its, card)

    def look_soon(self) -> asyncio.Event:
        """Have the cards looked at now; the event is set when that is done."""
        self._wake.set()
        return self.looked

    def quicken(self) -> None:
        """Somebody has a slice now: where nobody had one, cards were looked at less often."""
        if not self._busy():
            self._wake.set()

    # --- the loop

    async def run(self) -> None:
        """Look for ever."""
        try:
            while True:
                began = self._clock()
                try:
                    await self.look()
                except Exception:
                    # A fault of ours must not leave the cards unwatched.
                    log.exception("a look at the cards failed by a fault of ours")
                    self.failed_looks += 1
                pause = self._settings.period * (1 if self._busy() else _IDLE_FACTOR)
                await wait_at_most(self._wake, max(0.05, began + pause - self._clock()))
                self._wake.clear()
        finally:
            self._looker.stop()

    async def look(self) -> None:
        """One look at all cards, and what follows from it."""
        now, wall = self._clock(), self._wall()
        slices, cards = dict(self._slices()), dict(self._cards())
        busy = now - self._last_busy >= self._settings.activity_period
        try:
            look = await self._looker.look(list(cards), busy)
        except NvmlStuck as error:
            self._failed(str(error))
            return
        self.looks += 1
        self._last_busy = now if busy else self._last_busy
        self._forget(slices)
        terms = {uid: self._terms.of(its) for uid, its in slices.items()}
        problems = []
        states: dict[str, CardState] = {}
        for sample in look.samples:
            if sample.problem:
                problems.append(f"{sample.card}: {sample.problem}")
                continue
            expected = self._limiter.pids(sample.card)
            state = judge(sample, look.processes, slices, terms, expected)
            states[sample.card] = state
            self._damp(sample.card, state.account.stray_mib, now)
        self.states = states
        self._measure(look, slices, wall)
        self._say("; ".join(problems))
        await self._watch(states, slices, terms, cards, now, wall)
        if self._docket is not None:
            self._docket.keep(self.cases)
        self._last_look = now
        self._show(slices, cards, wall)
        looked, self.looked = self.looked, asyncio.Event()
        looked.set()

    async def _watch(
        self,
        states: Mapping[str, CardState],
        slices: Mapping[str, Slice],
        terms: Mapping[str, PodTerms],
        cards: Mapping[str, Card],
        now: float,
        wall: float,
    ) -> None:
        over = {card: frozenset(state.over(terms)) for card, state in states.items()}
        owners = frozenset[Owner]().union(*(s.owners(over[c]) for c, s in states.items()))
        try:
            inits = await self._looker.first_processes(owners) if owners else frozenset[int]()
        except NvmlStuck as error:
            self._failed(str(error))
            return
        passed = min(max(0.0, now - self._last_look), _IDLE_FACTOR * self._settings.period)
        for card, state in states.items():
            for uid in state.claims:
                case = self.cases.get((uid, card))
                if case is None and uid not in over[card]:
                    continue  # within its slice, and was so before: as almost everybody
                seen = state.observation(uid, slices, inits)
                case, actions = step(case, seen, terms[uid].rules, now)
                self.book.over(uid, card, case.over_since is not None, passed, wall)
                if case.idle:
                    self.cases.pop((uid, card), None)
                else:
                    self.cases[uid, card] = case
                for action in actions:
                    await self._do(action, slices[uid], cards[card], state, inits, terms[uid])

    async def _do(
        self,
        action: Action,
        its: Slice,
        card: Card,
        state: CardState,
        inits: frozenset[int],
        terms: PodTerms,
    ) -> None:
        uid = its.pod.uid
        use = state.account.pods.get(uid)
        text = message(action, card, terms.rules, biggest(use.held, inits) if use else None)
        if isinstance(action, Evict):
            self._teller.evict(its.pod, card.uuid, text)
            return
        if isinstance(action, End) and not await self._end(action, its, card):
            return
        self._teller.tell(its.pod, card.uuid, text)

    async def _end(self, end: End, its: Slice, card: Card) -> bool:
        """Whether the process was there to be ended."""
        process = end.held.process
        owner = next(o for o in process.owners if o.pod_uid == its.pod.uid)
        # A client of MPS that just dies can take its neighbours along: its contexts go first.
        await self._limiter.before_end(card.uuid, process.pid)
        try:
            await self._looker.signal(process, end.hard, owner)
        except (Gone, NvmlStuck) as error:
            log.info("%s: nothing ended: %s", its.pod, error)
            return False
        except PermissionError:
            self._denied = (
                "processes of pods cannot be ended: give the device plugin the capability KILL"
            )
            log.error("%s", self._denied)
            return False
        self.book.open(its.pod.uid, card.uuid, self._wall()).ended += not end.hard
        return True

    # --- parts of a look

    def _measure(self, look: Look, slices: Mapping[str, Slice], wall: float) -> None:
        for uid, its in slices.items():
            for card in its.footprint if its.started else ():
                self.book.open(uid, card, wall)
        for card, state in self.states.items():
            self.book.read(card, state.account, wall)
            if card in look.activity:
                self.book.busy[card] = look.activity[card].card_percent
                self.book.activity(card, state.account, look.activity[card], wall)

    def _forget(self, slices: Mapping[str, Slice]) -> None:
        self._terms.keep_only(slices)
        self.book.keep_only(
            (uid, card) for uid, its in slices.items() for card in its.footprint if its.started
        )
        for uid, card in list(self.cases):
            if uid not in slices or card not in slices[uid].footprint:
                del self.cases[uid, card]
        if self._boards is not None and self._boards_of != slices.keys():
            self._boards.remove_all_but(slices)
            self._boards_of = frozenset(slices)

    def _damp(self, card: str, mib: int, now: float) -> None:
        before = self._damped.get(card, Damped())
        self._damped[card] = after = before.see(mib, now)
        if after.mib != before.mib:
            log.warning("card %s: processes without a slice hold %s", card, human_mib(after.mib))
            for listener in self._taken_listeners:
                listener(self.taken())

    def _show(self, slices: Mapping[str, Slice], cards: Mapping[str, Card], wall: float) -> None:
        if self._boards is None:
            return
        for uid, its in slices.items():
            if its.started and (uid in self._teller.news or self._boards.due(uid, wall)):
                self._boards.show(uid, board(self, its, cards), wall)
        self._teller.news.clear()

    def _busy(self) -> bool:
        return bool(self.cases) or any(s.claims for s in self.states.values())

    def _failed(self, problem: str) -> None:
        self.failed_looks += 1
        self._say(problem)

    def _say(self, problem: str) -> None:
        if problem and problem != self._last_problem:
            log.warning("cards cannot be looked at, their slices are not held: %s", problem)
        elif self._last_problem and not problem:
            log.info("all cards are looked at again")
        self.problem = self._last_problem = problem
