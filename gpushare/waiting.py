"""Pods that wait for a slice, as the state API tells it and everybody else reads it.

``GET /v1/waiting`` answers with a list of ``WaitingPod``, and ``GET /v1/pods/{namespace}/{pod}/why``
with one of ``WaitingPod``, ``PlacedPod`` or ``RefusedPod``, told apart by ``state``. Memory is in MiB.
Times are seconds since 1970 here and RFC 3339 in UTC on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from gpushare.fields import loaded, mapping, objects_or_empty, text_or_empty, whole_or_zero

# A waiting pod is told about so many cards; how many more there are is a number.
MOST_REASONS = 64
_LONGEST = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why one card does not take the pod now. ``card`` is '' where the whole node is the obstacle.

    ``card`` is the uuid, ``index`` and ``model`` are what people call it.
    """

    node: str
    card: str
    index: int
    model: str
    free_mib: int
    free_percent: int
    reason: str


@dataclass(frozen=True, slots=True)
class Leaver:
    """A slice that is in the way. ``user`` is '' where the pod is nobody's notebook."""

    namespace: str
    pod: str
    user: str
    mib: int
    percent: int


@dataclass(frozen=True, slots=True)
class WayOut:
    """If these slices ended, the pod would fit on that card: the fewest that do."""

    node: str
    card: str
    slices: tuple[Leaver, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that asks for a slice and is not bound.

    ``request`` says in words what it wants; ``mib``, ``percent`` and ``cards`` are those of its
    largest container, ``models`` is empty for any. It is the ``place``-th of the ``of`` pods that
    wait for the same cards. ``more`` is how many cards ``reasons`` leaves out.
    """

    namespace: str
    pod: str
    uid: str
    user: str
    since: float
    request: str
    mib: int
    percent: int
    cards: int
    models: tuple[str, ...]
    place: int
    of: int
    reasons: tuple[Obstacle, ...] = ()
    more: int = 0
    would_end: tuple[WayOut, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedCard:
    """What a bound pod holds of one card."""

    card: str
    index: int
    model: str
    mib: int
    percent: int


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod that has its slice, or is being bound to it at this moment."""

    namespace: str
    pod: str
    uid: str
    node: str
    cards: tuple[PlacedCard, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedPod:
    """A pod that can never have what it asks for. ``sentence`` says why, and what would fit."""

    namespace: str
    pod: str
    uid: str
    sentence: str


Why = WaitingPod | PlacedPod | RefusedPod


def waiting_object(pod: WaitingPod) -> dict[str, Any]:
    """One entry of GET /v1/waiting, ready for any JSON writer."""
    return {**asdict(pod), "since": rfc3339(pod.since)}


def why_object(why: Why) -> dict[str, Any]:
    """The answer of GET /v1/pods/{namespace}/{pod}/why."""
    match why:
        case WaitingPod():
            return {"state": "waiting", **waiting_object(why)}
        case PlacedPod():
            return {"state": "placed", **asdict(why)}
        case RefusedPod():
            return {"state": "refused", **asdict(why)}


def encode(pods: Iterable[WaitingPod]) -> str:
    """The text of GET /v1/waiting."""
    return json.dumps({"waiting": [waiting_object(pod) for pod in pods]}, separators=(",", ":"))


def decode(text: str | bytes) -> tuple[WaitingPod, ...]:
    """Read GET /v1/waiting. Unknown keys are skipped. Raises ValueError that says what is wrong."""
    return _tuple(_object(text), "waiting", _waiting)


def encode_why(why: Why) -> str:
    """The text of GET /v1/pods/{namespace}/{pod}/why."""
    return json.dumps(why_object(why), separators=(",", ":"))


def decode_why(text: str | bytes) -> Why:
    """Read that answer. Raises ValueError that says what is wrong."""
    data = _object(text)
    match data.get("state"):
        case "waiting":
            return _waiting(data)
        case "placed":
            return PlacedPod(
                namespace=_text(data, "namespace"),
                pod=_text(data, "pod"),
                uid=_text(data, "uid"),
                node=_text(data, "node"),
                cards=_tuple(data, "cards", _placed_card),
            )
        case "refused":
            return RefusedPod(
                namespace=_text(data, "namespace"),
                pod=_text(data, "pod"),
                uid=_text(data, "uid"),
                sentence=_text(data, "sentence"),
            )
    raise ValueError("'state' is not waiting, placed or refused")


def without_names(pod: WaitingPod) -> WaitingPod:
    """The same for people who may not know who holds what: counts and sizes stay."""
    ways = tuple(
        replace(way, slices=tuple(replace(s, namespace="", pod="", user="") for s in way.slices))
        for way in pod.would_end
    )
    return replace(pod, would_end=ways)


def rfc3339(seconds: float) -> str:
    """A time since 1970 as the wire has it: '2026-01-31T12:00:00Z', to the millisecond."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"


def seconds_of(text: object) -> float:
    """The time that ``rfc3339`` wrote. Raises ValueError."""
    if not isinstance(text, str) or len(text) > 40:
        raise ValueError("not a time in RFC 3339")
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time in RFC 3339") from None


def _waiting(data: Mapping[str, Any]) -> WaitingPod:
    models = data.get("models", [])
    if not isinstance(models, list) or not all(isinstance(model, str) for model in models):
        raise ValueError("'models' is not a list of texts")
    return WaitingPod(
        namespace=_text(data, "namespace"),
        pod=_text(data, "pod"),
        uid=_text(data, "uid"),
        user=_text(data, "user"),
        since=seconds_of(data.get("since")),
        request=_text(data, "request"),
        mib=_whole(data, "mib"),
        percent=_whole(data, "percent"),
        cards=_whole(data, "cards"),
        models=tuple(models),
        place=_whole(data, "place"),
        of=_whole(data, "of"),
        reasons=_tuple(data, "reasons", _obstacle),
        more=_whole(data, "more"),
        would_end=_tuple(data, "would_end", _way_out),
    )


def _obstacle(data: Mapping[str, Any]) -> Obstacle:
    return Obstacle(
        node=_text(data, "node"),
        card=_text(data, "card"),
        index=_whole(data, "index"),
        model=_text(data, "model"),
        free_mib=_whole(data, "free_mib"),
        free_percent=_whole(data, "free_percent"),
        reason=_text(data, "reason"),
    )


def _way_out(data: Mapping[str, Any]) -> WayOut:
    return WayOut(_text(data, "node"), _text(data, "card"), _tuple(data, "slices", _leaver))


def _leaver(data: Mapping[str, Any]) -> Leaver:
    return Leaver(
        namespace=_text(data, "namespace"),
        pod=_text(data, "pod"),
        user=_text(data, "user"),
        mib=_whole(data, "mib"),
        percent=_whole(data, "percent"),
    )


def _placed_card(data: Mapping[str, Any]) -> PlacedCard:
    return PlacedCard(
        card=_text(data, "card"),
        index=_whole(data, "index"),
        model=_text(data, "model"),
        mib=_whole(data, "mib"),
        percent=_whole(data, "percent"),
    )


def _object(text: str | bytes) -> Mapping[str, Any]:
    return mapping(loaded(text), "the answer")


def _tuple(
    data: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any]], T]
) -> tuple[T, ...]:
    return tuple(read(item) for item in objects_or_empty(data, key))


def _text(data: Mapping[str, Any], key: str) -> str:
    return text_or_empty(data, key, _LONGEST)


def _whole(data: Mapping[str, Any], key: str) -> int:
    """A card that shrank under its slices has less than nothing free, so the sign is allowed."""
    return whole_or_zero(data, key, above=-(2**40))
