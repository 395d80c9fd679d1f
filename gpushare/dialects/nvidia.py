"""``nvidia.com/gpu``: whole cards, as NVIDIA's own device plugin has them; and HAMi's slices of them.

Both have the name in common, so a cluster speaks one of the two at most; and on a node where another
plugin offers the name already, ours does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpushare.demand import Demand, Policy
from gpushare.dialects.dialect import (
    Annotations,
    Ask,
    Bound,
    Dialect,
    Resource,
    Seat,
    Wishes,
    listed,
    memory,
    refuse,
    whole_cards,
)
from gpushare.units import Unit

GPU = "nvidia.com/gpu"
MEMORY, MEMORY_PERCENT, CORES = (
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)
# On so many pods can each card be divided, with HAMi's own default.
_SPLIT = 10


def _read_whole(dialect: Dialect, ask: Ask) -> Demand:
    return whole_cards(GPU, ask.of(GPU))


def _read_hami(dialect: Dialect, ask: Ask) -> Demand:
    cards = ask.of(GPU)
    if not cards:
        asked = next(iter(ask.counts))
        raise refuse(f"{asked} without {GPU}", f"add {GPU}: 1")
    mib, share, cores = ask.of(MEMORY), ask.of(MEMORY_PERCENT), ask.of(CORES)
    for name, value in ((MEMORY_PERCENT, share), (CORES, cores)):
        if value > 100:
            raise refuse(f"{name}: {value} is more than 100 %", "use 1 to 100")
    if mib and share:
        raise refuse(f"{MEMORY} and {MEMORY_PERCENT} are both set", "leave out one of them")
    # Neither memory nor cores means the card for oneself, and so do all of its cores.
    if cores == 100 or not (mib or share or cores):
        return whole_cards(GPU, cards)
    if mib:
        return Demand(memory(MEMORY, mib, dialect.unit), cores, cards=cards)
    return Demand(None, cores, cards=cards, memory_percent=share or 100)


def _wishes(annotations: Mapping[str, object]) -> Wishes:
    policy = annotations.get("hami.io/gpu-scheduler-policy")
    known = policy if policy in tuple(Policy) else None
    return Wishes(
        models=listed(annotations.get("nvidia.com/use-gputype")),
        uuids=listed(annotations.get("nvidia.com/use-gpuuuid")),
        not_models=listed(annotations.get("nvidia.com/nouse-gputype")),
        not_uuids=listed(annotations.get("nvidia.com/nouse-gpuuuid")),
        policy=Policy(str(known)) if known else None,
    )


def _annotations(dialect: Dialect, bound: Bound) -> Annotations:
    seconds, places = bound.at_ns // 10**9, {seat.name: seat for seat in bound.seats}
    seats = [places.pop(name, None) for name in bound.containers]
    devices = ";".join(_devices(seat) for seat in [*places.values(), *seats]) + ";"
    return {
        "hami.io/vgpu-node": bound.node,
        "hami.io/vgpu-time": str(seconds),
        "hami.io/bind-time": str(seconds),
        "hami.io/bind-phase": "allocating",
        "hami.io/vgpu-devices-allocated": devices,
    }


def _devices(seat: Seat | None) -> str:
    shares = seat.shares if seat else ()
    return "".join(f"{share.card},NVIDIA,{share.mib},{share.percent}:" for share in shares)


def _environment(dialect: Dialect, bound: Bound, seat: Seat, digest: str) -> Mapping[str, str]:
    limits = {
        f"CUDA_DEVICE_MEMORY_LIMIT_{place}": f"{share.mib}m"
        for place, share in enumerate(seat.shares)
    }
    return limits | {"CUDA_DEVICE_SM_LIMIT": str(seat.shares[0].percent)}


WHOLE = Dialect(name="nvidia", resources=(Resource(GPU, per_card=1),), read=_read_whole)
HAMI = Dialect(
    name="hami",
    resources=(
        Resource(GPU, per_card=_SPLIT),
        Resource(MEMORY, unit=Unit(1), counted=False),
        Resource(MEMORY_PERCENT, counted=False),
        Resource(CORES, counted=False),
    ),
    read=_read_hami,
    wishes=_wishes,
    annotations=_annotations,
    started={"hami.io/bind-phase": "success"},
    protected=(
        "hami.io/vgpu-*",
        "hami.io/bind-*",
    ),
    environment=_environment,
)
