"""What a pod wants and what a card has left, in words.

Used wherever a person reads it: Events, the state API, the command line, the spawn form.
"""

from __future__ import annotations

from gpushare.assignment import CardState
from gpushare.request import Demand, PodRequest, Role
from gpushare.units import human_mib


def wish(request: PodRequest) -> str:
    """A request as a person would say it: '7 GiB on one T4', '2 whole cards'."""
    peak = [c for c in request.containers if c.role is not Role.INIT] or list(request.containers)
    texts = [_wish(c.demand) for c in peak]
    text = texts[0] if len(texts) == 1 else " and ".join((", ".join(texts[:-1]), texts[-1]))
    return f"{text} ({request.wanted})" if request.models or request.uuids else text


def _wish(demand: Demand) -> str:
    if demand.whole:
        return "one whole card" if demand.cards == 1 else f"{demand.cards} whole cards"
    where = "one card" if demand.cards == 1 else f"each of {demand.cards} cards"
    if demand.mib is None:
        return f"{demand.percent} % of {where}"
    percent = f" and {demand.percent} % of its compute" if demand.percent else ""
    return f"{human_mib(demand.mib)}{percent} on {where}"


def left(state: CardState) -> str:
    """What one card has to give: 'card 0 (T4) 2 GiB'."""
    name = f"card {state.card.index} ({state.card.short_model})"
    if not state.card.healthy:
        return f"{name} is out of service: {state.card.health}"
    free = human_mib(max(0, state.free_mib))
    return f"{name} {free}" + (f", {state.free_percent} %" if state.free_percent < 100 else "")
