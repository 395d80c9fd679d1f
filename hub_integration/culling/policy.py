"""The culling policy: one pure decision about one server at one moment.

Guarantees, whatever the inputs are:

- nobody is ended before the guaranteed run time is over, nor while a hold lasts;
- nobody is ended without a warning that was up for the whole warning time;
- use of the GPU counts like use of the notebook: a silent training run is not idle;
- where the GPU's use is not known now, what was last known of it counts like any other use, and
  an idle GPU ends nobody;
- somebody waiting can only shorten a stay, and use can only lengthen it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """What one kind of slice allows.

    ``idle``: without use of notebook and GPU. ``pressed_idle``: the same while somebody waits for
    such a slice. ``gpu_idle``: how long the GPU may lie idle under a notebook in use while somebody
    waits. ``warn``: how long the warning is up before the end. ``guaranteed``: run time that
    nothing shortens. ``max_age``: the longest stay, used or not. None means for ever.
    """

    idle: timedelta | None
    pressed_idle: timedelta | None
    gpu_idle: timedelta | None
    warn: timedelta
    guaranteed: timedelta
    max_age: timedelta | None

    def __post_init__(self) -> None:
        times = (self.idle, self.pressed_idle, self.gpu_idle, self.max_age)
        if min(self.warn, self.guaranteed, *(t for t in times if t is not None)) < timedelta(0):
            raise ValueError("an idle policy has no negative times")
        if self.idle is not None and (self.pressed_idle is None or self.pressed_idle > self.idle):
            raise ValueError("pressed_idle is longer than idle: waiting would lengthen the stay")


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known about one server.

    ``notebook_used`` is the Hub's last_activity, ``gpu_used`` the last time a kernel of the slice
    is known to have run, None where none is. ``gpu_known``: the GPU is being measured now.
    ``held_until``: the user asked for time. ``warned_at``: since when the warning is up.
    ``waiting``: how many pods wait that this slice would serve.
    """

    started: datetime
    notebook_used: datetime | None = None
    gpu_known: bool = False
    gpu_used: datetime | None = None
    held_until: datetime | None = None
    warned_at: datetime | None = None
    waiting: int = 0


class Cause(StrEnum):
    """Why a server ends. The values are part of the API and of the metrics."""

    IDLE = "idle"
    IDLE_WHILE_OTHERS_WAIT = "idle-while-others-wait"
    GPU_IDLE_WHILE_OTHERS_WAIT = "gpu-idle-while-others-wait"
    MAX_AGE = "max-age"


class Action(StrEnum):
    """What to do now."""

    KEEP = "keep"
    WARN = "warn"
    CULL = "cull"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ends`` is when the server ends if nothing changes, None if never; ``cause`` is then why."""

    action: Action
    ends: datetime | None = None
    cause: Cause | None = None


def decide(standing: Standing, policy: IdlePolicy, now: datetime) -> Verdict:
    """Whether the server stays, is warned, or ends now."""
    end = _end(standing, policy)
    if end is None:
        return Verdict(Action.KEEP)
    due, cause = end
    if now < due - policy.warn:
        return Verdict(Action.KEEP, due, cause)
    warned = standing.warned_at if standing.warned_at is not None else now
    ends = max(due, warned + policy.warn)
    if standing.warned_at is not None and now >= ends:
        return Verdict(Action.CULL, ends, cause)
    return Verdict(Action.WARN, ends, cause)


def _end(standing: Standing, policy: IdlePolicy) -> tuple[datetime, Cause] | None:
    """The earliest end by any rule, and which rule it is."""
    ends = [_protected(end, standing, policy) for end in _idle_ends(standing, policy)]
    if policy.max_age is not None:
        oldest = standing.started + max(policy.max_age, policy.guaranteed)
        ends.append((oldest, Cause.MAX_AGE))
    return min(ends, key=lambda end: end[0], default=None)


def _idle_ends(standing: Standing, policy: IdlePolicy) -> list[tuple[datetime, Cause]]:
    times = (standing.started, standing.notebook_used, standing.gpu_used)
    used = max(time for time in times if time is not None)
    if not standing.waiting:
        return [] if policy.idle is None else [(used + policy.idle, Cause.IDLE)]
    ends = []
    if policy.pressed_idle is not None:
        ends.append((used + policy.pressed_idle, Cause.IDLE_WHILE_OTHERS_WAIT))
    if standing.gpu_known and policy.gpu_idle is not None:
        since = max(standing.started, standing.gpu_used or standing.started)
        ends.append((since + policy.gpu_idle, Cause.GPU_IDLE_WHILE_OTHERS_WAIT))
    return ends


def _protected(
    end: tuple[datetime, Cause], standing: Standing, policy: IdlePolicy
) -> tuple[datetime, Cause]:
    """The end put off until the guaranteed time and any hold are over."""
    when, cause = end
    when = max(when, standing.started + policy.guaranteed)
    if standing.held_until is not None:
        when = max(when, standing.held_until)
    return when, cause
