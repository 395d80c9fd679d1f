"""What somebody can expect who starts a choice now: how many are free, who waits, and how long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpushare.capacity import Capacity
from gpushare.cards import Card
from gpushare.request import PodRequest
from gpushare.waiting import WaitingPod
from hub_integration.availability import Offer
from hub_integration.quota.ledger import Stay

# Fewer slices that came back are no ground for a promise, more than the last ones are history.
_LEAST, _LATEST = 5, 12
_LONGEST = 4 * 60  # minutes; longer expectations are only called long


@dataclass(frozen=True)
class Outlook:
    """The cluster at one moment. ``capacity`` is None where nothing is known."""

    capacity: Capacity | None = None
    waiting: tuple[WaitingPod, ...] = ()
    number_waiting: int = 0
    releases: Sequence[Stay] = ()
    now: float = field(default_factory=time.time)

    def words(self, offered: Offer) -> str:
        """'3 free now', or 'none free now · about 25 min · 2 waiting'."""
        if not offered.full or offered.impossible:
            return offered.words
        ahead = self.ahead(offered.parts.request)
        wait = expected_wait(offered.parts.request, self.capacity, self.releases, ahead, self.now)
        parts = [offered.words, wait, f"{ahead} waiting" if ahead else ""]
        return " · ".join(part for part in parts if part)

    def ahead(self, request: PodRequest) -> int:
        """How many wait for cards that this request would take as well."""
        return sum(competes(pod.models, request.models) for pod in self.waiting)


def competes(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two lists of models, of which none means any, name a card in common."""
    if not one or not other:
        return True
    return any(_card(a).is_model(b) or _card(b).is_model(a) for a in one for b in other)


def expected_wait(
    request: PodRequest,
    capacity: Capacity | None,
    releases: Sequence[Stay],
    ahead: int,
    now: float,
) -> str:
    """How long it takes, in words, as the slices that came back lately let one expect; or ''.

    A slice counts that is large enough by itself, so two small ones that make room together are
    left out: rather too long a time is told than too short a one.
    """
    if capacity is None or not request.containers or request.containers[0].demand.cards > 1:
        return ""
    need = capacity.most_mib(request)
    if request.containers[0].demand.mib is not None:
        need = request.containers[0].demand.mib
    ends = sorted(
        stay.until
        for stay in releases
        if stay.ended is not None
        and stay.holding.mib >= need
        and request.allows(_card(stay.holding.model))
    )[-_LATEST:]
    if len(ends) < _LEAST:
        return ""
    # From the first of them to now: the pause since the last one counts, or an evening on which
    # nobody stops anything would look like the busy morning before it.
    every = max(1.0, (now - ends[0]) / len(ends))
    minutes = (ahead + 1) * every / 60
    if minutes > _LONGEST:
        return f"more than {_LONGEST // 60} h"
    return f"about {max(5, 5 * round(minutes / 5))} min"


def _card(model: str) -> Card:
    return Card("-", 0, 0, model, 0)
