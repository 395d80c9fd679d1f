"""What is measured, in the shapes that others read: the usage API and the notice boards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from device_plugin.usage.book import Entry, Meter
from gpushare.cards import Card
from gpushare.usage import CardUse, ContainerUse, Incident, NodeUsage, SliceUse, StrayUse

if TYPE_CHECKING:
    from device_plugin.enforcement.enforcer import Enforcer
    from device_plugin.enforcement.judgement import CardState
    from device_plugin.enforcement.slices import Slice


def node_usage(
    enforcer: Enforcer,
    node: str,
    level: str,
    slices: Mapping[str, Slice],
    cards: Mapping[str, Card],
    incidents: Iterable[Incident],
    now: float,
) -> NodeUsage:
    """All of the node."""
    return NodeUsage(
        node=node,
        time=round(now, 1),
        level=level,
        cards=tuple(
            _card(uuid, enforcer.states.get(uuid), enforcer.book.busy.get(uuid)) for uuid in cards
        ),
        slices=tuple(
            _slice(enforcer, its, card)
            for its in slices.values()
            for card in its.footprint
            if its.started
        ),
        strays=tuple(
            StrayUse(card, s.process.pid, s.process.name, s.mib, s.pod_uid)
            for card, state in enforcer.states.items()
            for s in state.account.strays
            if not s.expected
        ),
        incidents=tuple(incidents),
    )


def board(enforcer: Enforcer, its: Slice, cards: Mapping[str, Card]) -> dict[str, Any]:
    """What the pod's own containers may see: their slice, and nothing of others."""
    return {
        "pod": its.pod.name,
        "cards": [
            _on_board(_slice(enforcer, its, uuid), cards[uuid], enforcer.states.get(uuid))
            for uuid in its.footprint
            if uuid in cards
        ],
    }


def _card(uuid: str, state: CardState | None, busy: int | None) -> CardUse:
    if state is None:
        return CardUse(uuid, problem="it could not be looked at")
    sample, book = state.sample, state.account
    problem = ""
    if book.untold:
        problem = f"the driver does not tell the memory of {book.untold} process(es)"
    elif not sample.memory and sample.used - sample.reserved > _UNSEEN_MIB:
        problem = (
            "it is in use, and the driver names no process: hostPID must be true for the plugin"
        )
    return CardUse(uuid, sample.total, sample.used, sample.reserved, book.stray_mib, busy, problem)


# More than any idle driver holds besides what it reports as reserved.
_UNSEEN_MIB = 200


def _slice(enforcer: Enforcer, its: Slice, card: str) -> SliceUse:
    entry = enforcer.book.entries.get((its.pod.uid, card)) or Entry(0.0)
    state = enforcer.states.get(card)
    grant = state.grants.get(its.pod.uid) if state else None
    memory, compute = enforcer.held_by(its, card)
    total = entry.total
    return SliceUse(
        namespace=its.pod.namespace,
        pod=its.pod.name,
        uid=its.pod.uid,
        card=card,
        slice_mib=its.mib(card),
        limit_mib=grant.limit if grant else its.mib(card),
        percent=its.percent(card),
        used_mib=total.used,
        peak_mib=total.peak,
        sm_percent=total.sm,
        last_kernel=total.last_kernel,
        watched_since=entry.since,
        over_seconds=round(entry.over_seconds, 1),
        over_since=entry.over_since,
        ended=entry.ended,
        memory_held=memory,
        compute_held=compute,
        containers=tuple(_container(name, meter) for name, meter in entry.containers.items()),
    )


def _container(name: str, meter: Meter) -> ContainerUse:
    return ContainerUse(name, meter.used, meter.peak, meter.processes, meter.sm, meter.last_kernel)


def _on_board(use: SliceUse, card: Card, state: CardState | None) -> dict[str, Any]:
    its = state.account.pods.get(use.uid) if state else None
    return {
        "uuid": card.uuid,
        "index": card.index,
        "model": card.short_model,
        "memory_mib": card.memory,
        "slice_mib": use.slice_mib,
        "limit_mib": use.limit_mib,
        "percent": use.percent,
        "used_mib": use.used_mib,
        "peak_mib": use.peak_mib,
        "sm_percent": use.sm_percent,
        "last_kernel": use.last_kernel,
        "over_since": use.over_since,
        "processes": [
            {
                "pid": h.process.own_pid,
                "name": h.process.name,
                "container": h.container,
                "used_mib": h.mib,
            }
            for h in sorted(its.held if its else (), key=lambda h: -h.known_mib)
        ],
    }
