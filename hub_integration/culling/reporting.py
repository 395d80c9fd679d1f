"""The answers of the culler's API, from what the culler knows. Plain dictionaries for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from gpushare.waiting import rfc3339
from hub_integration.culling import wording
from hub_integration.culling.holds import Hold, Limits, room_for
from hub_integration.culling.judging import Judged, gpu_idle_for, idle_for
from hub_integration.culling.memory import Reclaim
from hub_integration.culling.observed import Held
from hub_integration.culling.policy import Action
from hub_integration.culling.rules import policy_object


def verdict_object(judged: Judged, now: datetime, limits: Limits, title: str) -> dict[str, Any]:
    """One server, for its user and for admins."""
    verdict, pod, gpu = judged.verdict, judged.pod, gpu_idle_for(judged, now)
    hold = room_for(judged.clock, judged.rules.hold, now.timestamp(), limits)
    ending = judged.standing.warned_at is not None
    return {
        "user": judged.server.user,
        "server": judged.server.name,
        "title": title,
        "choice": pod.choice if pod else "",
        "namespace": pod.namespace if pod else "",
        "pod": pod.name if pod else "",
        "uid": pod.uid if pod else "",
        "slices": [slice_object(held) for held in judged.held],
        "used_mib": judged.used_mib if judged.uses else None,
        "started": _at(judged.server.started),
        "idle_seconds": _seconds(idle_for(judged, now)),
        "gpu_idle_seconds": None if gpu is None else _seconds(gpu),
        "gpu_known": judged.standing.gpu_known,
        "action": verdict.action.value,
        "ends_at": _at(verdict.ends),
        "seconds_left": None if verdict.ends is None else _seconds(verdict.ends - now),
        "reason": verdict.cause.value if verdict.cause else None,
        "sentence": wording.sentence(judged, now),
        "warned": verdict.action is not Action.KEEP and ending,
        "warned_at": _at(judged.standing.warned_at),
        "waiting": judged.standing.waiting,
        "held_until": _at(judged.standing.held_until),
        "hold": hold_object(hold),
        "policy": policy_object(judged.rules.policy),
    }


def hold_object(hold: Hold) -> dict[str, Any]:
    return {
        "minutes": hold.minutes,
        "allowed": not hold.why_not,
        "why_not": hold.why_not,
        "until_at_most": None if hold.at_most is None else rfc3339(round(hold.at_most)),
    }


def slice_object(held: Held) -> dict[str, Any]:
    return {
        "node": held.node,
        "card": held.card,
        "model": held.model,
        "mib": held.mib,
        "percent": held.percent,
    }


def reclaim_object(reclaim: Reclaim, now: float, most: float) -> dict[str, Any]:
    """One end that was decided, and what became of it."""
    freed = reclaim.freed_at
    return {
        "id": reclaim.id,
        "kind": reclaim.kind,
        "user": reclaim.user,
        "server": reclaim.server,
        "namespace": reclaim.namespace,
        "pod": reclaim.pod,
        "uid": reclaim.uid,
        "node": reclaim.node,
        "models": list(reclaim.models),
        "gib": round(reclaim.gib, 3),
        "reason": reclaim.reason,
        "sentence": reclaim.sentence,
        "decided_at": rfc3339(reclaim.decided_at),
        "stopped_at": None if reclaim.stopped_at is None else rfc3339(reclaim.stopped_at),
        "freed_at": None if freed is None else rfc3339(freed),
        "freed_after_seconds": None if freed is None else round(freed - reclaim.decided_at, 3),
        "confirmed": reclaim.confirmed,
        "state": reclaim.state.value,
        "alarm": {
            "why": reclaim.alarm,
            "sentence": reclaim.alarm_text,
            "since": rfc3339(reclaim.alarm_since or now),
        }
        if reclaim.alarm
        else None,
        "given_back_gib_hours": round(reclaim.given_back(now, most), 4),
    }


def totals_object(reclaims: Iterable[Reclaim], now: float, most: float) -> dict[str, Any]:
    """What came back today, in all, and by reason."""
    midnight = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    today, everything = _sum(), _sum()
    by_reason: dict[str, dict[str, float]] = {}
    for reclaim in reclaims:
        if reclaim.freed_at is None:
            continue
        hours = reclaim.given_back(now, most)
        targets = [everything, by_reason.setdefault(reclaim.reason, _sum())]
        if reclaim.decided_at >= midnight.timestamp():
            targets.append(today)
        for target in targets:
            target["count"] += 1
            target["gib_hours"] = round(target["gib_hours"] + hours, 4)
    return {"today": today, "all": everything, "by_reason": by_reason}


def _sum() -> dict[str, float]:
    return {"count": 0, "gib_hours": 0.0}


def _at(time: datetime | None) -> str | None:
    return None if time is None else rfc3339(round(time.timestamp(), 3))


def _seconds(time: timedelta) -> float:
    return round(max(0.0, time.total_seconds()), 1)
