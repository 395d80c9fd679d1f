"""How strictly a slice is held: the node's rules, and what a pod may change of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """What a node does about slices, in rising strength."""

    ADVISORY = "advisory"  # variables that frameworks honour; use is measured and reported
    WATCHDOG = "watchdog"  # and a pod that takes more than its slice is brought back
    MPS = "mps"  # and the driver limits each process, by NVIDIA's Multi-Process Service


class Reach(StrEnum):
    """How far the watchdog goes."""

    REPORT = "report"  # it tells
    END = "end"  # it ends GPU processes of the pod
    EVICT = "evict"  # and evicts the pod when that does not help


_REACHES = tuple(Reach)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one slice. Times in seconds, memory in MiB.

    A pod over its limit has ``grace`` seconds of it, in all: the clock runs back while it is within,
    slowly, so that full grace is there again after ``recovery`` seconds. While its surplus is
    memory that another slice was promised, the clock runs faster: full grace lasts
    ``urgent_grace``. A pod told to give back what it had borrowed has ``burst_grace``.
    """

    reach: Reach = Reach.EVICT
    grace: float = 30.0
    urgent_grace: float = 5.0
    burst_grace: float = 15.0
    recovery: float = 600.0
    # Between asking a process to end (SIGTERM) and ending it (SIGKILL).
    term_grace: float = 5.0
    # CUDA's own memory in each process, which no program can avoid: tolerated, up to the most.
    allowance_mib: int = 300
    allowance_most_mib: int = 600
    # The pod is evicted in place of the process after so many that were ended within the window.
    evict_after: int = 3
    strike_window: float = 900.0

    def __post_init__(self) -> None:
        for name in _SECONDS:
            if not 0 < getattr(self, name) <= 86_400:
                raise ValueError(f"{name} must be more than 0 and at most 86400 seconds")
        if self.allowance_mib < 0 or self.allowance_most_mib < 0:
            raise ValueError("an allowance must be 0 MiB or more")
        if self.evict_after < 1:
            raise ValueError("evict_after must be 1 or more; to never evict, set reach to 'end'")
        if self.urgent_grace > self.grace:
            raise ValueError("urgent_grace must not be longer than grace")

    def allowance(self, processes: int) -> int:
        """MiB that ``processes`` GPU processes of one pod may be over their slice on a card."""
        return min(processes * self.allowance_mib, self.allowance_most_mib)


_SECONDS = ("grace", "urgent_grace", "burst_grace", "recovery", "term_grace", "strike_window")
_KEYS = {
    "reach": "reach",
    "grace": "grace",
    "allowanceMib": "allowance_mib",
    "evictAfter": "evict_after",
}


def for_pod(node: Rules, bounds: Rules, text: str | None) -> tuple[Rules, str]:
    """The rules for a pod whose annotation reads ``text``, and what is wrong with it ('': nothing).

    The annotation is an object with any of reach, grace, allowanceMib and evictAfter. Nothing in it
    can be more lenient than ``bounds``, whoever wrote it; what cannot be read changes nothing.
    """
    if text is None:
        return node, ""
    try:
        wanted = _read(text)
        rules = _apply(node, wanted)
    except ValueError as error:
        return node, str(error)
    lenient = {name: getattr(bounds, name) for name in wanted if _more_lenient(name, rules, bounds)}
    return _apply(node, {**wanted, **lenient}), ""


def bounds_of(node: Rules, text: str) -> Rules:
    """The bounds for pods' own wishes: the node's rules but for what ``text`` (JSON) says.

    Raises ValueError.
    """
    return _apply(node, _read(text)) if text.strip() else node


def _apply(node: Rules, wanted: Mapping[str, Any]) -> Rules:
    """Values that go with a wanted one follow it."""
    changes = dict(wanted)
    if "grace" in changes:
        changes["urgent_grace"] = min(node.urgent_grace, changes["grace"])
    if "allowance_mib" in changes:
        changes["allowance_most_mib"] = max(node.allowance_most_mib, changes["allowance_mib"])
    return replace(node, **changes)


def _more_lenient(name: str, rules: Rules, bounds: Rules) -> bool:
    if name == "reach":
        return _REACHES.index(rules.reach) < _REACHES.index(bounds.reach)
    return bool(getattr(rules, name) > getattr(bounds, name))


def _read(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise ValueError("not an object")
    unknown = sorted(set(map(str, data)) - set(_KEYS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0][:40]!r}: use {', '.join(_KEYS)}")
    return {_KEYS[key]: _value(key, value) for key, value in data.items()}


def _value(key: str, value: object) -> object:
    if key == "reach":
        if value not in _REACHES:
            raise ValueError(f"reach {str(value)[:40]!r}: use {', '.join(_REACHES)}")
        return Reach(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**31:
        raise ValueError(f"{key} is not a number")
    return float(value) if key == "grace" else int(value)
