"""The judgement of all servers at one moment: what is known of each, and what that means.

Pure: observations and clocks go in, verdicts and the clocks as they are afterwards come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from gpushare.usage import SliceUse
from hub_integration.culling.memory import Clock
from hub_integration.culling.observed import Held, Pod, Server, View
from hub_integration.culling.policy import Action, Standing, Verdict, decide
from hub_integration.culling.pressure import pressed
from hub_integration.culling.rules import ServerRules

# Usage older than this says nothing about now, in seconds.
FRESH = 60.0
# Longer than this unseen, a GPU may have been used and idle again without anybody knowing.
_GAP = 60.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One server with all that led to its verdict. ``pod`` is None where it is not known."""

    server: Server
    pod: Pod | None
    held: tuple[Held, ...]
    uses: tuple[SliceUse, ...]
    rules: ServerRules
    clock: Clock
    standing: Standing
    verdict: Verdict

    @property
    def used_mib(self) -> int:
        return sum(use.used_mib for use in self.uses)


def judge(
    servers: Iterable[Server],
    pods: Sequence[Pod],
    view: View,
    clock_of: Callable[[Server], Clock],
    rules_of: Callable[[Server, Pod | None], ServerRules],
    now: datetime,
    *,
    patience: float = 0.0,
    leaving: frozenset[str] = frozenset(),
) -> list[Judged]:
    """All verdicts at ``now``.

    ``patience``: seconds that a pod waits before it presses anybody; a pod that is just being
    scheduled waits for nobody. ``leaving``: uids of pods that are being ended already.
    """
    slices, uses = view.held(), view.uses(FRESH)
    by_server = {(pod.user, pod.server): pod for pod in pods if pod.user is not None}
    known = []
    for server in servers:
        pod = by_server.get(server.key) or _pod_of_slices(server, slices)
        held = tuple(slices.get(pod.uid, ())) if pod else ()
        mine = tuple(uses.get(pod.uid, ())) if pod else ()
        clock = _measured(_bridged(clock_of(server), server), mine, now)
        rules = rules_of(server, pod)
        known.append((server, pod, held, mine, rules, clock, _standing(server, clock, mine)))
    ends = _pressed_ends(
        [(pod.uid, s, rules) for _, pod, held, _, rules, _, s in known if pod and held], now
    )
    waiting = [w for w in view.waiting if now.timestamp() - w.since >= patience]
    counts = pressed(view.cards, waiting, ends, leaving)
    return [
        _judged(server, pod, held, mine, rules, clock, standing, counts, now)
        for server, pod, held, mine, rules, clock, standing in known
    ]


def again(judged: Judged, server: Server, now: datetime) -> Judged:
    """The same with what the Hub says of the server a moment later."""
    clock = _bridged(judged.clock, server)
    standing = replace(judged.standing, notebook_used=_notebook_used(server, clock))
    return replace(
        judged,
        server=server,
        clock=clock,
        standing=standing,
        verdict=decide(standing, judged.rules.policy, now),
    )


def _judged(
    server: Server,
    pod: Pod | None,
    held: tuple[Held, ...],
    uses: tuple[SliceUse, ...],
    rules: ServerRules,
    clock: Clock,
    standing: Standing,
    counts: Mapping[str, int],
    now: datetime,
) -> Judged:
    standing = replace(standing, waiting=counts.get(pod.uid, 0) if pod else 0)
    verdict = decide(standing, rules.policy, now)
    warned = standing.warned_at
    if verdict.action is Action.KEEP:
        warned = None
    elif warned is None:
        warned = now
    clock = replace(clock, warned_at=None if warned is None else warned.timestamp())
    standing = replace(standing, warned_at=warned)
    return Judged(server, pod, held, uses, rules, clock, standing, verdict)


def _pod_of_slices(server: Server, slices: Mapping[str, list[Held]]) -> Pod | None:
    """The server's pod where Kubernetes cannot be asked: the only one with a slice of this user."""
    found = {held.uid: held for all_ in slices.values() for held in all_ if held.user}
    mine = [held for held in found.values() if held.user == server.user]
    if len(mine) != 1 or server.name:
        return None
    (held,) = mine
    return Pod(held.namespace, held.pod, held.uid, user=server.user, node=held.node)


def _bridged(clock: Clock, server: Server) -> Clock:
    """Activity that the bridge wrote itself is nobody's; any later one is real."""
    last = server.last_activity
    if clock.posted is not None and last is not None and last.timestamp() > clock.posted + 0.001:
        return replace(clock, posted=None, used_before_post=None)
    return clock


def _measured(clock: Clock, uses: Sequence[SliceUse], now: datetime) -> Clock:
    """With what the node measured. A gap in the measuring counts as use: it may have been."""
    if not uses:
        return clock
    kernels = [use.last_kernel for use in uses if use.last_kernel is not None]
    watched = max(use.watched_since for use in uses)
    used = [clock.gpu_used] if clock.gpu_used is not None else []
    used += kernels
    seen_before = clock.gpu_seen if clock.gpu_seen is not None else clock.started
    if watched - seen_before > _GAP:
        used.append(watched)
    return replace(
        clock, gpu_used=max(used) if used else None, gpu_seen=max(now.timestamp(), seen_before)
    )


def _standing(server: Server, clock: Clock, uses: Sequence[SliceUse]) -> Standing:
    return Standing(
        started=server.started,
        notebook_used=_notebook_used(server, clock),
        gpu_known=bool(uses),
        gpu_used=_time(clock.gpu_used),
        held_until=_time(clock.held_until),
        warned_at=_time(clock.warned_at),
    )


def _notebook_used(server: Server, clock: Clock) -> datetime | None:
    if clock.posted is not None:
        return _time(clock.used_before_post)
    return server.last_activity


def _pressed_ends(
    known: Iterable[tuple[str, Standing, ServerRules]], now: datetime
) -> dict[str, datetime]:
    """When each would end if somebody waited for it; those that never would are left out."""
    ends = {}
    for uid, standing, rules in known:
        verdict = decide(replace(standing, waiting=1), rules.policy, now)
        if verdict.ends is not None:
            ends[uid] = verdict.ends
    return ends


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def idle_for(judged: Judged, now: datetime) -> timedelta:
    """Since when nobody used the notebook."""
    return now - max(judged.server.started, judged.standing.notebook_used or judged.server.started)


def gpu_idle_for(judged: Judged, now: datetime) -> timedelta | None:
    """Since when no kernel ran; None where that is not known."""
    if not judged.standing.gpu_known:
        return None
    return now - max(judged.server.started, judged.standing.gpu_used or judged.server.started)
