"""The month itself: one event after the other, for one strategy."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np

import profiles
from extender.line import Member, Turn, due_times, left_over, plan
from extender.scoring import Workload
from extender.scoring.ask import Ask, ask_of
from extender.waiting import Fairness
from gpushare.placement import Placement
from gpushare.request import PodRequest
from hub_integration.culling.policy import Action, Standing, decide
from profiles.catalogue import Catalogue
from profiles.choice import Person, select
from profiles.pod import pod_parts
from profiles.reader import load
from tests.bench.day.house import House
from tests.bench.day.parameters import Parameters
from tests.bench.day.people import Stretch, Visit
from tests.bench.day.server import Server
from tests.bench.day.strategies import Strategy

_EPOCH = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
_LOOKS = 1.0  # minutes between two looks of the culler
_FIRST = Turn.of(0, 0.0, 0.0, "")  # until the line is made
_FAIRNESS = Fairness()  # as the extender has it
_CATALOGUE = Path(profiles.__file__).with_name("catalogue.yaml")


@dataclass(slots=True)
class Outcome:
    """What became of the month. Times in minutes, memory in MiB-minutes."""

    wished: int = 0
    served: int = 0
    abandoned: int = 0
    waits: list[float] = field(default_factory=list)
    interrupted: int = 0
    """Culled under somebody who came back to work."""
    runs_lost: int = 0
    """Culled while the GPU computed."""
    culled: int = 0
    held: float = 0.0
    used: float = 0.0
    offered: float = 0.0
    crowded: float = 0.0
    """Card-minutes in which the notebooks' working memory was more than the card's."""
    card_minutes: float = 0.0


@dataclass(slots=True)
class Wish:
    """Somebody in the line; what ``extender.line`` needs to know of a pod."""

    uid: str
    visit: Visit
    stretches: tuple[Stretch, ...]
    request: PodRequest
    since: float
    gives_up: float
    turn: Turn = _FIRST
    offered: tuple[str, ...] | None = None


@cache
def _catalogue() -> Catalogue:
    return load(_CATALOGUE)


@cache
def request_of(choice: str) -> tuple[PodRequest, str]:
    """(request, model) of a choice of the catalogue that comes with the product."""
    profile, part = choice.split("/")
    chosen = select(_catalogue(), {"profile": profile, "slice": part}, Person("somebody"))
    request = pod_parts(chosen).request
    return request, request.models[0]


class Month:
    """One run. ``run`` does it all."""

    def __init__(self, given: Parameters, visits: Iterable[Visit], strategy: Strategy) -> None:
        self.given, self.strategy = given, strategy
        self.memory = {kind.model: kind.memory_mib for kind in given.pool}
        self.house = House(given.pool, strategy.policy, Workload(prior=self._prior()))
        self.outcome = Outcome()
        self.rng = np.random.default_rng(given.seed + 1)
        self.servers: dict[str, Server] = {}
        self.of_user: dict[int, Server] = {}
        self.line: dict[str, Wish] = {}
        self.count = itertools.count()
        self.now = 0.0
        self.working: dict[str, tuple[float, float]] = {}
        self.events: list[tuple[float, int, str, object]] = []
        for visit in visits:
            self._at(visit.at, "comes", (visit, visit.stretches))

    def _prior(self) -> Mapping[Ask, float]:
        return {ask_of(self._request(choice)[0]): 1.0 for choice in self.given.choices}

    def _request(self, choice: str) -> tuple[PodRequest, str]:
        request, model = request_of(choice)
        return self.strategy.becomes(request, self.memory[model]), model

    def _at(self, when: float, what: str, about: object) -> None:
        if when <= self.given.end:
            heapq.heappush(self.events, (when, next(self.count), what, about))

    def run(self) -> Outcome:
        handlers = {
            "comes": self._comes,
            "gives up": self._gives_up,
            "leaves": self._leaves,
            "check": self._check,
        }
        while self.events:
            self.now, _, what, about = heapq.heappop(self.events)
            handlers[what](about)  # type: ignore[operator]
        self.now = self.given.end
        for server in list(self.servers.values()):
            self._end(server)
        for wish in self.line.values():
            self.outcome.waits.append(self.now - wish.since)
        total = sum(kind.cards * kind.memory_mib for kind in self.given.pool)
        self.outcome.offered = total * self.given.end
        self.outcome.card_minutes = self.given.cards * self.given.end
        return self.outcome

    # People

    def _comes(self, about: tuple[Visit, tuple[Stretch, ...]]) -> None:
        visit, stretches = about
        self.outcome.wished += 1
        running = self.of_user.get(visit.user)
        if running is not None:
            if running.visit.choice == visit.choice:
                self._resume(running, visit, stretches)
                return
            self._end(running)
        request, _ = self._request(visit.choice)
        self.house.learn(request, self.now)
        uid = f"{visit.user}-{next(self.count)}"
        wish = Wish(uid, visit, stretches, request, self.now, self.now + visit.patience)
        if self.strategy.pressed or self.strategy.policy == "fragmentation":
            self.line[uid] = wish
            self._serve_in_order()
        elif (placed := self.house.choose(uid, request)) is not None:
            self._start(wish, placed)
        else:
            self.line[uid] = wish
        if uid in self.line:
            self._at(wish.gives_up, "gives up", wish)
            self._recheck(wish)

    def _resume(self, running: Server, visit: Visit, stretches: tuple[Stretch, ...]) -> None:
        """The user's server is still there: no wait at all."""
        self.outcome.served += 1
        self.outcome.waits.append(0.0)
        self._settle(running)
        self._working(running, -1)
        running.notebook = [span for span in running.notebook if span[0] <= self.now]
        running.gpu = [span for span in running.gpu if span[0] <= self.now]
        running.plan(visit, self.now, stretches)
        self._working(running, +1)
        self._at(running.leaves, "leaves", (running, running.leaves))

    def _gives_up(self, wish: Wish) -> None:
        if self.line.pop(wish.uid, None) is not None:
            self.outcome.abandoned += 1
            self.outcome.waits.append(self.now - wish.since)
            self._recheck(wish)

    def _leaves(self, about: tuple[Server, float]) -> None:
        server, when = about
        if server.uid in self.servers and server.leaves == when:
            self._end(server)
            self._serve()

    # The line

    def _serve(self) -> None:
        if self.strategy.policy == "fragmentation":
            self._serve_in_order()
            return
        for wish in list(self.line.values()):
            placed = self.house.choose(wish.uid, wish.request)
            if placed is not None:
                self._start(wish, placed)

    def _serve_in_order(self) -> None:
        """The extender's line: whoever is first is served first, and nobody is kept out for ever."""
        served = True
        while served and self.line:
            served = False
            self._turns()
            ordered = sorted(self.line.values(), key=lambda wish: wish.turn)
            made = plan(ordered, self.house, self._may_claim)
            for claim in made.claims:
                if claim.drains:
                    continue
                wish = self.line[claim.uid]
                states = self.house.states(claim.node)
                left, more = left_over(states, made.before(claim.node, wish.turn))
                placed = self.house.place(claim.node, wish.uid, wish.request, left, more)
                assert isinstance(placed, Placement), "what was kept for it is gone"
                self._start(wish, placed)
                served = True
                break  # the plan was made on what was free before

    def _may_claim(self, member: Member, fits: bool) -> bool:
        return fits or self.now - self.line[member.uid].since >= _FAIRNESS.drain / 60

    def _turns(self) -> None:
        owners: dict[int, dict[str, float]] = {}
        for wish in self.line.values():
            owners.setdefault(wish.visit.user, {})[wish.uid] = wish.since * 60
        for created in owners.values():
            for uid, due in due_times(created, _FAIRNESS.share).items():
                self.line[uid].turn = Turn.of(0, due, created[uid], uid)

    def _start(self, wish: Wish, placement: Placement) -> None:
        self.line.pop(wish.uid, None)
        self.house.hold(wish.uid, placement)
        server = Server(wish.uid, wish.visit, self.now, placement)
        server.plan(wish.visit, self.now, wish.stretches)
        self.servers[wish.uid] = self.of_user[wish.visit.user] = server
        self.outcome.served += 1
        self.outcome.waits.append(self.now - wish.since)
        self._at(server.leaves, "leaves", (server, server.leaves))
        self._working(server, +1)
        self._look_at(server, self.now + _LOOKS)

    def _end(self, server: Server) -> None:
        self._settle(server)
        self._working(server, -1)
        self.house.release(server.uid)
        del self.servers[server.uid]
        del self.of_user[server.visit.user]

    # The culler

    def _look_at(self, server: Server, when: float) -> None:
        """Have the culler look at it, at ``when`` or before."""
        if self.strategy.idle is not None and (server.looked is None or when < server.looked):
            server.looked = when
            self._at(when, "check", (server, when))

    def _check(self, about: tuple[Server, float]) -> None:
        server, when = about
        idle = self.strategy.idle
        if idle is None or server.uid not in self.servers or server.looked != when:
            return
        server.looked = None
        verdict = decide(self._standing(server), idle, _time(self.now))
        if verdict.action is Action.CULL:
            self._cull(server)
            return
        if verdict.action is Action.WARN:
            if server.warned_at is None:
                server.warned_at = self.now
                if (
                    server.next_use(self.now) < float("inf")
                    and self.rng.random() < self.given.reacts
                ):
                    server.touched, server.warned_at = self.now, None
        else:
            server.warned_at = None
        # As often as the service looks; when nothing can happen before, as late as that.
        soonest = self.now + _LOOKS
        if verdict.action is Action.KEEP and verdict.ends is not None:
            due = _minutes(verdict.ends) - idle.warn.total_seconds() / 60
            soonest = max(soonest, due)
        self._look_at(server, soonest)

    def _standing(self, server: Server) -> Standing:
        gpu = server.gpu_used(self.now) if self.strategy.gpu_known else None
        return Standing(
            started=_time(server.started),
            notebook_used=_time(server.notebook_used(self.now)),
            gpu_known=self.strategy.gpu_known,
            gpu_used=None if gpu is None else _time(gpu),
            warned_at=None if server.warned_at is None else _time(server.warned_at),
            waiting=self._waiting_for(server) if self.strategy.pressed else 0,
        )

    def _waiting_for(self, server: Server) -> int:
        _, model = request_of(server.visit.choice)
        return sum(request_of(wish.visit.choice)[1] == model for wish in self.line.values())

    def _recheck(self, wish: Wish) -> None:
        """The line has changed: what servers on such cards are allowed may have as well."""
        if not self.strategy.pressed:
            return
        _, model = request_of(wish.visit.choice)
        for server in self.servers.values():
            if request_of(server.visit.choice)[1] == model:
                self._look_at(server, self.now + _LOOKS)

    def _cull(self, server: Server) -> None:
        self.outcome.culled += 1
        left = server.remaining(self.now)
        if server.computes(self.now):
            self.outcome.runs_lost += 1
        if left:
            self.outcome.interrupted += 1
            again = replace(server.visit, at=server.next_use(self.now), stretches=left)
            self._at(again.at, "comes", (again, left))
        self._end(server)
        self._serve()

    # The sums

    def _settle(self, server: Server) -> None:
        """Count what it held and used since the present visit began."""
        held = sum(mib for mib, _ in server.placement.footprint().values())
        self.outcome.held += held * (self.now - server.since)
        wanted = self._wanted(server)
        working = max(0.0, min(self.now, server.done) - server.since)
        self.outcome.used += min(held, wanted) * server.visit.used * working
        server.since = self.now

    def _working(self, server: Server, sign: int) -> None:
        """Its working memory on its cards, and how long a card has been asked for too much."""
        for card in server.placement.footprint():
            before = self.working.get(card, (0.0, self.now))
            if before[0] > self.memory[self._model(server)]:
                self.outcome.crowded += self.now - before[1]
            mib = sign * self._wanted(server) * server.visit.used
            self.working[card] = (before[0] + mib, self.now)

    def _model(self, server: Server) -> str:
        return request_of(server.visit.choice)[1]

    def _wanted(self, server: Server) -> float:
        """MiB that the user asked for, whatever the strategy made of it."""
        request, model = request_of(server.visit.choice)
        demand = request.containers[0].demand
        memory = self.memory[model]
        return memory if demand.whole else demand.mib or memory * demand.percent / 100


def _time(minutes: float) -> datetime:
    return _EPOCH + timedelta(minutes=minutes)


def _minutes(time: datetime) -> float:
    return (time - _EPOCH).total_seconds() / 60
