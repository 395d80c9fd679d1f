"""The pair gpushare-scheduler-extender and gpushare-device-plugin of Alibaba Cloud's container team."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from gpushare.demand import Demand, Role
from gpushare.dialects.dialect import (
    Annotations,
    Ask,
    Bound,
    Dialect,
    Resource,
    Seat,
    index_list,
    memory,
)
from gpushare.units import GIB

MEMORY = "aliyun.com/gpu-mem"
COUNT = "aliyun.com/gpu-count"
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
CARD = "ALIYUN_COM_GPU_MEM_DEV"
POD = "ALIYUN_COM_GPU_MEM_POD"
CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ASSUMED_AT = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
# {"<container's place in the pod>": {"<card's index>": units}}: pods on several cards.
SEVERAL = "scheduler.framework.gpushare.allocation"
# ConfigMaps in kube-system, 'unhealthy-gpu-<node>', with data.gpus as in '0,2'.
UNHEALTHY_MAP = "unhealthy-gpu-"


def _read(dialect: Dialect, ask: Ask) -> Demand:
    return Demand(memory(MEMORY, ask.of(MEMORY), dialect.unit), 0, cards=ask.cards)


def _pod_total(bound: Bound) -> int:
    """Units of the whole pod, as that system counts them: init containers left out."""
    return sum(seat.counts.get(MEMORY, 0) for seat in bound.seats if seat.role is Role.APP)


def _annotations(dialect: Dialect, bound: Bound) -> Annotations:
    apps = [seat for seat in bound.seats if seat.role is Role.APP] or list(bound.seats)
    card = apps[0].cards[0]
    texts = {
        INDEX: str(card.index),
        CARD: str(dialect.unit.units(card.memory)),
        POD: str(_pod_total(bound)),
        ASSIGNED: "false",
        ASSUMED_AT: str(bound.at_ns),
    }
    used = {c.uuid for seat in apps for c in seat.cards}
    if len(used) > 1:
        texts[SEVERAL] = json.dumps(_several(dialect, bound), separators=(",", ":"))
    return texts


def _several(dialect: Dialect, bound: Bound) -> dict[str, dict[str, int]]:
    places = {name: str(place) for place, name in enumerate(bound.containers)}
    return {
        places[seat.name]: {
            str(card.index): dialect.unit.units(share.mib)
            for card, share in zip(seat.cards, seat.shares, strict=True)
        }
        for seat in bound.seats
        if seat.name in places
    }


def _environment(dialect: Dialect, bound: Bound, seat: Seat, digest: str) -> Mapping[str, str]:
    return {
        INDEX: seat.indexes,
        POD: str(_pod_total(bound)),
        CONTAINER: str(seat.counts.get(MEMORY, 0)),
        CARD: str(dialect.unit.units(seat.cards[0].memory)),
    }


def _told(
    annotations: Mapping[str, object], containers: Sequence[str]
) -> Mapping[str, tuple[int, ...]]:
    several = _told_several(annotations.get(SEVERAL), containers)
    if several:
        return several
    index = index_list(annotations.get(INDEX))
    return dict.fromkeys(containers, index) if len(index) == 1 else {}


def _told_several(text: object, containers: Sequence[str]) -> dict[str, tuple[int, ...]]:
    try:
        data = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    found = {}
    for place, cards in data.items() if isinstance(data, dict) else ():
        number = index_list(place)
        if not isinstance(cards, dict) or len(number) != 1 or number[0] >= len(containers):
            return {}
        indexes = index_list(",".join(map(str, cards)))
        if not indexes:
            return {}
        found[containers[number[0]]] = tuple(sorted(indexes))
    return found


def unhealthy_cards(text: object) -> frozenset[int]:
    """The cards' indexes in the ConfigMap's 'gpus'. What is no number is left out, never taken for 0."""
    parts = text.split(",") if isinstance(text, str) else ()
    return frozenset(number for part in parts for number in index_list(part))


DIALECT = Dialect(
    name="aliyun",
    resources=(Resource(MEMORY, unit=GIB),),
    read=_read,
    annotations=_annotations,
    started={ASSIGNED: "true"},
    protected=(INDEX, CARD, POD, ASSIGNED, ASSUMED_AT, SEVERAL),
    environment=_environment,
    told=_told,
    several_cards=True,
    count=COUNT,
    unhealthy_map=UNHEALTHY_MAP,
    routes="gpushare-scheduler",
)
