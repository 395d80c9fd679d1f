"""What one pod wants, in the few numbers that scoring turns on; and as such a key of caches."""

from __future__ import annotations

from dataclasses import dataclass

from gpushare.cards import Card
from gpushare.request import PodRequest


@dataclass(frozen=True, slots=True)
class Ask:
    """``cards`` cards of one node, on each ``mib`` MiB and ``percent`` per cent; ``cpu`` in mCPU.

    ``mib`` is None where the memory follows from the per cent of the card; ``whole`` means cards that
    nobody else is on. ``cards`` is 0 for a pod without a card, which only takes CPU from a node.
    ``models`` names the models it may run on, none: any.
    """

    cards: int = 1
    mib: int | None = None
    percent: int = 0
    whole: bool = False
    cpu: int = 0
    models: tuple[str, ...] = ()

    @property
    def shares(self) -> bool:
        """Whether it takes a part of one card, so that there is a card to choose."""
        return self.cards == 1 and not self.whole

    def allows(self, model: str) -> bool:
        """Whether it may run on cards of ``model``; '' is the model of cards that are not there."""
        if not self.models or not model:
            return bool(model)
        card = Card(uuid="", index=0, minor=0, model=model, memory=0)
        return any(card.is_model(wanted) for wanted in self.models)


def ask_of(request: PodRequest, cpu: int = 0) -> Ask:
    """The ask of a pod. Of several containers the one that is hardest to place stands for all."""
    if not request.containers:
        return Ask(cards=0, cpu=cpu)
    demand = max(
        (container.demand for container in request.containers),
        key=lambda d: (d.whole, d.cards, d.mib or 0, d.percent),
    )
    return Ask(
        cards=demand.cards,
        mib=demand.mib,
        percent=max(demand.percent, demand.memory_percent or 0),
        whole=demand.whole,
        cpu=cpu,
        models=tuple(sorted(request.models)),
    )
