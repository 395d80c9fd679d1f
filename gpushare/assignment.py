"""Choosing cards on one node: which share of which card each container of a pod gets.

Exact for the pods people write (one to a few containers): a depth-first search in the policy's
order of preference, bounded in steps. Pure, so that the answer to "does it fit" and the answer at
bind are the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from gpushare.cards import Card, models
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.reasons import Code, Reason, Value
from gpushare.request import ContainerRequest, Demand, PodRequest, Policy, Role

_MAX_STEPS = 5000


@dataclass(frozen=True, slots=True)
class CardState:
    """A card and what of it is free: ``free_mib`` MiB and ``free_percent`` per cent.

    ``empty`` means that no other pod holds any part of it.
    """

    card: Card
    free_mib: int
    free_percent: int
    empty: bool

    def fits(self, demand: Demand) -> bool:
        if not self.card.healthy:
            return False
        if demand.whole:
            return self.empty
        mib, percent = demand.on(self.card)
        return mib <= self.free_mib and percent <= self.free_percent

    def take(self, mib: int, percent: int) -> CardState:
        return replace(
            self,
            free_mib=self.free_mib - mib,
            free_percent=self.free_percent - percent,
            empty=False,
        )


# Lower is better. The card's index breaks ties, so that equal states give equal answers.
Preference = Callable[[CardState, Demand], tuple[int, ...]]


def _binpack(state: CardState, demand: Demand) -> tuple[int, ...]:
    mib, percent = demand.on(state.card)
    return (state.free_mib - mib, state.free_percent - percent, state.card.index)


def _spread(state: CardState, demand: Demand) -> tuple[int, ...]:
    mib, percent = demand.on(state.card)
    return (mib - state.free_mib, percent - state.free_percent, state.card.index)


# What the other policies know beyond one node decides before; on the node they fill cards up.
PREFERENCES: dict[Policy, Preference] = {
    **dict.fromkeys(Policy, _binpack),
    Policy.SPREAD: _spread,
}


def assign(
    uid: str,
    node: str,
    cards: Sequence[CardState],
    request: PodRequest,
    policy: Policy = Policy.BINPACK,
    prefer: Collection[str] = (),
) -> Placement | Reason:
    """Place every container of ``request`` on ``cards``, or say why that cannot be.

    The pod's own policy annotation beats ``policy``. ``prefer`` names cards (uuids) that the largest
    container is tried on first, where it fits on them.
    """
    search = _Search(cards, request, PREFERENCES[request.policy or policy], frozenset(prefer))
    found = search.run()
    if found is None:
        return explain(cards, request)
    roles, names = list(Role), [c.name for c in request.containers]
    # The order in which the annotation lists them, so that reading it back gives an equal value.
    found.sort(key=lambda c: (roles.index(c.role), names.index(c.name)))
    return Placement(uid, node, tuple(found))


class _Search:
    """One depth-first search. App containers and sidecars first, largest first; then init containers,
    each of which may use again what the app containers will hold after it."""

    def __init__(
        self,
        cards: Sequence[CardState],
        request: PodRequest,
        prefer: Preference,
        first: frozenset[str],
    ) -> None:
        self.start = {state.card.uuid: state for state in cards if request.allows(state.card)}
        self.prefer = prefer
        self.first = first
        self.steps = 0
        self.steady = sorted(
            (c for c in request.containers if c.role is not Role.INIT), key=_size, reverse=True
        )
        self.inits = [c for c in request.containers if c.role is Role.INIT]

    def run(self) -> list[ContainerPlacement] | None:
        return self._steady(0, dict(self.start), [])

    def _steady(
        self, i: int, states: dict[str, CardState], done: list[ContainerPlacement]
    ) -> list[ContainerPlacement] | None:
        if i == len(self.steady):
            return self._init(0, done)
        container = self.steady[i]
        first = frozenset() if i else self.first
        for chosen in self._choices(states.values(), container.demand, first):
            self.steps += 1
            if self.steps > _MAX_STEPS:
                return None
            placed = _place(container, chosen)
            after = dict(states)
            for share in placed.shares:
                after[share.card] = after[share.card].take(share.mib, share.percent)
            found = self._steady(i + 1, after, [*done, placed])
            if found is not None:
                return found
        return None

    def _init(self, i: int, done: list[ContainerPlacement]) -> list[ContainerPlacement] | None:
        if i == len(self.inits):
            return done
        container = self.inits[i]
        sidecars = [c for c in done if c.role is Role.SIDECAR]
        # The cards that the pod will hold anyway come first: there an init container is free.
        held = frozenset(Placement("", "", tuple(done)).footprint()) or self.first
        chosen = next(self._choices(self._without(sidecars), container.demand, held), None)
        return self._init(i + 1, [*done, _place(container, chosen)]) if chosen else None

    def _without(self, placed: Sequence[ContainerPlacement]) -> list[CardState]:
        states = dict(self.start)
        for container in placed:
            for share in container.shares:
                states[share.card] = states[share.card].take(share.mib, share.percent)
        return list(states.values())

    def _choices(
        self, states: Iterable[CardState], demand: Demand, first: frozenset[str] = frozenset()
    ) -> Iterator[tuple[CardState, ...]]:
        fitting = [state for state in states if state.fits(demand)]
        fitting.sort(key=lambda s: (s.card.uuid not in first, *self.prefer(s, demand)))
        return combinations(fitting, demand.cards)


def _size(container: ContainerRequest) -> tuple[int, int, int, int]:
    demand = container.demand
    return (demand.whole, demand.cards, demand.mib or 0, demand.percent)


def _place(container: ContainerRequest, cards: Sequence[CardState]) -> ContainerPlacement:
    shares = tuple(
        Share(state.card.uuid, *container.demand.on(state.card))
        for state in sorted(cards, key=lambda s: s.card.index)
    )
    return ContainerPlacement(container.name, container.role, shares)


def explain(cards: Sequence[CardState], request: PodRequest) -> Reason:
    """Why ``request`` does not fit on ``cards``: the first obstacle that a person could act on."""
    if not cards:
        return Reason(Code.NO_CARDS)
    allowed = [state for state in cards if request.allows(state.card)]
    if not allowed:
        have = ", ".join(models(state.card for state in cards))
        return Reason(Code.WRONG_MODEL, {"wanted": request.wanted, "models": have})
    healthy = [state for state in allowed if state.card.healthy]
    if not healthy:
        problem = "; ".join(dict.fromkeys(state.card.health for state in allowed))
        return Reason(Code.UNHEALTHY, {"cards": len(allowed), "problem": problem})
    for container in sorted(request.containers, key=_size, reverse=True):
        reason = _explain_one(healthy, container.demand)
        if reason is not None:
            return reason
    return Reason(Code.NO_COMBINATION, {"most_mib": max(state.free_mib for state in healthy)})


def _explain_one(cards: Sequence[CardState], demand: Demand) -> Reason | None:
    fitting = [state for state in cards if state.fits(demand)]
    if len(fitting) >= demand.cards:
        return None
    if len(cards) < demand.cards:
        want_mib = max(demand.on(state.card)[0] for state in cards)
        return Reason(
            Code.TOO_FEW_CARDS, {"want": demand.cards, "want_mib": want_mib, "cards": len(cards)}
        )
    if demand.whole:
        empty = sum(state.empty for state in cards)
        return Reason(
            Code.NO_WHOLE_CARD, {"want": demand.cards, "empty": empty, "cards": len(cards)}
        )
    need = {state.card.uuid: demand.on(state.card) for state in cards}
    want_mib = max(mib for mib, _ in need.values())
    most: dict[str, Value] = {"want_mib": want_mib, "most_mib": max(s.free_mib for s in cards)}
    if all(need[s.card.uuid][0] > s.card.memory for s in cards):
        return Reason(Code.TOO_LARGE, {**most, "most_mib": max(s.card.memory for s in cards)})
    if demand.cards > 1:
        return Reason(
            Code.NOT_ENOUGH_CARDS,
            {"want": demand.cards, "want_mib": want_mib, "fitting": len(fitting)},
        )
    if any(need[s.card.uuid][0] <= s.free_mib for s in cards):
        free_percent = max(s.free_percent for s in cards)
        return Reason(Code.NO_PERCENT, {"want": demand.percent, "most": free_percent})
    return Reason(Code.NO_MEMORY, most)
