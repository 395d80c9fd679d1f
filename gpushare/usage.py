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

from gpushare.fields import (
    number_or_zero,
    objects_or_empty,
    text_or_empty,
    unless_null,
    versioned_object,
    whole_or_zero,
)

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
        time=number_or_zero(data, "time"),
        level=_text(data, "level"),
        cards=tuple(_card(item) for item in objects_or_empty(data, "cards")),
        slices=tuple(_slice(item) for item in objects_or_empty(data, "slices")),
        strays=tuple(_stray(item) for item in objects_or_empty(data, "strays")),
        incidents=tuple(_incident(item) for item in objects_or_empty(data, "incidents")),
    )


def _card(data: Mapping[str, Any]) -> CardUse:
    return CardUse(
        uuid=_text(data, "uuid"),
        total_mib=whole_or_zero(data, "total_mib"),
        used_mib=whole_or_zero(data, "used_mib"),
        reserved_mib=whole_or_zero(data, "reserved_mib"),
        stray_mib=whole_or_zero(data, "stray_mib"),
        sm_percent=unless_null(whole_or_zero, data, "sm_percent"),
        problem=_text(data, "problem"),
    )


def _slice(data: Mapping[str, Any]) -> SliceUse:
    return SliceUse(
        namespace=_text(data, "namespace"),
        pod=_text(data, "pod"),
        uid=_text(data, "uid"),
        card=_text(data, "card"),
        slice_mib=whole_or_zero(data, "slice_mib"),
        limit_mib=whole_or_zero(data, "limit_mib"),
        percent=whole_or_zero(data, "percent"),
        used_mib=whole_or_zero(data, "used_mib"),
        peak_mib=whole_or_zero(data, "peak_mib"),
        sm_percent=unless_null(whole_or_zero, data, "sm_percent"),
        last_kernel=unless_null(number_or_zero, data, "last_kernel"),
        watched_since=number_or_zero(data, "watched_since"),
        over_seconds=number_or_zero(data, "over_seconds"),
        over_since=unless_null(number_or_zero, data, "over_since"),
        ended=whole_or_zero(data, "ended"),
        memory_held=_text(data, "memory_held"),
        compute_held=_text(data, "compute_held"),
        containers=tuple(_container(item) for item in objects_or_empty(data, "containers")),
    )


def _container(data: Mapping[str, Any]) -> ContainerUse:
    return ContainerUse(
        name=_text(data, "name"),
        used_mib=whole_or_zero(data, "used_mib"),
        peak_mib=whole_or_zero(data, "peak_mib"),
        processes=whole_or_zero(data, "processes"),
        sm_percent=unless_null(whole_or_zero, data, "sm_percent"),
        last_kernel=unless_null(number_or_zero, data, "last_kernel"),
    )


def _stray(data: Mapping[str, Any]) -> StrayUse:
    return StrayUse(
        card=_text(data, "card"),
        pid=whole_or_zero(data, "pid"),
        name=_text(data, "name"),
        used_mib=whole_or_zero(data, "used_mib"),
        pod_uid=_text(data, "pod_uid"),
    )


def _incident(data: Mapping[str, Any]) -> Incident:
    texts = ("namespace", "pod", "uid", "card", "kind", "text")
    return Incident(number_or_zero(data, "time"), *(_text(data, key) for key in texts))


def _text(data: Mapping[str, Any], key: str) -> str:
    return text_or_empty(data, key, _MAX_TEXT)
