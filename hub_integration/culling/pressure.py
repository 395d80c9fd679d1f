"""Whose stay a waiting pod shortens: for each one, the slices that would be missed least.

Somebody who waits must not put everybody under pressure, only as many as make room. For each
waiting pod, in the order in which they will be served, the card is found that is empty enough
soonest: each server's end under pressure is known, and a card is ready when the last of the
slices that have to go has gone. What leaves anyhow is counted as gone, and what one waiting pod
was promised is not promised to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpushare.waiting import WaitingPod
from hub_integration.culling.observed import CardView, Held


@dataclass(slots=True)
class _Room:
    """A card as it will be: what is free on it, and who may still be asked to go."""

    card: CardView
    free_mib: int
    free_percent: int
    stay: dict[str, Held] = field(default_factory=dict)

    def leave(self, held: Held) -> None:
        self.stay.pop(held.uid, None)
        self.free_mib += held.mib
        self.free_percent += held.percent


def pressed(
    cards: Iterable[CardView],
    waiting: Iterable[WaitingPod],
    ends: Mapping[str, datetime],
    leaving: frozenset[str] = frozenset(),
) -> dict[str, int]:
    """For how many waiting pods each of these pods should make room, by uid.

    ``ends``: when each pod that may be ended would end if it were pressed; others never end.
    ``leaving``: uids of pods that are being ended already.
    """
    rooms = [_room(card, leaving) for card in cards if card.usable]
    counted: dict[str, int] = {}
    for pod in waiting:
        for uid in _make_room(rooms, pod, ends):
            counted[uid] = counted.get(uid, 0) + 1
    return counted


def _room(card: CardView, leaving: frozenset[str]) -> _Room:
    room = _Room(card, card.free_mib, card.free_percent)
    room.stay = {held.uid: held for held in card.slices}
    for held in card.slices:
        if held.leaving or held.uid in leaving:
            room.leave(held)
    return room


def _make_room(
    rooms: list[_Room], pod: WaitingPod, ends: Mapping[str, datetime]
) -> dict[str, Held]:
    """The slices that should go for ``pod``, by uid; they and what it takes are booked."""
    by_node: dict[str, list[tuple[datetime | None, int, _Room, list[Held]]]] = {}
    for room in rooms:
        if pod.models and not _is_model(room.card, pod.models):
            continue
        mib, percent = _need(room, pod)
        leavers = _leavers(room, mib, percent, ends)
        if leavers is not None:
            last = max((ends[held.uid] for held in leavers), default=None)
            by_node.setdefault(room.card.node, []).append((last, len(leavers), room, leavers))
    count = max(1, pod.cards, pod.percent // 100)
    best: list[tuple[datetime | None, int, _Room, list[Held]]] = []
    for options in by_node.values():
        chosen = sorted(options, key=_cost)[:count]
        if len(chosen) == count and (not best or _worst(chosen) < _worst(best)):
            best = chosen
    gone: dict[str, Held] = {}
    for _, _, room, leavers in best:
        mib, percent = _need(room, pod)
        gone.update({held.uid: held for held in leavers})
        room.free_mib -= mib
        room.free_percent -= percent
    for room in rooms:  # a pod that goes leaves all its cards
        for held in [held for held in room.stay.values() if held.uid in gone]:
            room.leave(held)
    return gone


def _cost(option: tuple[datetime | None, int, _Room, list[Held]]) -> tuple[float, int, str]:
    last, count, room, _ = option
    return (last.timestamp() if last else 0.0, count, room.card.uuid)


def _worst(
    options: list[tuple[datetime | None, int, _Room, list[Held]]],
) -> tuple[float, int, str]:
    return max(_cost(option) for option in options)


def _need(room: _Room, pod: WaitingPod) -> tuple[int, int]:
    """MiB and per cent of this card: a share in per cent is one of its memory as well."""
    mib = pod.mib or room.card.memory_mib * min(pod.percent, 100) // 100
    return mib, min(pod.percent, 100)


def _leavers(
    room: _Room, mib: int, percent: int, ends: Mapping[str, datetime]
) -> list[Held] | None:
    """The slices that have to go, the soonest first; None where that does not make room."""
    if mib > room.card.memory_mib:
        return None
    going: list[Held] = []
    free_mib, free_percent = room.free_mib, room.free_percent
    movable = [held for held in room.stay.values() if held.uid in ends]
    for held in sorted(movable, key=lambda held: (ends[held.uid], held.uid)):
        if free_mib >= mib and free_percent >= percent:
            break
        going.append(held)
        free_mib, free_percent = free_mib + held.mib, free_percent + held.percent
    if free_mib < mib or free_percent < percent:
        return None
    # Of those, the last may have made the first ones needless.
    for held in list(going):
        if free_mib - held.mib >= mib and free_percent - held.percent >= percent:
            going.remove(held)
            free_mib, free_percent = free_mib - held.mib, free_percent - held.percent
    return going


def _is_model(card: CardView, models: Iterable[str]) -> bool:
    return any(card.is_model(model) for model in models)
