"""What the state API and the culler say, as far as the dashboard shows it.

Fields that are missing or of another kind count as not known: a newer or older extender must not
take the whole screen away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpushare.waiting import WaitingPod, seconds_of

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """What one pod holds of one card. None: not measured."""

    namespace: str
    pod: str
    uid: str
    user: str
    mib: int
    percent: int
    leaving: bool = False
    reserved: bool = False
    used_mib: int | None = None
    sm_percent: int | None = None
    last_busy: float | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """One card and who is on it."""

    uuid: str
    index: int
    model: str
    memory_mib: int
    health: str
    free_mib: int
    taken_mib: int = 0
    used_mib: int | None = None
    slices: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One node. ``age`` is how many seconds old its measurements are; None without any."""

    name: str
    problem: str = ""
    takes_pods: bool = True
    cards: tuple[Card, ...] = ()
    age: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the culler thinks of one server."""

    user: str
    server: str
    title: str
    namespace: str
    pod: str
    uid: str
    models: tuple[str, ...]
    mib: int
    idle_seconds: float | None
    gpu_idle_seconds: float | None
    action: str
    ends_at: float | None
    sentence: str
    held_until: float | None
    hold_minutes: int
    may_hold: bool
    why_not: str


@dataclass(frozen=True, slots=True)
class Reclaim:
    """A slice that came back, or should have."""

    user: str
    pod: str
    namespace: str
    models: tuple[str, ...]
    gib: float
    reason: str
    sentence: str
    decided_at: float | None
    freed_after: float | None
    state: str
    alarm: str


@dataclass(frozen=True, slots=True)
class Minute:
    """The cluster at one moment, in MiB. ``used`` is None where nothing is measured."""

    at: float
    capacity: int
    allocated: int
    used: int | None
    waiting: int


@dataclass(frozen=True, slots=True)
class Reading:
    """All of it, and when it was read. ``problem`` is why it is not fresh, or ''."""

    at: float = 0.0
    nodes: tuple[Node, ...] = ()
    waiting: tuple[WaitingPod, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    reclaims: tuple[Reclaim, ...] = ()
    given_back: tuple[tuple[str, int, float], ...] = ()  # reason, how many, GiB-hours; of today
    culler: bool = False  # whether there is one that answers
    dry_run: bool = False
    problem: str = ""

    @property
    def known(self) -> bool:
        return self.at > 0


def read_nodes(nodes: Json, usage: Json | None) -> tuple[Node, ...]:
    """From GET /v1/nodes and GET /v1/usage. Raises ValueError if it is something else."""
    if not isinstance(nodes.get("nodes"), list):
        raise ValueError("the state API's answer has no list of nodes")
    measured = _Measured(usage or {})
    return tuple(_node(node, measured) for node in _objects(nodes, "nodes"))


@dataclass(slots=True)
class _Measured:
    """GET /v1/usage by pod and card."""

    usage: Json
    slices: dict[tuple[str, str], Json] = field(init=False)
    ages: Json = field(init=False)

    def __post_init__(self) -> None:
        self.slices = {
            (_text(its, "uid"), _text(its, "card")): its
            for node in _objects(self.usage, "nodes")
            for its in _objects(node, "slices")
        }
        ages = self.usage.get("age_seconds")
        self.ages = ages if isinstance(ages, Mapping) else {}


def _node(data: Json, measured: _Measured) -> Node:
    name = _text(data, "name")
    return Node(
        name=name,
        problem=_text(data, "problem"),
        takes_pods=data.get("takes_pods") is not False,
        cards=tuple(_card(card, measured) for card in _objects(data, "cards")),
        age=_number(measured.ages, name),
    )


def _card(data: Json, measured: _Measured) -> Card:
    uuid = _text(data, "uuid")
    return Card(
        uuid=uuid,
        index=_whole(data, "index") or 0,
        model=_text(data, "short_model") or _text(data, "model"),
        memory_mib=_whole(data, "memory_mib") or 0,
        health=_text(data, "health") or "ok",
        free_mib=_whole(data, "free_mib") or 0,
        taken_mib=_whole(data, "taken_mib") or 0,
        used_mib=_whole(data, "used_mib"),
        slices=tuple(_slice(its, uuid, measured) for its in _objects(data, "slices")),
    )


def _slice(data: Json, card: str, measured: _Measured) -> Slice:
    uid = _text(data, "uid")
    use = measured.slices.get((uid, card), {})
    used = _whole(use, "used_mib")
    last = _number(use, "last_kernel")
    return Slice(
        namespace=_text(data, "namespace"),
        pod=_text(data, "pod"),
        uid=uid,
        user=_text(data, "user"),
        mib=_whole(data, "mib") or 0,
        percent=_whole(data, "percent") or 0,
        leaving=data.get("leaving") is True,
        reserved=data.get("reserved") is True,
        used_mib=_whole(data, "used_mib") if used is None else used,
        sm_percent=_whole(use, "sm_percent"),
        last_busy=last or _number(use, "watched_since") or None,
        over=use.get("over_since") is not None,
    )


def read_verdicts(data: Json) -> tuple[Verdict, ...]:
    """From the culler's GET api/verdicts."""
    return tuple(_verdict(one) for one in _objects(data, "verdicts"))


def _verdict(data: Json) -> Verdict:
    slices = list(_objects(data, "slices"))
    hold = data.get("hold")
    hold = hold if isinstance(hold, Mapping) else {}
    return Verdict(
        user=_text(data, "user"),
        server=_text(data, "server"),
        title=_text(data, "title"),
        namespace=_text(data, "namespace"),
        pod=_text(data, "pod"),
        uid=_text(data, "uid"),
        models=tuple(_text(its, "model") for its in slices),
        mib=sum(_whole(its, "mib") or 0 for its in slices),
        idle_seconds=_number(data, "idle_seconds"),
        gpu_idle_seconds=_number(data, "gpu_idle_seconds"),
        action=_text(data, "action") or "keep",
        ends_at=_time(data, "ends_at"),
        sentence=_text(data, "sentence"),
        held_until=_time(data, "held_until"),
        hold_minutes=_whole(hold, "minutes") or 30,
        may_hold=hold.get("allowed") is not False,
        why_not=_text(hold, "why_not"),
    )


def read_reclaims(data: Json) -> tuple[Reclaim, ...]:
    """From the culler's GET api/reclaimed."""
    return tuple(_reclaim(one) for one in _objects(data, "reclaimed"))


def read_given_back(data: Json) -> tuple[tuple[str, int, float], ...]:
    """Of the same answer, what came back today: ('', count, GiB-hours) first, then by reason."""
    totals = data.get("totals")
    if not isinstance(totals, Mapping):
        return ()
    rows = []
    today = totals.get("today")
    if isinstance(today, Mapping):
        rows.append(("", _whole(today, "count") or 0, _number(today, "gib_hours") or 0.0))
    reasons = totals.get("by_reason")
    for reason, sums in reasons.items() if isinstance(reasons, Mapping) else ():
        if isinstance(sums, Mapping):
            hours = _number(sums, "gib_hours") or 0.0
            rows.append((str(reason), _whole(sums, "count") or 0, hours))
    return tuple(rows)


def _reclaim(data: Json) -> Reclaim:
    alarm = data.get("alarm")
    models = data.get("models")
    return Reclaim(
        user=_text(data, "user"),
        pod=_text(data, "pod"),
        namespace=_text(data, "namespace"),
        models=tuple(str(m) for m in models) if isinstance(models, list) else (),
        gib=_number(data, "gib") or 0.0,
        reason=_text(data, "reason"),
        sentence=_text(data, "sentence"),
        decided_at=_time(data, "decided_at"),
        freed_after=_number(data, "freed_after_seconds"),
        state=_text(data, "state"),
        alarm=_text(alarm, "sentence") if isinstance(alarm, Mapping) else "",
    )


def read_minutes(data: Json) -> tuple[Minute, ...]:
    """From GET /v1/history, oldest first."""
    found = []
    for minute in _objects(data, "minutes"):
        at = _time(minute, "at")
        if at is not None:
            found.append(
                Minute(
                    at,
                    _whole(minute, "capacity_mib") or 0,
                    _whole(minute, "allocated_mib") or 0,
                    _whole(minute, "used_mib"),
                    _whole(minute, "waiting") or 0,
                )
            )
    return tuple(found)


def _objects(data: Json, key: str) -> Iterator[Json]:
    value = data.get(key)
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping):
            yield item


def _text(data: Json, key: str) -> str:
    value = data.get(key)
    return value[:1000] if isinstance(value, str) else ""


def _whole(data: Json, key: str) -> int | None:
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(data: Json, key: str) -> float | None:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _time(data: Json, key: str) -> float | None:
    try:
        return seconds_of(data.get(key))
    except ValueError:
        return None
