"""Lending memory that nobody was given. Pure.

A slice is memory that its pod may always have. Beyond it, a pod with the annotation
gpushare/gpu-mem-limit may use what no slice was promised. So what is lent is never somebody's: the
sum of all slices, used or not, is left out of it. When a new slice lands on the card there is less
to lend, and those who borrowed most give back first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpushare.quantity import parse_count
from gpushare.units import Unit


@dataclass(frozen=True, slots=True)
class Claim:
    """One pod on one card, in MiB: its slice, the most it may use, and what it uses.

    ``tolerated`` is its allowance for CUDA's own memory. That is neither lent nor counted here.
    """

    slice: int
    most: int
    used: int
    tolerated: int = 0

    @property
    def borrowed(self) -> int:
        return max(0, self.used - self.tolerated - self.slice)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a pod may use now (MiB, without its allowance). ``recalled``: less than it had lent."""

    limit: int
    recalled: bool


def most_of(text: str | None, unit: Unit, slice_mib: int, bound_percent: int) -> tuple[int, str]:
    """The most a slice may use by its annotation, in MiB, and what is wrong with that ('': nothing).

    ``bound_percent`` of the slice is the node's bound (100: no bursting at all).
    """
    if text is None:
        return slice_mib, ""
    try:
        wanted = parse_count(text) * unit.mib
    except ValueError as error:
        return slice_mib, f"{error}: use a whole number of {unit}"
    if wanted < slice_mib:
        return slice_mib, f"{text} {unit} is less than the slice; it is left at that"
    return min(wanted, slice_mib * max(100, bound_percent) // 100), ""


def grants(capacity: int, claims: Mapping[str, Claim]) -> dict[str, Grant]:
    """What each pod on a card may use now.

    ``capacity`` is the card's usable memory in MiB, without what strays hold. If all that was
    borrowed can stay, everyone may use it and what is left besides (so two may reach for the same
    memory; whoever takes it has it). Else everybody's loan is cut to one level.
    """
    spare = max(0, capacity - sum(claim.slice for claim in claims.values()))
    # What someone uses beyond its own most is over the limit anyway, and claims no loan.
    loans = {uid: min(c.borrowed, max(0, c.most - c.slice)) for uid, c in claims.items()}
    left = spare - sum(loans.values())
    if left >= 0:
        return {
            uid: Grant(c.slice + min(max(0, c.most - c.slice), loans[uid] + left), recalled=False)
            for uid, c in claims.items()
        }
    level = _level(spare, list(loans.values()))
    return {
        uid: Grant(c.slice + min(loans[uid], level), recalled=loans[uid] > level)
        for uid, c in claims.items()
    }


def _level(spare: int, loans: list[int]) -> int:
    """The height at which all loans, cut to it, add up to ``spare`` at most."""
    ordered = sorted(loans)
    for i, loan in enumerate(ordered):
        rest = len(ordered) - i
        if loan * rest > spare:
            return spare // rest
        spare -= loan
    return ordered[-1] if ordered else 0


def missing_for(newcomer: str, capacity: int, claims: Mapping[str, Claim]) -> int:
    """MiB that others still have to give back before ``newcomer`` can use all of its slice.

    0: it may start. Only what pods use beyond their slices counts: the slices themselves fit, or
    the scheduler would not have put them here.
    """
    over = sum(claim.borrowed for uid, claim in claims.items() if uid != newcomer)
    spare = max(0, capacity - sum(claim.slice for claim in claims.values()))
    return max(0, over - spare)
