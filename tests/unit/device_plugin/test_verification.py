from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.pod import essence
from device_plugin.refusal import Code, Refused
from device_plugin.verification import Visible, check_room, check_visible, verify
from gpushare.assignment import CardState, assign
from gpushare.cards import Card
from gpushare.placement import Placement, Share, encode
from gpushare.request import Role, parse_request
from gpushare.visibility import visible_variable

from .making import A10, MEM, NAMES, NODE, PERCENT, T4_0, T4_1, app, container, node, pod

THREE = Share(T4_0.uuid, 3072, 0)


def refusal(
    of: dict[str, Any], granted: dict[str, int] | None = None, name: str = "main", at: Any = None
) -> Refused:
    with pytest.raises(Refused) as caught:
        verify(of, name, granted if granted is not None else {MEM: 3}, at or node())
    return caught.value


def test_a_placed_container_may_start() -> None:
    verified = verify(
        pod(container("main", 3), placed=[app("main", THREE)]), "main", {MEM: 3}, node()
    )
    assert verified.container.shares == (THREE,)
    assert verified.footprint == {T4_0.uuid: (3072, 0)}


def test_a_pod_without_placement_is_told_of_the_scheduler() -> None:
    refused = refusal(pod(container("main", 3)))
    assert refused.code is Code.NOT_PLACED
    assert "not placed by the gpushare scheduler" in str(refused)
    assert "schedulerName: gpushare-user-scheduler" in str(refused)


def test_a_forged_placement_is_refused() -> None:
    copied = pod(container("main", 3), placed=[app("main", THREE)], placement_uid="uid-of-bob")
    assert refusal(copied).code is Code.OTHER_POD
    assert refusal(pod(container("main", 3), placed=[app("main", THREE)], on="a10-1")).code is (
        Code.OTHER_NODE
    )
    garbage = pod(container("main", 3), annotations={NAMES.placement: "{"})
    assert refusal(garbage).code is Code.BAD_PLACEMENT


@pytest.mark.parametrize(
    ("share", "code"),
    [
        (Share(T4_0.uuid, 2048, 0), Code.OTHER_AMOUNTS),
        (Share(T4_0.uuid, 4096, 0), Code.OTHER_AMOUNTS),
        (Share(T4_0.uuid, 3072, 1), Code.OTHER_AMOUNTS),
        (Share("GPU-elsewhere", 3072, 0), Code.NO_CARD),
    ],
)
def test_a_placement_that_is_not_what_was_asked_for_is_refused(share: Share, code: Code) -> None:
    assert refusal(pod(container("main", 3), placed=[app("main", share)])).code is code


def test_the_kubelet_must_have_granted_what_is_asked_for() -> None:
    placed = pod(container("main", 3), placed=[app("main", THREE)])
    for granted in ({}, {MEM: 2}, {MEM: 4}, {MEM: 3, PERCENT: 1}):
        refused = refusal(placed, granted)
        assert refused.code is Code.OTHER_IDS, granted


def test_a_container_that_is_not_in_the_placement_gets_nothing() -> None:
    placed = pod(container("main", 3), container("side", 3), placed=[app("main", THREE)])
    assert refusal(placed, name="side").code is Code.NOT_IN_PLACEMENT


def test_a_container_without_limits_gets_nothing_even_if_placed() -> None:
    placed = pod(container("main", 3), container("side"), placed=[app("side", THREE)])
    assert refusal(placed, name="side").code is Code.BAD_REQUEST


def test_an_init_container_may_not_pass_for_an_app_container() -> None:
    placed = pod(container("main", 3), placed=[app("main", THREE, role=Role.INIT)])
    assert refusal(placed).code is Code.OTHER_AMOUNTS


def test_a_sick_card_is_named_with_its_reason() -> None:
    placed = pod(container("main", 3), placed=[app("main", THREE)])
    sick = replace(T4_0, health="XID 79 (fell off the bus)")
    refused = refusal(placed, at=node(sick, T4_1))
    assert refused.code is Code.SICK_CARD
    assert "XID 79" in str(refused)
    assert "delete the pod" in str(refused)


def test_without_a_driver_the_reason_is_the_driver() -> None:
    placed = pod(container("main", 3), placed=[app("main", THREE)])
    none = replace(node(), cards={}, problem="there is no libnvidia-ml.so.1")
    refused = refusal(placed, at=none)
    assert refused.code is Code.NO_DRIVER
    assert "libnvidia-ml" in str(refused)


def test_the_pods_own_choice_of_model_holds() -> None:
    placed = pod(
        container("main", 3),
        placed=[app("main", THREE)],
        annotations={NAMES.card_model: "A10"},
    )
    assert refusal(placed).code is Code.WRONG_CARD


def test_an_invalid_request_is_refused_in_its_own_words() -> None:
    placed = pod(container("main", percent=150), placed=[app("main", THREE)])
    refused = refusal(placed, {PERCENT: 150})
    assert refused.code is Code.BAD_REQUEST
    assert "150" in str(refused)


def test_several_cards_of_one_container() -> None:
    shares = (THREE, Share(T4_1.uuid, 3072, 0))
    annotations = {NAMES.cards: "2"}
    placed = pod(container("main", 3), placed=[app("main", *shares)], annotations=annotations)
    assert verify(placed, "main", {MEM: 3}, node()).container.shares == shares
    one = pod(container("main", 3), placed=[app("main", THREE)], annotations=annotations)
    assert refusal(one).code is Code.OTHER_AMOUNTS


def test_whole_cards_grant_a_hundred_ids_each() -> None:
    whole = [Share(card.uuid, card.memory, 100) for card in (T4_0, T4_1)]
    placed = pod(container("main", percent=200), placed=[app("main", *whole)])
    assert verify(placed, "main", {PERCENT: 200}, node()).footprint == {
        T4_0.uuid: (15360, 100),
        T4_1.uuid: (15360, 100),
    }


def test_per_cent_slices_follow_a_card_whose_memory_a_driver_update_changed() -> None:
    placed = pod(container("main", percent=50), placed=[app("main", Share(T4_0.uuid, 7680, 50))])
    now = replace(T4_0, memory=15109)
    verified = verify(placed, "main", {PERCENT: 50}, node(now))
    assert verified.container.shares == (Share(T4_0.uuid, 7554, 50),)
    assert verified.footprint == {T4_0.uuid: (7554, 50)}
    half = replace(T4_0, memory=8000)
    assert refusal(placed, {PERCENT: 50}, at=node(half)).code is Code.OTHER_AMOUNTS


def test_over_commitment_is_refused_with_the_numbers() -> None:
    placed = pod(container("main", 7), placed=[app("main", Share(T4_0.uuid, 7168, 0))])
    verified = verify(placed, "main", {MEM: 7}, node())
    cards = {T4_0.uuid: T4_0}
    check_room(verified, {T4_0.uuid: (8192, 0)}, cards)
    with pytest.raises(Refused) as caught:
        check_room(verified, {T4_0.uuid: (8193, 0)}, cards)
    assert caught.value.code is Code.FULL_CARD
    assert "15 GiB" in str(caught.value)


def test_a_whole_card_is_shared_with_nobody() -> None:
    placed = pod(container("main", percent=100), placed=[app("main", Share(T4_0.uuid, 15360, 100))])
    verified = verify(placed, "main", {PERCENT: 100}, node())
    for held in ((1, 0), (0, 1), (15360, 100)):
        with pytest.raises(Refused):
            check_room(verified, {T4_0.uuid: held}, {T4_0.uuid: T4_0})
    check_room(verified, {T4_1.uuid: (15360, 100)}, {T4_0.uuid: T4_0})


amounts = st.one_of(
    st.tuples(st.integers(1, 22), st.none()),
    st.tuples(st.none(), st.integers(1, 100)),
    st.tuples(st.none(), st.sampled_from([100, 200, 300])),
    st.tuples(st.integers(1, 22), st.integers(1, 99)),
)
CARDS = (T4_0, T4_1, A10)


def granted_to(limits: tuple[int | None, int | None]) -> dict[str, int]:
    mem, percent = limits
    return {key: value for key, value in ((MEM, mem), (PERCENT, percent)) if value}


@given(st.lists(amounts, min_size=1, max_size=3), st.integers(0, 2))
def test_whatever_the_scheduler_side_places_may_start(
    wants: list[tuple[int | None, int | None]], inits: int
) -> None:
    """The two sides are one language: no placement of the one is refused by the other."""
    containers = [container(f"c{i}", *want) for i, want in enumerate(wants)]
    wanted = pod(*containers[inits:], inits=containers[:inits])
    states = [CardState(card, card.memory, 100, empty=True) for card in CARDS]
    placement = assign("uid-alice", NODE, states, parse_request(wanted, NAMES))
    if not isinstance(placement, Placement):
        return
    wanted["metadata"]["annotations"][NAMES.placement] = encode(placement)
    for i, want in enumerate(wants):
        verified = verify(wanted, f"c{i}", granted_to(want), node(*CARDS))
        assert verified.footprint == placement.footprint()
        check_room(verified, {}, {card.uuid: card for card in CARDS})


@given(amounts, st.sampled_from(CARDS), st.integers(0, 30000), st.integers(0, 100))
def test_nothing_starts_on_an_amount_that_was_not_asked_for(
    want: tuple[int | None, int | None], card: Card, mib: int, percent: int
) -> None:
    """Whatever a placement says: what is let through is what the limits say, within the drift."""
    forged = pod(container("main", *want), placed=[app("main", Share(card.uuid, mib, percent))])
    try:
        verified = verify(forged, "main", granted_to(want), node(*CARDS))
    except Refused:
        return
    (share,) = verified.container.shares
    mem, asked = want
    assert share.percent == (asked or 0)
    assert share.mib == (mem * 1024 if mem else card.memory * (asked or 0) // 100)


def seen_by_environment(says: str | None = "GPU-aaaa", **variable: Any) -> dict[str, Any]:
    """A placed pod as the webhook and the binding leave it, in the shape that the node keeps."""
    key = NAMES.visible("main")
    env = [{"name": "FIRST"}, variable or visible_variable(NAMES, "main")]
    placed = pod(
        container("main", 3, env=env),
        placed=[app("main", Share("GPU-aaaa", 3072, 0))],
        annotations={} if says is None else {key: says},
    )
    return essence(placed, NAMES)


VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
PLACED = app("main", Share("GPU-aaaa", 3072, 0))


def code_of(one: dict[str, Any], visible: Visible) -> Code | None:
    try:
        check_visible(one, PLACED, replace(node(), visible=visible, runtime="cri-o://1.34.0"))
    except Refused as refused:
        return refused.code
    return None


@pytest.mark.parametrize(
    ("one", "void", "cards"),
    [
        (seen_by_environment(), None, None),
        (seen_by_environment(**VOID), None, Code.NO_CDI),
        (seen_by_environment(**ALL), Code.OWN_VISIBLE, Code.NO_CDI),
        # Its image may say 'all', and nobody here can see that.
        (seen_by_environment(name="OTHER", value="1"), Code.OWN_VISIBLE, Code.NO_CDI),
        (seen_by_environment("GPU-bbbb"), Code.OTHER_VISIBLE, Code.OTHER_VISIBLE),
        (seen_by_environment("all"), Code.OTHER_VISIBLE, Code.OTHER_VISIBLE),
        (seen_by_environment(None), Code.OTHER_VISIBLE, Code.OTHER_VISIBLE),
    ],
)
def test_where_the_pods_own_variable_counts_it_must_say_what_the_placement_says(
    one: dict[str, Any], void: Code | None, cards: Code | None
) -> None:
    assert code_of(one, Visible.VOID) == void
    assert code_of(one, Visible.CARDS) == cards
    assert code_of(one, Visible.ANY) is None


def test_the_last_of_two_variables_counts() -> None:
    twice = seen_by_environment()
    own = essence(pod(container("main", 3, env=[ALL])), NAMES)["spec"]["containers"][0]["env"]
    twice["spec"]["containers"][0]["env"] += own
    with pytest.raises(Refused, match="webhook"):
        check_visible(twice, PLACED, replace(node(), visible=Visible.CARDS))
