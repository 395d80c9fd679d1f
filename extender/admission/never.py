"""What can never fit: too large for every card that the cluster has, were all of them empty. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpushare.assignment import CardState, assign, explain
from gpushare.cards import HEALTHY, Card
from gpushare.placement import Placement
from gpushare.request import PodRequest
from gpushare.units import human_mib

Layout = tuple[tuple[str, int], ...]
_MOST_MODELS = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """``refusal`` is why it can never fit and what would; ``warning`` is what ought to be known."""

    refusal: str = ""
    warning: str = ""


def layouts(nodes: Iterable[Iterable[Card]]) -> frozenset[Layout]:
    """The different kinds of nodes, by the models and sizes of their cards."""
    found = (tuple(sorted((c.model, c.memory) for c in cards)) for cards in nodes)
    return frozenset(layout for layout in found if layout)


def judge(request: PodRequest, known: Iterable[Layout]) -> Verdict:
    """Whether some node of these could take the pod if it were empty and healthy.

    Where there is no card of a wanted model, nobody can say how large one is, so that is no refusal:
    nodes may be added when they are asked for.
    """
    # Which cards a name or an index means, a layout does not tell.
    anywhere = replace(request, uuids=())
    empty = [_states(layout) for layout in known]
    allowed = [[s for s in states if anywhere.allows(s.card)] for states in empty]
    if not any(allowed):
        have = ", ".join(_models(empty)) or "no cards at all"
        return Verdict(
            warning=f"no node has {request.wanted} at present (there are {have}); the pod will wait"
        )
    nodes = [states for states, some in zip(empty, allowed, strict=True) if some]
    if any(isinstance(assign("", "", states, anywhere), Placement) for states in nodes):
        return Verdict()
    # The node that comes nearest says why.
    best = max(nodes, key=lambda states: (sum(s.free_mib for s in states), len(states)))
    why = explain(best, anywhere).sentence()
    offers = ", ".join(
        _models([[s for s in states if anywhere.allows(s.card)] for states in nodes])
    )
    more = _models(empty)
    elsewhere = ""
    if request.models and any(
        isinstance(assign("", "", states, replace(anywhere, models=())), Placement)
        for states in empty
    ):
        elsewhere = f", or name another model: there are {', '.join(more)}"
    return Verdict(
        refusal=f"this can never fit: {why}; ask for less (there is {offers}){elsewhere}"
    )


def _states(layout: Layout) -> list[CardState]:
    return [
        CardState(Card(f"{i}", i, i, model, memory, HEALTHY), memory, 100, empty=True)
        for i, (model, memory) in enumerate(layout)
    ]


def _models(nodes: Iterable[Iterable[CardState]]) -> list[str]:
    """'T4 with 15 GiB', largest first."""
    found = {(s.card.memory, s.card.short_model) for states in nodes for s in states}
    ordered = sorted(found, reverse=True)[:_MOST_MODELS]
    return [f"{model} with {human_mib(memory)}" for memory, model in ordered]
