"""How much of each choice is free, in words; and what would fit instead of a choice that does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpushare.capacity import Capacity, Room
from profiles.choice import Choice
from profiles.pod import PodParts


@dataclass(frozen=True, slots=True)
class Offer:
    """A choice, what it becomes, and how many of it fit (None: not known)."""

    choice: Choice
    parts: PodParts
    room: Room | None

    @property
    def words(self) -> str:
        """For people: '3 free now'."""
        if self.room is None or not self.parts.request:
            return ""
        if self.room.total == 0:
            return "no such card here now"
        return f"{self.room.free} free now" if self.room.free else "none free now"

    @property
    def full(self) -> bool:
        return self.room is not None and bool(self.parts.request) and self.room.free == 0

    @property
    def impossible(self) -> bool:
        """Whether it would not fit even if nobody else were there."""
        return self.room is not None and bool(self.parts.request) and self.room.total == 0


def offer(choice: Choice, parts: PodParts, capacity: Capacity | None) -> Offer:
    counted = capacity is not None and parts.request
    return Offer(choice, parts, capacity.room(parts.request) if capacity and counted else None)


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB of all healthy cards of a profile."""

    free: int
    total: int

    @property
    def words(self) -> str:
        if self.total == 0:
            return "no such card here now"
        if self.free == 0:
            return "full"
        return f"{_gib(self.free)} of {_gib(self.total)} GiB free"

    @property
    def free_percent(self) -> int:
        return 100 * self.free // self.total if self.total else 0

    @property
    def used_percent(self) -> int:
        return 100 - self.free_percent if self.total else 0


def _gib(mib: int) -> str:
    """With one decimal, where that says something: '40.5', '90'."""
    return f"{round(mib / 1024, 1):g}"


def alternative(wanted: Offer, offers: Iterable[Offer]) -> Offer | None:
    """What to take instead of ``wanted``: something with a card that is free now, if anything is.

    Best the next smaller on the same cards, else the next larger there, else the nearest on others:
    people choose a card's model for a reason.
    """
    free = [
        other
        for other in offers
        if other.room is not None
        and other.room.free > 0
        and other.choice.slice is not None
        and other.choice.key != wanted.choice.key
    ]
    return min(free, key=lambda other: _distance(wanted, other), default=None)


def _distance(wanted: Offer, other: Offer) -> tuple[bool, bool, int, int]:
    (want_mib, want_percent), (mib, percent) = _amount(wanted), _amount(other)
    return (
        other.choice.profile.name != wanted.choice.profile.name,
        mib > want_mib,
        abs(mib - want_mib),
        abs(percent - want_percent),
    )


def _amount(offered: Offer) -> tuple[int, int]:
    """Memory (of a nominal card where only a per cent is said) and per cent, for comparing."""
    if not offered.parts.request.containers:
        return 0, 0
    demand = offered.parts.request.containers[0].demand
    nominal = 16 * 1024
    mib = demand.mib if demand.mib is not None else nominal * demand.percent // 100
    return demand.cards * mib, demand.cards * demand.percent
