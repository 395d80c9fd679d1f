"""The culler: looks at all servers again and again, and carries out what the policy says.

One look: servers from the Hub, pods from Kubernetes, cards and their use from the extender →
verdicts → warnings, ends, activity for the bridge. Beside it, every slice that was ended is
followed until its node says that it is free. All that must survive a restart is in ``Memory``:
a Hub that is restarted in the middle of an end finds the slice still followed, and is asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from hub_integration.culling import wording
from hub_integration.culling.following import follow, sight
from hub_integration.culling.holds import HoldRefused, Limits, take
from hub_integration.culling.hub_api import HubApi, HubFailed
from hub_integration.culling.judging import Judged, again, judge
from hub_integration.culling.kube import Kube, KubeFailed
from hub_integration.culling.memory import Memory, Reclaim, State
from hub_integration.culling.metrics import Metrics
from hub_integration.culling.observed import Pod, Server, View
from hub_integration.culling.policy import Action, decide
from hub_integration.culling.rules import ServerRules
from hub_integration.culling.state_api import StateApi, StateFailed
from hub_integration.culling.stopping import Stopper


@dataclass(frozen=True, slots=True)
class Options:
    """How the culler works; times in seconds. ``bridge``: write activity for servers that stay."""

    interval: float = 15.0
    follow_interval: float = 1.0
    alarm_after: float = 120.0
    patience: float = 10.0
    ask_again: float = 30.0
    dry_run: bool = False
    bridge: bool = False
    bridge_every: float = 60.0
    given_back_most: float = 8 * 3600.0
    keep: float = 400 * 86400.0
    limits: Limits = field(default_factory=lambda: Limits(3600.0, 4 * 3600.0))


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment. None: could not be asked."""

    at: datetime
    servers: Mapping[tuple[str, str], Server]
    pods: Sequence[Pod] | None
    view: View | None


class Watcher(Protocol):
    """Something that is shown every look: kernels, other workloads, accounting."""

    async def __call__(self, look: Look, judged: Sequence[Judged]) -> None: ...


RulesOf = Callable[[Server, Pod | None], ServerRules]


class Culler:
    """All of it. ``run`` until cancelled."""

    def __init__(
        self,
        hub: HubApi,
        state: StateApi | None,
        kube: Kube | None,
        memory: Memory,
        stopper: Stopper,
        rules_of: RulesOf,
        options: Options,
        log: logging.Logger,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.hub = hub
        self.state = state
        self.kube = kube
        self.memory = memory
        self.stopper = stopper
        self.rules_of = rules_of
        self.options = options
        self.log = log
        self.now = now
        self.metrics = Metrics()
        self.watchers: list[Watcher] = []
        self.judged: list[Judged] = []
        self.at: datetime | None = None
        self.problem = "it has not looked yet"
        self._said: dict[str, str] = {}
        self._dry: set[tuple[str, str, float]] = set()
        self._stir = asyncio.Event()
        self._look_now = asyncio.Event()
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._every(self.options.interval, self.look, self._look_now))
            tasks.create_task(self._follow())

    def hurry(self) -> None:
        """Look now, not at the end of the interval."""
        self._look_now.set()

    def follow_now(self) -> None:
        """There is something new on its way back."""
        self._stir.set()

    async def _every(
        self, seconds: float, work: Callable[[], Awaitable[None]], sooner: asyncio.Event
    ) -> None:
        while True:
            try:
                await work()
            except HubFailed as error:
                self.problem = str(error)
                self.metrics.passes.labels("failed").inc()
                self._say("hub", f"{error}; nobody is ended until the Hub answers")
            except Exception:
                self.problem = "a look failed, see the log"
                self.metrics.passes.labels("failed").inc()
                self.log.exception("A look failed; the next one follows in %g s", seconds)
            try:
                async with asyncio.timeout(seconds):
                    await sooner.wait()
            except TimeoutError:
                pass
            sooner.clear()

    # One look

    async def look(self) -> None:
        """See everything, judge everybody, do what has to be done. Raises HubFailed."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        seen = await self._see()
        now = seen.at
        open_ = {reclaim.uid: reclaim for reclaim in self.memory.open() if reclaim.uid}
        judged = judge(
            [s for s in seen.servers.values() if s.ready and not s.pending],
            seen.pods or (),
            seen.view or View(),
            lambda server: self.memory.clock(server.user, server.name, _epoch(server.started)),
            self.rules_of,
            now,
            patience=self.options.patience,
            leaving=frozenset(open_),
        )
        self._warn(judged)
        if self.options.bridge and not self.options.dry_run:
            judged = await self._keep_alive(judged, now)
        self.memory.keep(j.clock for j in judged)
        self.memory.forget_clocks(seen.servers)
        for server in seen.servers.values():
            self.memory.returned(server.user, server.name, _epoch(server.started))
        self.judged, self.at = judged, now
        await self._end([j for j in judged if j.verdict.action is Action.CULL], now)
        self._abandon(judged, now)
        for watcher in self.watchers:
            await self._show(watcher, seen, judged)
        self._count(now)

    async def _see(self) -> Look:
        began = self.now()
        servers, pods, view = await asyncio.gather(self.hub.servers(), self.pods(), self._view())
        self.metrics.pass_seconds.set((self.now() - began).total_seconds())
        return Look(self.now(), {server.key: server for server in servers}, pods, view)

    async def pods(self) -> list[Pod] | None:
        if self.kube is None:
            return None
        try:
            pods = await self.kube.pods()
        except KubeFailed as error:
            self._say("kube", f"{error}; policies come from the catalogue and the user's options")
            return None
        self._say("kube", "")
        return pods

    async def _view(self) -> View | None:
        if self.state is None:
            return None
        try:
            view = await self.state.look()
        except StateFailed as error:
            self._say("state", f"{error}; until it answers, the GPU's use is not known")
            return None
        self._say("state", "")
        return view

    def _warn(self, judged: Sequence[Judged]) -> None:
        for one in judged:
            before = self.memory.clock(one.server.user, one.server.name, one.clock.started)
            if one.clock.warned_at is not None and before.warned_at is None:
                cause = one.verdict.cause.value if one.verdict.cause else ""
                self.metrics.warnings.labels(cause).inc()
                text = wording.sentence(one, self.at or one.server.started)
                self.log.info("%s is warned. %s", one.server, text)

    async def _keep_alive(self, judged: Sequence[Judged], now: datetime) -> list[Judged]:
        """Write activity for all that stay, so that another culler leaves them alone."""
        kept = []
        for one in judged:
            last = one.server.last_activity or one.server.started
            stays = one.verdict.action is not Action.CULL
            if stays and (now - last).total_seconds() >= self.options.bridge_every:
                one = await self._post(one, now)
            kept.append(one)
        return kept

    async def _post(self, one: Judged, now: datetime) -> Judged:
        at, clock = now.timestamp(), one.clock
        real = clock.used_before_post
        if clock.posted is None and one.server.last_activity is not None:
            real = _epoch(one.server.last_activity)
        try:
            await self.hub.post_activity(one.server.user, one.server.name, at)
        except HubFailed as error:
            self._say("bridge", f"{error}; does the culler's role have users:activity?")
            return one
        self._say("bridge", "")
        self.metrics.kept_alive.inc()
        return replace(one, clock=replace(clock, posted=at, used_before_post=real))

    # Ends

    async def _end(self, judged: Sequence[Judged], now: datetime) -> None:
        """End these servers, or only note them in a dry run."""
        if self.options.dry_run:
            for one in judged:
                self._note_dry_run(one, now)
            return
        known = {(r.user, r.server, r.started): r for r in self.memory.open()}
        asked: dict[tuple[str, str], Judged] = {}
        reclaims: list[Reclaim] = []
        for one in judged:
            key = (*one.server.key, _epoch(one.server.started))
            earlier = known.get(key)
            if earlier and now.timestamp() - (earlier.asked_at or 0) < self.options.ask_again:
                continue
            reclaim = earlier or self.memory.add(self._reclaim(one, now))
            reclaim = replace(reclaim, asked_at=now.timestamp())
            self.memory.change(reclaim)
            asked[one.server.key] = one
            reclaims.append(reclaim)
            if not earlier:
                self.metrics.culls.labels("server", reclaim.reason).inc()
            self.log.info("Ending server %s (%s)", one.server, reclaim.sentence)
        if not asked:
            return
        self._stir.set()
        spared: set[tuple[str, str]] = set()

        def confirm(server: Server) -> bool:
            one = asked[server.key]
            same = abs((server.started - one.server.started).total_seconds()) < 1
            still = same and again(one, server, self.now()).verdict.action is Action.CULL
            if not still:
                spared.add(server.key)
            return still

        try:
            await self.stopper.stop([one.server for one in asked.values()], confirm)
        except HubFailed as error:
            self._say("stop", f"{error}; it is asked again in {self.options.ask_again:g} s")
        else:
            self._say("stop", "")
        for reclaim in reclaims:
            if (reclaim.user, reclaim.server) in spared:
                self.log.info("%s stays after all: it was used at the last moment", reclaim.who)
                self.memory.change(replace(reclaim, state=State.ABANDONED))

    def _note_dry_run(self, one: Judged, now: datetime) -> None:
        warned = one.clock.warned_at or 0.0
        key = (*one.server.key, warned)
        if key in self._dry:
            return
        self._dry.add(key)
        reclaim = replace(self._reclaim(one, now), state=State.DRY_RUN)
        self.memory.add(reclaim)
        self.metrics.dry_runs.labels("server", reclaim.reason).inc()
        self.log.info("Dry run: %s would be ended now (%s)", one.server, reclaim.sentence)

    def _reclaim(self, one: Judged, now: datetime) -> Reclaim:
        pod = one.pod
        return Reclaim(
            kind="server",
            user=one.server.user,
            server=one.server.name,
            started=_epoch(one.server.started),
            namespace=pod.namespace if pod else "",
            pod=pod.name if pod else "",
            uid=pod.uid if pod else "",
            node=one.held[0].node if one.held else (pod.node if pod else ""),
            models=tuple(dict.fromkeys(held.model for held in one.held)),
            mib=sum(held.mib for held in one.held),
            reason=one.verdict.cause.value if one.verdict.cause else "",
            sentence=wording.sentence(one, now),
            state=State.STOPPING,
            decided_at=now.timestamp(),
        )

    def _abandon(self, judged: Sequence[Judged], now: datetime) -> None:
        """Ends that did not happen, of servers that may stay now: used again, or held."""
        staying = {
            (*one.server.key, _epoch(one.server.started))
            for one in judged
            if one.verdict.action is not Action.CULL
        }
        for reclaim in self.memory.open():
            waited = now.timestamp() - (reclaim.asked_at or reclaim.decided_at)
            if reclaim.stopped_at is not None or waited < self.options.ask_again:
                continue
            if (reclaim.user, reclaim.server, reclaim.started) in staying:
                self.log.info("%s stays after all: the Hub did not end it", reclaim.who)
                self.memory.change(replace(reclaim, state=State.ABANDONED, alarm=""))

    # Following

    async def _follow(self) -> None:
        """Follow what is on its way back; sleeps while there is nothing."""
        while True:
            if not self.memory.open():
                await self._stir.wait()
            self._stir.clear()
            try:
                await self.follow_once()
            except Exception:
                self.log.exception("Slices on their way back cannot be followed")
            await asyncio.sleep(self.options.follow_interval)

    async def follow_once(self) -> None:
        """See how far each reclaimed slice is."""
        pods, view = await asyncio.gather(self.pods(), self._view())
        try:
            servers = {server.key: server for server in await self.hub.servers()}
        except HubFailed:
            servers = None
        now = self.now().timestamp()
        for reclaim in self.memory.open():
            if reclaim.kind == "server":
                seen = sight(reclaim, servers, pods, view, now)
                missing = pods is None and self.kube is not None
                seen = replace(seen, pods_missing=missing and bool(reclaim.uid))
            else:
                seen = replace(sight(reclaim, {}, None, view, now), running=False)
            after = follow(reclaim, seen, now, self.options.alarm_after)
            if after != reclaim:
                self.memory.change(after)
                self._tell(reclaim, after)
        self.metrics.show_alarms(self.memory.open())

    def _tell(self, before: Reclaim, after: Reclaim) -> None:
        if after.state is State.FREED and after.freed_at is not None:
            seconds = after.freed_at - after.decided_at
            self.metrics.reclaim.observe(seconds)
            how = "the node confirms it" if after.confirmed else "no node has measured it"
            self.log.info(
                "%s: %.1f GiB are free %.1f s after the decision; %s",
                after.who, after.gib, seconds, how,
            )  # fmt: skip
        elif after.alarm and (after.alarm, after.alarm_text) != (before.alarm, before.alarm_text):
            self.log.error(
                "%s: %.1f GiB on %s do not come back (%s): %s",
                after.who, after.gib, after.node or "?", after.alarm, after.alarm_text,
            )  # fmt: skip

    # What users ask for

    async def hold(self, user: str, server: str, minutes: float | None) -> Judged:
        """Put off the end of a running server; with None for the usual time. Raises HoldRefused."""
        found = self._judged(user, server)
        if found is None:  # it may have come since the last look
            try:
                await self.look()
            except HubFailed as error:
                raise HoldRefused(f"The Hub does not answer: {error}", 503) from None
            found = self._judged(user, server)
        if found is None:
            named = f"server {server!r}" if server else "server"
            raise HoldRefused(f"{user} has no running {named} that can be kept.", 404)
        now = self.now()
        clock = self.memory.clock(user, server, _epoch(found.server.started))
        usual = found.rules.hold
        wanted = usual.total_seconds() / self.options.limits.minute if minutes is None else minutes
        clock = take(clock, wanted, usual, now.timestamp(), self.options.limits)
        until = None if clock.held_until is None else datetime.fromtimestamp(clock.held_until, UTC)
        standing = replace(found.standing, held_until=until)
        verdict = decide(standing, found.rules.policy, now)
        warned = None if verdict.action is Action.KEEP else standing.warned_at or now
        clock = replace(clock, warned_at=None if warned is None else warned.timestamp())
        standing = replace(standing, warned_at=warned)
        held = replace(found, clock=clock, standing=standing, verdict=verdict)
        self.memory.keep([clock])
        self.judged = [held if j is found else j for j in self.judged]
        if wanted:
            self.metrics.holds.inc()
        self.log.info("%s is kept: %s", held.server, wording.sentence(held, now))
        return held

    def _judged(self, user: str, server: str) -> Judged | None:
        return next((j for j in self.judged if j.server.key == (user, server)), None)

    # Small things

    async def _show(self, watcher: Watcher, look: Look, judged: Sequence[Judged]) -> None:
        try:
            await watcher(look, judged)
        except Exception as error:
            name = type(watcher).__name__
            self._say(name, f"{name} failed: {error or type(error).__name__}")
        else:
            self._say(type(watcher).__name__, "")

    def _count(self, now: datetime) -> None:
        seconds = now.timestamp()
        given: dict[str, float] = {}
        for reclaim in self.memory.since(seconds - self.options.keep):
            hours = reclaim.given_back(seconds, self.options.given_back_most)
            given[reclaim.reason] = given.get(reclaim.reason, 0.0) + hours
        for why, hours in given.items():
            self.metrics.given_back.labels(why).set(hours)
        self.metrics.last_pass.set(seconds)
        self.metrics.passes.labels("ok").inc()
        self.problem = ""
        self._say("hub", "")

    def _say(self, what: str, text: str) -> None:
        """Say it once, and again only when it is something else; '' says that it is over."""
        before = self._said.get(what, "")
        if text == before:
            return
        self._said[what] = text
        if text:
            self.log.warning("%s", text)
        elif before:
            self.log.info("It is over: %s", before)


def _epoch(time: datetime) -> float:
    return time.timestamp()
