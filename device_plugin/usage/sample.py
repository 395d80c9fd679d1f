"""One look at one card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CardSample:
    """What NVML said of one card. Memory in MiB.

    ``memory`` maps pids to what they hold; None where the driver does not tell. ``reserved`` is what
    the driver keeps for itself and no program can have. ``problem``: the card could not be asked, and
    nothing else counts.
    """

    card: str
    total: int = 0
    used: int = 0
    reserved: int = 0
    memory: Mapping[int, int | None] = field(default_factory=dict)
    problem: str = ""

    @property
    def usable(self) -> int:
        """What programs can have of it at most."""
        return self.total - self.reserved

    @property
    def free(self) -> int:
        """What is free in fact."""
        return max(0, self.total - self.used)


@dataclass(frozen=True, slots=True)
class CardActivity:
    """How busy one card was since the look before. Per cent of its SMs' time.

    ``processes`` maps pids to theirs; None where the driver does not tell processes apart, and only
    ``card`` is known.
    """

    card_percent: int = 0
    processes: Mapping[int, int] | None = None
