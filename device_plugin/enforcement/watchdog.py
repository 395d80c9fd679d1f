"""What is done about a pod that has more of a card than it may. Pure: a state and a step.

    within ── over its limit ──► told, clock runs ── grace used up ──► its biggest GPU process is
       ▲                               │                               asked to end, then ended
       └──── within again, clock runs back ◄───────────────────────────────────┤
                                                            too often ──► the pod is evicted

One ``Case`` is one pod on one card. The clock is a budget, not a timer: who keeps stepping over the
line and back uses it up as well. While nothing is known of a card (NVML fails), no step is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from device_plugin.enforcement.accounts import Held, biggest
from device_plugin.enforcement.rules import Reach, Rules

# A step longer than this was not watched in full (the node slept, NVML hung): the rest of it is
# nobody's fault.
_LONGEST_STEP = 2.0
_ALL = 1.0 - 1e-9  # ten tenths are not quite one


class Fault(StrEnum):
    """Why a pod is over its limit."""

    OVER = "over"  # it took more than its slice
    RECALLED = "recalled"  # it has not given back yet what it had borrowed


@dataclass(frozen=True, slots=True)
class Observation:
    """One pod on one card now. Memory in MiB.

    ``granted``: its slice, and what it may borrow at this moment. ``hurting``: what it has too much
    was promised to others, and they could not have it now. ``inits``: the pids of the first
    processes of its containers.
    """

    held: Sequence[Held]
    slice: int
    granted: int
    recalled: bool = False
    hurting: bool = False
    inits: Collection[int] = ()

    @property
    def used(self) -> int:
        return sum(h.known_mib for h in self.held)


@dataclass(frozen=True, slots=True)
class Told:
    """The pod went over: tell its user. ``deadline``: seconds until something is ended."""

    fault: Fault
    used: int
    limit: int
    slice: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Cleared:
    """The pod is within its limit again."""

    used: int
    seconds: float


@dataclass(frozen=True, slots=True)
class End:
    """End this process: ask it (SIGTERM), or ``hard`` (SIGKILL)."""

    held: Held
    hard: bool
    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict the pod, after ``ended`` processes of it did not help."""

    ended: int
    used: int
    limit: int


Action = Told | Cleared | End | Evict


@dataclass(frozen=True, slots=True)
class Ending:
    """A process that was asked to end at ``since``."""

    pid: int
    start: int
    since: float
    hard: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """What is remembered. ``spent``: the part of the grace that is used up, 0 to 1."""

    stepped: float
    spent: float = 0.0
    over_since: float | None = None
    fault: Fault = Fault.OVER
    ending: Ending | None = None
    strikes: tuple[float, ...] = ()
    evicting_since: float | None = None

    @property
    def idle(self) -> bool:
        """Nothing in it differs from a case that never was."""
        return not (self.spent or self.strikes or self.ending) and self.over_since is None


def step(
    case: Case | None, seen: Observation, rules: Rules, now: float
) -> tuple[Case, list[Action]]:
    """The case after ``seen`` at ``now`` (seconds of a monotonic clock), and what to do."""
    case = case or Case(now)
    passed = min(max(0.0, now - case.stepped), _LONGEST_STEP)
    case = replace(case, stepped=now, strikes=_recent(case.strikes, rules, now))
    limit = seen.granted + rules.allowance(len(seen.held))
    if seen.used <= limit:
        return _within(case, seen, rules, passed, now)
    return _over(case, seen, limit, rules, passed, now)


def _within(
    case: Case, seen: Observation, rules: Rules, passed: float, now: float
) -> tuple[Case, list[Action]]:
    actions: list[Action] = []
    spent = max(0.0, case.spent - passed / rules.recovery)
    if case.over_since is not None:
        actions.append(Cleared(seen.used, now - case.over_since))
        # Who lost a process starts with a clean clock. What counts on are the strikes.
        spent = 0.0 if case.ending else case.spent
    return replace(case, spent=spent, over_since=None, ending=None, evicting_since=None), actions


def _over(
    case: Case, seen: Observation, limit: int, rules: Rules, passed: float, now: float
) -> tuple[Case, list[Action]]:
    fault = Fault.RECALLED if seen.recalled else Fault.OVER
    grace = rules.burst_grace if seen.recalled else rules.grace
    if seen.hurting and not seen.recalled:
        grace = rules.urgent_grace
    actions: list[Action] = []
    # The step that led over the line counts too, or every second look could be over for ever.
    case = replace(case, spent=min(1.0, case.spent + passed / grace))
    if case.over_since is None or fault is not case.fault:
        deadline = (1.0 - case.spent) * grace
        actions.append(Told(fault, seen.used, limit, seen.slice, deadline))
        started = now if case.over_since is None else case.over_since
        case = replace(case, over_since=started, fault=fault)
    if case.spent < _ALL or rules.reach is Reach.REPORT:
        return case, actions
    acted, more = _act(case, seen, limit, rules, now)
    return acted, [*actions, *more]


def _act(
    case: Case, seen: Observation, limit: int, rules: Rules, now: float
) -> tuple[Case, list[Action]]:
    ending = case.ending
    if ending is not None:
        asked = _find(seen.held, ending)
        if asked is not None and (ending.hard or now - ending.since < rules.term_grace):
            return case, []  # it is on its way out
        if asked is not None:
            case = replace(case, ending=replace(ending, hard=True))
            return case, [End(asked, True, seen.used, limit)]
    actions: list[Action] = []
    hard = False
    if rules.reach is Reach.EVICT and len(case.strikes) >= rules.evict_after:
        if case.evicting_since is None:
            case = replace(case, evicting_since=now)
            return case, [Evict(len(case.strikes), seen.used, limit)]
        if now - case.evicting_since < rules.term_grace:
            return case, []
        # It was to be gone by now, and is not: a budget forbids it, or the API server is away.
        case = replace(case, evicting_since=now)
        actions.append(Evict(len(case.strikes), seen.used, limit))
        hard = True
    victim = biggest(seen.held, seen.inits)
    if victim is None:
        return case, actions
    process = victim.process
    case = replace(
        case,
        ending=Ending(process.pid, process.start, now, hard),
        strikes=(*case.strikes, now),
    )
    return case, [*actions, End(victim, hard, seen.used, limit)]


def _find(held: Sequence[Held], ending: Ending) -> Held | None:
    for one in held:
        if (one.process.pid, one.process.start) == (ending.pid, ending.start):
            return one
    return None


def _recent(strikes: tuple[float, ...], rules: Rules, now: float) -> tuple[float, ...]:
    return tuple(at for at in strikes if now - at < rules.strike_window)
