"""What is compared: what a choice becomes, how its card is chosen, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from gpushare.request import ContainerRequest, Demand, PodRequest, Role
from hub_integration.culling.policy import IdlePolicy

REPLICAS = 4  # of a card, where it is shared by time-slicing in equal parts

Becomes = Callable[[PodRequest, int], PodRequest]


@dataclass(frozen=True, slots=True)
class Strategy:
    """``becomes`` turns the request of a choice and its card's memory (MiB) into what is held.

    ``gpu_known``: the culler sees the GPU's activity; ``pressed``: and that somebody waits.
    """

    name: str
    becomes: Becomes
    policy: str
    idle: IdlePolicy | None = None
    gpu_known: bool = False
    pressed: bool = False


def as_asked(request: PodRequest, memory: int) -> PodRequest:
    return request


def whole_card(request: PodRequest, memory: int) -> PodRequest:
    """NVIDIA's plugin as it comes: a card is one thing."""
    return _with(request, Demand(mib=None, percent=100, whole=True))


def equal_part(request: PodRequest, memory: int) -> PodRequest:
    """Time-slicing: any request gets one of the equal replicas, whatever it needs."""
    return _with(request, Demand(mib=memory // REPLICAS, percent=0))


def memory_alone(request: PodRequest, memory: int) -> PodRequest:
    """aliyun gpushare: memory is all that is counted."""
    demand = request.containers[0].demand
    mib = memory if demand.whole else demand.mib or memory * demand.percent // 100
    return _with(request, Demand(mib=mib, percent=0))


def _with(request: PodRequest, demand: Demand) -> PodRequest:
    return replace(request, containers=(ContainerRequest("notebook", Role.APP, demand),))


def _idle(minutes: float, pressed: float, gpu: float | None) -> IdlePolicy:
    def span(value: float) -> timedelta:
        return timedelta(minutes=value)

    return IdlePolicy(
        idle=span(minutes),
        pressed_idle=span(pressed),
        gpu_idle=None if gpu is None else span(gpu),
        warn=span(5),
        guaranteed=span(10),
        max_age=None,
    )


# The culling times are those of profiles/catalogue.yaml.
STRATEGIES = (
    Strategy("exclusive cards", whole_card, "binpack"),
    Strategy("exclusive cards, idle culling", whole_card, "binpack", _idle(30, 30, None)),
    Strategy(f"time-slicing, {REPLICAS} equal parts", equal_part, "spread"),
    Strategy(
        f"time-slicing, {REPLICAS} parts, idle culling",
        equal_part,
        "spread",
        _idle(30, 30, None),
    ),
    Strategy("memory binpack, no culling", memory_alone, "binpack"),
    Strategy("gpushare, no culling", as_asked, "fragmentation"),
    Strategy("gpushare, Jupyter idleness", as_asked, "fragmentation", _idle(30, 30, None)),
    Strategy(
        "gpushare, and the GPU's", as_asked, "fragmentation", _idle(30, 30, None), gpu_known=True
    ),
    Strategy(
        "gpushare, and demand pressure",
        as_asked,
        "fragmentation",
        _idle(30, 15, 60),
        gpu_known=True,
        pressed=True,
    ),
)
