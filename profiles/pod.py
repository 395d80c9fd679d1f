"""What a choice becomes: the parts of a pod that follow from it, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpushare.names import SCHEDULER_NAME, Names
from gpushare.request import NOTHING, PodRequest, parse_request
from gpushare.units import GIB, Unit
from profiles.catalogue import Settings, Watchdog
from profiles.choice import Choice

CONTAINER = "notebook"


@dataclass(frozen=True, slots=True)
class PodParts:
    """What follows from a choice beside its settings.

    ``limits`` of the notebook's container; ``scheduler_name`` is None for the cluster's own.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    request: PodRequest = NOTHING


def pod_parts(
    choice: Choice,
    *,
    names: Names | None = None,
    unit: Unit = GIB,
    scheduler_name: str = SCHEDULER_NAME,
) -> PodParts:
    """The parts that ``choice`` becomes.

    Raises gpushare.reasons.Refusal where the scheduler would refuse them; the reader of catalogues
    asks here, so with a checked catalogue that does not happen.
    """
    names = names or Names()
    limits = _limits(choice, names, unit)
    annotations = {names.choice: choice.key, names.idle: idle_clocks(choice.settings)}
    if not choice.slice:
        return PodParts(
            annotations=annotations,
            # Images of CUDA's makers ask for all cards; where a node's default runtime listens
            # to that, this server would get them.
            environment={"NVIDIA_VISIBLE_DEVICES": "void"},
        )
    if choice.profile.models:
        annotations[names.card_model] = ",".join(choice.profile.models)
    if choice.slice.cards > 1:
        annotations[names.cards] = str(choice.slice.cards)
    if choice.slice.policy:
        annotations[names.policy] = choice.slice.policy
    if choice.slice.burst:
        annotations[names.gpu_mem_limit] = str(choice.slice.burst // unit.mib)
    if choice.settings.watchdog:
        annotations[names.enforcement] = watchdog_terms(choice.settings.watchdog)
    return PodParts(
        limits=limits,
        annotations=annotations,
        scheduler_name=scheduler_name,
        environment={"GPUSHARE_SLICE": choice.title},
        request=_request(limits, annotations, names, unit),
    )


def idle_clocks(settings: Settings) -> str:
    """The annotation for whoever ends unused servers. Minutes; 0 means never."""
    clocks = {
        "idle": settings.idle_minutes or 0,
        "warn": settings.warn_minutes or 0,
        "minRun": settings.min_run_minutes or 0,
        "maxAge": settings.max_age_minutes or 0,
    }
    more = {
        "pressedIdle": settings.pressed_idle_minutes,
        "gpuIdle": settings.gpu_idle_minutes,
        "kernelIdle": settings.kernel_idle_minutes,
        "hold": settings.hold_minutes,
    }
    clocks |= {name: minutes for name, minutes in more.items() if minutes is not None}
    return json.dumps(clocks, separators=(",", ":"))


def watchdog_terms(watchdog: Watchdog) -> str:
    """The annotation for the node's watchdog, in the keys that it reads."""
    terms = {
        "reach": watchdog.reach,
        "grace": watchdog.grace,
        "allowanceMib": watchdog.allowance_mib,
        "evictAfter": watchdog.evict_after,
    }
    said = {name: value for name, value in terms.items() if value is not None}
    return json.dumps(said, separators=(",", ":"))


def _limits(choice: Choice, names: Names, unit: Unit) -> dict[str, int]:
    limits: dict[str, int] = {}
    if choice.slice and choice.slice.memory:
        # Never less than what was promised, should a custom size be no whole number of units.
        limits[names.gpu_mem] = -(-choice.slice.memory // unit.mib)
    if choice.slice and choice.slice.percent:
        limits[names.gpu_percent] = choice.slice.percent
    return limits


def _request(
    limits: Mapping[str, int], annotations: Mapping[str, str], names: Names, unit: Unit
) -> PodRequest:
    """As the scheduler will read it."""
    pod = {
        "metadata": {"annotations": dict(annotations)},
        "spec": {"containers": [{"name": CONTAINER, "resources": {"limits": dict(limits)}}]},
    }
    return parse_request(pod, names, unit)
