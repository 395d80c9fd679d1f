"""What one container wants of cards: the form into which every way of asking is brought."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpushare.cards import Card


class Role(StrEnum):
    """When a container runs relative to the others of its pod."""

    APP = "app"
    SIDECAR = "sidecar"
    INIT = "init"


class Policy(StrEnum):
    """How cards are chosen, by a cluster's setting or a pod's annotation. docs/architecture.md."""

    FRAGMENTATION = "fragmentation"
    BINPACK = "binpack"
    SPREAD = "spread"
    FIRST_FIT = "first-fit"
    FGD = "fgd"


@dataclass(frozen=True, slots=True)
class Demand:
    """What one container wants on each of ``cards`` distinct cards of one node.

    ``mib`` is None where the memory follows from the card: it is ``memory_percent`` per cent of the
    card's where that is given, else ``percent``. ``whole`` means that nobody else may be on the card.
    """

    mib: int | None
    percent: int
    cards: int = 1
    whole: bool = False
    memory_percent: int | None = None

    def on(self, card: Card) -> tuple[int, int]:
        """(MiB, per cent) that this demand takes of ``card``."""
        if self.whole:
            return card.memory, 100
        if self.mib is None:
            share = self.percent if self.memory_percent is None else self.memory_percent
            return card.memory * share // 100, self.percent
        return self.mib, self.percent
