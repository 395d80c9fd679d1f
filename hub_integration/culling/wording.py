"""What the culler says to people: plain sentences with real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpushare.units import human_mib
from hub_integration.culling.judging import Judged, gpu_idle_for, idle_for
from hub_integration.culling.observed import Held
from hub_integration.culling.policy import Action, Cause


def sentence(judged: Judged, now: datetime) -> str:
    """When the server ends and why, or that it stays."""
    verdict, standing = judged.verdict, judged.standing
    if verdict.ends is None:
        return "It stays as long as you like."
    why = reason(judged, now)
    if verdict.action is Action.CULL:
        return f"Ended: {why}."
    when = f"{verdict.ends:%H:%M} UTC"
    if verdict.ends - now > timedelta(hours=20):
        when = f"{verdict.ends:%Y-%m-%d %H:%M} UTC"
    if verdict.cause is Cause.MAX_AGE:
        return f"Ends at {when}: {why}."
    if standing.held_until is not None and standing.held_until > now:
        return f"Kept until at least {standing.held_until:%H:%M} UTC, as you asked."
    return f"Ends at {when} unless it is used: {why}."


def reason(judged: Judged, now: datetime) -> str:
    """Why, as part of a sentence."""
    standing, policy = judged.standing, judged.rules.policy
    idle = span(idle_for(judged, now))
    gpu = gpu_idle_for(judged, now)
    both = idle if gpu is None or not judged.held else span(min(gpu, idle_for(judged, now)))
    match judged.verdict.cause:
        case Cause.MAX_AGE:
            age = span(policy.max_age or timedelta())
            return f"no server of this kind runs longer than {age}"
        case Cause.GPU_IDLE_WHILE_OTHERS_WAIT:
            unused = span(gpu) if gpu is not None else "a while"
            return f"its GPU has been unused for {unused}, and {waiting(standing.waiting)}"
        case Cause.IDLE_WHILE_OTHERS_WAIT:
            return f"unused for {both}, and {waiting(standing.waiting)}"
        case _:
            return f"unused for {both}"


def waiting(count: int) -> str:
    others = "somebody waits" if count == 1 else f"{count} others wait"
    return f"{others} for such a slice"


def span(time: timedelta) -> str:
    """'45 s', '25 min', '3 h 20 min', '2 days'."""
    seconds = max(0, int(time.total_seconds()))
    if seconds < 90:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days"


def slices(held: Sequence[Held]) -> str:
    """'7 GiB on a T4', '2 × 5 GiB on A10'."""
    if not held:
        return "no slice"
    size = human_mib(held[0].mib)
    if len(held) == 1:
        return f"{size} on {held[0].model}"
    return f"{len(held)} × {size} on {held[0].model}"
