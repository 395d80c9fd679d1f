"""What slices really use, as a node tells it and everybody else reads it.

The device plugin of a node answers ``GET /v1/usage`` with this as JSON; the extender gathers the
answers, and the culler, the dashboard, quotas and the command line read them there. Memory is in
MiB, times are seconds since 1970, utilisation is per cent of the card's SMs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpushare.fields import versioned_object

VERSION = 1
_MAX_TEXT = 1000


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """One container on one card. ``name`` is '' for processes of the pod in no known container.

    ``sm_percent`` is None where the driver does not tell processes apart. ``last_kernel`` is None
    if no program ran on the card since the slice is watched.
    """

    name: str
    used_mib: int = 0
    peak_mib: int = 0
    processes: int = 0
    sm_percent: int | None = None
    last_kernel: float | None = None


@dataclass(frozen=True, slots=True)
class SliceUse:
    """One pod on one card.

    ``limit_mib`` is what it may use now: its slice, and what it may borrow. ``watched_since`` is
    when the node began to measure it; before that nothing is known. ``over_seconds``: how long it
    was over its limit, in all. ``ended``: how many of its processes were ended for that.
    ``memory_held`` and ``compute_held`` say by what: 'advice', 'watchdog', 'mps-server',
    'mps-client', 'time-slicing', 'best-effort'.
    """

    namespace: str
    pod: str
    uid: str
    card: str
    slice_mib: int
    limit_mib: int
    percent: int = 0
    used_mib: int = 0
    peak_mib: int = 0
    sm_percent: int | None = None
    last_kernel: float | None = None
    watched_since: float = 0.0
    over_seconds: float = 0.0
    over_since: float | None = None
    ended: int = 0
    memory_held: str = "watchdog"
    compute_held: str = "best-effort"
    containers: tuple[ContainerUse, ...] = ()


@dataclass(frozen=True, slots=True)
class StrayUse:
    """A process that uses a card without a slice of it. ``pod_uid`` is '' for the host's own."""

    card: str
    pid: int
    name: str
    used_mib: int
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class CardUse:
    """One card. ``problem`` says why it could not be asked, or what of it is not known."""

    uuid: str
    total_mib: int = 0
    used_mib: int = 0
    reserved_mib: int = 0
    stray_mib: int = 0
    sm_percent: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that was done to a slice, or that it was told. ``kind`` is an Event's reason."""

    time: float
    namespace: str
    pod: str
    uid: str
    card: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """One node at one time. ``incidents`` are the newest, oldest first."""

    node: str
    time: float
    level: str
    cards: tuple[CardUse, ...] = ()
    slices: tuple[SliceUse, ...] = ()
    strays: tuple[StrayUse, ...] = ()
    incidents: tuple[Incident, ...] = ()


def encode(usage: NodeUsage) -> str:
    """The answer's text."""
    return json.dumps({"v": VERSION, **asdict(usage)}, separators=(",", ":"))


def decode(text: str | bytes) -> NodeUsage:
    """Read an answer. Unknown keys are skipped, so that nodes may be newer than their reader.

    Raises ValueError that says what is wrong.
    """
    data = versioned_object(text, VERSION)
    return NodeUsage(
        node=_text(data, "node"),
        time=_number(data, "time"),
        level=_text(data, "level"),
        cards=tuple(_card(item) for item in _list(data, "cards")),
        slices=tuple(_slice(item) for item in _list(data, "slices")),
        strays=tuple(_stray(item) for item in _list(data, "strays")),
        incidents=tuple(_incident(item) for item in _list(data, "incidents")),
    )


def _card(data: Mapping[str, Any]) -> CardUse:
    return CardUse(
        uuid=_text(data, "uuid"),
        total_mib=_whole(data, "total_mib"),
        used_mib=_whole(data, "used_mib"),
        reserved_mib=_whole(data, "reserved_mib"),
        stray_mib=_whole(data, "stray_mib"),
        sm_percent=_whole_or_none(data, "sm_percent"),
        problem=_text(data, "problem"),
    )


def _slice(data: Mapping[str, Any]) -> SliceUse:
    return SliceUse(
        namespace=_text(data, "namespace"),
        pod=_text(data, "pod"),
        uid=_text(data, "uid"),
        card=_text(data, "card"),
        slice_mib=_whole(data, "slice_mib"),
        limit_mib=_whole(data, "limit_mib"),
        percent=_whole(data, "percent"),
        used_mib=_whole(data, "used_mib"),
        peak_mib=_whole(data, "peak_mib"),
        sm_percent=_whole_or_none(data, "sm_percent"),
        last_kernel=_number_or_none(data, "last_kernel"),
        watched_since=_number(data, "watched_since"),
        over_seconds=_number(data, "over_seconds"),
        over_since=_number_or_none(data, "over_since"),
        ended=_whole(data, "ended"),
        memory_held=_text(data, "memory_held"),
        compute_held=_text(data, "compute_held"),
        containers=tuple(_container(item) for item in _list(data, "containers")),
    )


def _container(data: Mapping[str, Any]) -> ContainerUse:
    return ContainerUse(
        name=_text(data, "name"),
        used_mib=_whole(data, "used_mib"),
        peak_mib=_whole(data, "peak_mib"),
        processes=_whole(data, "processes"),
        sm_percent=_whole_or_none(data, "sm_percent"),
        last_kernel=_number_or_none(data, "last_kernel"),
    )


def _stray(data: Mapping[str, Any]) -> StrayUse:
    return StrayUse(
        card=_text(data, "card"),
        pid=_whole(data, "pid"),
        name=_text(data, "name"),
        used_mib=_whole(data, "used_mib"),
        pod_uid=_text(data, "pod_uid"),
    )


def _incident(data: Mapping[str, Any]) -> Incident:
    texts = ("namespace", "pod", "uid", "card", "kind", "text")
    return Incident(_number(data, "time"), *(_text(data, key) for key in texts))


def _list(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ValueError(f"{key!r} is not a list of objects")
    return value


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key, "")
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError(f"{key!r} is not a text of at most {_MAX_TEXT} characters")
    return value


def _whole(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**40:
        raise ValueError(f"{key!r} is not a whole number")
    return value


def _whole_or_none(data: Mapping[str, Any], key: str) -> int | None:
    return None if data.get(key) is None else _whole(data, key)


def _number(data: Mapping[str, Any], key: str) -> float:
    value = data.get(key, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ValueError(f"{key!r} is not a number")
    return float(value)


def _number_or_none(data: Mapping[str, Any], key: str) -> float | None:
    return None if data.get(key) is None else _number(data, key)
