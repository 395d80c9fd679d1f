"""What NVML knows of a card, and where such knowledge comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class NoDriver(Exception):
    """The cards of this node cannot be asked at all, and this says why."""


class DriverReplaced(NoDriver):
    """The driver was replaced under the library that this process has loaded."""


@dataclass(frozen=True, slots=True)
class PhysicalCard:
    """One card. ``memory`` in MiB, ``numa`` -1 where unknown; ``problem`` is what a probe found."""

    uuid: str
    index: int
    minor: int
    model: str
    memory: int
    pci: str = ""
    capability: str = ""
    numa: int = -1
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Driver:
    """Versions of the driver and of the newest CUDA that it serves."""

    version: str = ""
    cuda: str = ""


@dataclass(frozen=True, slots=True)
class XidEvent:
    """The driver reported an error. ``uuid`` is '' where it is not known which card has it."""

    uuid: str
    xid: int


class CardSource(Protocol):
    """A driver's library. Every call blocks, perhaps for ever, and may raise NoDriver."""

    def open(self) -> Driver:
        """Load the library and start it; harmless when open."""
        ...

    def cards(self) -> Sequence[PhysicalCard]:
        """All cards, each probed."""
        ...

    def close(self) -> None:
        """Stop the library, so that the next ``open`` counts the cards anew."""
        ...

    def watch(self, uuids: Sequence[str]) -> Sequence[str]:
        """Start to listen for errors; returns the uuids of cards that cannot be listened to."""
        ...

    def wait(self, seconds: float) -> XidEvent | None:
        """The next error of a watched card, or None after ``seconds``. For a thread of its own."""
        ...
