"""Choosing cards: complete, correct, deterministic, and with a reason where it can't be."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.assignment import CardState, assign, explain
from gpushare.cards import Card
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.reasons import Code, Reason
from gpushare.request import ContainerRequest, Demand, PodRequest, Policy, Role
from tests.unit.gpushare.strategies import requests, states


def brute_force(cards: list[CardState], request: PodRequest) -> bool:
    """Whether any choice of cards for every container is allowed: all are tried."""
    allowed = [s for s in cards if request.allows(s.card) and s.card.healthy]
    choices = [list(combinations(allowed, c.demand.cards)) for c in request.containers]
    return any(_holds(allowed, request, picked) for picked in product(*choices))


def _holds(
    cards: list[CardState], request: PodRequest, picked: tuple[tuple[CardState, ...], ...]
) -> bool:
    """Every moment of the pod's life fits: each init container beside the sidecars, and the rest."""
    pairs = list(zip(request.containers, picked, strict=True))
    steady = [(c, p) for c, p in pairs if c.role is not Role.INIT]
    sidecars = [(c, p) for c, p in pairs if c.role is Role.SIDECAR]
    moments = [steady, *([*sidecars, (c, p)] for c, p in pairs if c.role is Role.INIT)]
    return all(_moment_fits(cards, moment) for moment in moments)


def _moment_fits(
    cards: list[CardState], moment: list[tuple[ContainerRequest, tuple[CardState, ...]]]
) -> bool:
    for state in cards:
        on_it = [c.demand for c, picked in moment if state in picked]
        if any(d.whole for d in on_it) and (len(on_it) > 1 or not state.empty):
            return False
        taken = [d.on(state.card) for d in on_it if not d.whole]
        if sum(m for m, _ in taken) > state.free_mib and taken:
            return False
        if sum(p for _, p in taken) > state.free_percent and taken:
            return False
    return True


@settings(deadline=None)
@given(states(), requests())
def test_a_place_is_found_exactly_when_there_is_one(cards: list[CardState], request: PodRequest):
    found = assign("u", "n", cards, request)
    assert isinstance(found, Placement) == brute_force(cards, request)


@settings(deadline=None)
@given(states(), requests())
def test_what_is_found_fits_and_is_what_was_asked(cards: list[CardState], request: PodRequest):
    found = assign("u", "n", cards, request)
    if isinstance(found, Reason):
        assert found.sentence()
        assert "?" not in found.sentence()
        return
    free = {s.card.uuid: s for s in cards}
    for uuid, (mib, percent) in found.footprint().items():
        state = free[uuid]
        assert state.card.healthy
        assert request.allows(state.card)
        whole = any(
            c.demand.whole and any(s.card == uuid for s in p.shares)
            for c in request.containers
            if (p := found.container(c.name))
        )
        assert whole or (mib <= state.free_mib and percent <= state.free_percent)
        assert not whole or state.empty
    for wanted in request.containers:
        placed = found.container(wanted.name)
        assert placed is not None
        assert placed.role is wanted.role
        assert len(placed.shares) == wanted.demand.cards
        for share in placed.shares:
            card = free[share.card].card
            assert (share.mib, share.percent) == wanted.demand.on(card)


@settings(deadline=None)
@given(states(), requests(), st.randoms())
def test_equal_states_give_equal_answers_in_any_order(cards, request, random):
    shuffled = list(cards)
    random.shuffle(shuffled)
    first, second = assign("u", "n", cards, request), assign("u", "n", shuffled, request)
    assert first == assign("u", "n", cards, request)
    if isinstance(first, Placement):
        assert first == second


def one(demand: Demand, **more) -> PodRequest:
    return PodRequest((ContainerRequest("main", Role.APP, demand),), **more)


def card(index: int, free: int, memory: int = 15360, percent: int = 100) -> CardState:
    state = Card(f"u{index}", index, index, "Tesla T4", memory)
    return CardState(state, free, percent, empty=free == memory and percent == 100)


@pytest.mark.parametrize(
    ("policy", "free", "expected"),
    [
        (Policy.BINPACK, [15360, 8000, 9000], "u1"),
        (Policy.SPREAD, [14000, 15360, 9000], "u1"),
        (Policy.BINPACK, [9000, 9000], "u0"),
        (Policy.SPREAD, [9000, 9000], "u0"),
        (Policy.BINPACK, [1000, 7168, 15360], "u1"),
    ],
)
def test_policies_prefer(policy: Policy, free: list[int], expected: str):
    cards = [card(i, f) for i, f in enumerate(free)]
    found = assign("u", "n", cards, one(Demand(7168, 0)), policy)
    assert isinstance(found, Placement)
    assert set(found.footprint()) == {expected}
    # The pod's own annotation beats the cluster's policy.
    other = Policy.SPREAD if policy is Policy.BINPACK else Policy.BINPACK
    assert assign("u", "n", cards, one(Demand(7168, 0), policy=policy), other) == found


def test_init_containers_use_again_what_the_pod_holds_anyway():
    cards = [card(0, 8192), card(1, 15360)]
    request = PodRequest(
        (
            ContainerRequest("prepare", Role.INIT, Demand(6144, 0)),
            ContainerRequest("main", Role.APP, Demand(8192, 0)),
        )
    )
    found = assign("u", "n", cards, request)
    assert isinstance(found, Placement)
    assert found.footprint() == {"u0": (8192, 0)}


@pytest.mark.parametrize(
    ("cards", "demand", "code", "words"),
    [
        ([], Demand(1024, 0), Code.NO_CARDS, "no shared cards"),
        (
            [card(0, 100)],
            Demand(1024, 0),
            Code.NO_MEMORY,
            "wants 1 GiB on one card, the most free ",
        ),
        ([card(0, 100)], Demand(99999, 0), Code.TOO_LARGE, "the largest card here has 15 GiB"),
        ([card(0, 15360, percent=10)], Demand(1024, 50), Code.NO_PERCENT, "the most free on one"),
        ([card(0, 100)], Demand(None, 100, whole=True), Code.NO_WHOLE_CARD, "0 of 1 empty"),
        ([card(0, 15360)], Demand(1024, 0, cards=2), Code.TOO_FEW_CARDS, "wants 2 cards"),
        ([card(0, 15360), card(1, 0)], Demand(1024, 0, cards=2), Code.NOT_ENOUGH_CARDS, "1 have"),
    ],
)
def test_refusals_say_what_is_wanted_and_what_there_is(cards, demand, code, words):
    found = assign("u", "n", cards, one(demand))
    assert isinstance(found, Reason)
    assert found.code is code
    assert words in found.sentence()
    assert found == explain(cards, one(demand))


def test_a_pod_too_wide_for_its_cards_together_says_so():
    request = PodRequest(
        tuple(ContainerRequest(f"c{i}", Role.APP, Demand(10000, 0)) for i in range(2))
    )
    found = assign("u", "n", [card(0, 15360)], request)
    assert isinstance(found, Reason)
    assert found.code is Code.NO_COMBINATION


def test_the_search_gives_up_rather_than_run_for_ever():
    cards = [card(i, 15360) for i in range(16)]
    request = PodRequest(
        tuple(ContainerRequest(f"c{i}", Role.APP, Demand(8192, 0)) for i in range(17))
    )
    assert isinstance(assign("u", "n", cards, request), Reason)


def test_footprints_add_apps_and_sidecars_and_take_the_peak_of_inits():
    def place(name: str, role: Role, mib: int, percent: int = 0) -> ContainerPlacement:
        return ContainerPlacement(name, role, (Share("u0", mib, percent),))

    placement = Placement(
        "u", "n",
        (place("a", Role.APP, 3), place("b", Role.APP, 4, 5), place("s", Role.SIDECAR, 2),
         place("i", Role.INIT, 8), place("j", Role.INIT, 1, 50)),
    )  # fmt: skip
    assert placement.footprint() == {"u0": (10, 50)}
