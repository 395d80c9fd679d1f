"""What the rest of the plugin tells about the slices on this node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpushare.placement import Share
from gpushare.pods import PodRef


@dataclass(frozen=True, slots=True)
class Slice:
    """One pod's slice: what it was given here.

    ``footprint`` maps cards to the (MiB, per cent) that the whole pod holds. ``started``: a
    container of it has been let start; before that it only lays claim to its cards.
    ``containers`` maps names to shares, ``container_ids`` the runtime's ids to names.
    ``annotations`` are the pod's, at least those under our prefix. ``user`` is the uid that its
    processes run as, where the pod says so.
    """

    pod: PodRef
    footprint: Mapping[str, tuple[int, int]]
    containers: Mapping[str, tuple[Share, ...]] = field(default_factory=dict)
    container_ids: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    started: bool = True
    user: int | None = None

    def mib(self, card: str) -> int:
        """MiB of ``card``."""
        return self.footprint.get(card, (0, 0))[0]

    def percent(self, card: str) -> int:
        """Per cent of the compute of ``card``; 0 means best effort."""
        return self.footprint.get(card, (0, 0))[1]
