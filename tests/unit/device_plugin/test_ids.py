from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from device_plugin.api.deviceplugin_pb2 import Device, ListAndWatchResponse
from device_plugin.ids import (
    MAX_MESSAGE,
    Held,
    cdi_device,
    memory_resource,
    message_size,
    nominal_free,
    offer,
    percent_resource,
    size_problem,
    slice_hash,
    true_free,
)
from gpushare.cards import Card
from gpushare.units import GIB, Unit

from .making import A10, MEM, NAMES, PERCENT, T4_0, T4_1

RESOURCE = memory_resource(NAMES, GIB)
ids = st.sets(st.integers(0, 200).map("m{}".format), min_size=1)


@given(ids, st.randoms())
def test_the_order_of_ids_does_not_matter(granted: set[str], random: object) -> None:
    shuffled = list(granted)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert slice_hash(MEM, shuffled) == slice_hash(MEM, sorted(granted))


@given(ids, ids)
def test_other_ids_or_another_resource_give_another_name(one: set[str], other: set[str]) -> None:
    assert (slice_hash(MEM, one) == slice_hash(MEM, other)) == (one == other)
    assert slice_hash(MEM, one) != slice_hash(PERCENT, one)


def test_joined_ids_are_not_mistaken_for_others() -> None:
    assert slice_hash(MEM, ["m1", "m2"]) != slice_hash(MEM, ["m1m2"])


def test_the_cdi_name_is_of_our_kind_and_legal() -> None:
    name = cdi_device(NAMES, slice_hash(MEM, ["m1"]))
    kind, _, device = name.partition("=")
    assert kind == "gpushare/slice"
    assert device.isalnum()
    assert len(device) == 20


def test_units_of_cards() -> None:
    assert RESOURCE.units(T4_0) == 15
    assert RESOURCE.units(A10) == 22
    assert percent_resource(NAMES).units(A10) == 100


def test_a_fresh_node_offers_all_units_healthy_and_short_ids() -> None:
    offered = offer(RESOURCE, [T4_0, T4_1], [], nominal_free(RESOURCE, [T4_0, T4_1], []))
    assert len(offered) == 30
    assert all(offered.values())
    assert max(map(len, offered)) <= 4


def sick(card: Card) -> Card:
    return Card(card.uuid, card.index, card.minor, card.model, card.memory, "XID 79")


def test_all_units_of_a_sick_card_turn_at_once_whoever_holds_which_id() -> None:
    """Ids do not belong to cards: the holder of m0 may well sit on the card that is fine."""
    cards = [sick(T4_0), T4_1]
    on_fine = Held(frozenset({"m0", "m1", "m2"}), frozenset({T4_1.uuid}))
    on_sick = Held(frozenset({"m20", "m21"}), frozenset({T4_0.uuid}))
    held = [on_fine, on_sick]
    offered = offer(RESOURCE, cards, held, nominal_free(RESOURCE, cards, held))
    assert all(offered[id] for id in on_fine.ids)
    assert not any(offered[id] for id in on_sick.ids)
    assert sum(offered.values()) == 15
    assert len(offered) == 30


cards_strategy = st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=6).map(
    lambda shapes: [
        Card(f"GPU-{i}", i, i, "T4", units * 1024, "ok" if well else "sick")
        for i, (units, well) in enumerate(shapes)
    ]
)


@given(cards_strategy, st.data())
def test_what_is_healthy_is_what_healthy_cards_have(cards: list[Card], data: st.DataObject) -> None:
    """Free ones and those of holders on healthy cards add up to the healthy cards' units."""
    pool = RESOURCE.pool(sum(RESOURCE.units(c) for c in cards))
    free_ids, held = list(data.draw(st.permutations(pool))), []
    for card in cards:
        for _ in range(data.draw(st.integers(0, 2))):
            size = data.draw(st.integers(0, RESOURCE.units(card) // 2))
            taken, free_ids = free_ids[:size], free_ids[size:]
            if taken:
                held.append(Held(frozenset(taken), frozenset({card.uuid})))
    offered = offer(RESOURCE, cards, held, nominal_free(RESOURCE, cards, held))
    assert list(offered)[: len(pool)] == pool
    assert sum(offered.values()) == sum(RESOURCE.units(c) for c in cards if c.healthy)
    for holder in held:
        well = all(c.healthy for c in cards if c.uuid in holder.cards)
        assert {offered[id] for id in holder.ids} == {well}


def test_ids_held_from_before_the_pool_shrank_stay_listed() -> None:
    held = [Held(frozenset({"m99"}), frozenset({T4_0.uuid}))]
    offered = offer(RESOURCE, [T4_0], held, nominal_free(RESOURCE, [T4_0], held))
    assert offered["m99"] is True


@given(st.integers(0, 3000), st.booleans())
def test_the_computed_size_is_never_below_the_real_one(count: int, healthy: bool) -> None:
    pool = RESOURCE.pool(count)
    text = "Healthy" if healthy else "Unhealthy"
    message = ListAndWatchResponse(devices=[Device(ID=id, health=text) for id in pool])
    size = message.ByteSize()
    assert size <= message_size(RESOURCE, count) <= size + 3 * count


def test_a_unit_that_is_too_small_is_refused_with_the_fix() -> None:
    cards = [Card(f"GPU-{i}", i, i, "H200", 143771) for i in range(8)]
    problem = size_problem(memory_resource(NAMES, Unit(1)), cards)
    assert problem is not None
    assert "unit MiB" in problem
    fix = Unit.parse(problem.split("set the unit to '")[1].split("'")[0])
    assert message_size(RESOURCE, sum(fix.units(c.memory) for c in cards)) <= MAX_MESSAGE
    assert size_problem(memory_resource(NAMES, fix), cards) is None


def test_usual_nodes_fit_even_in_mib() -> None:
    assert size_problem(memory_resource(NAMES, Unit(1)), [T4_0, T4_1, A10]) is None
    assert size_problem(percent_resource(NAMES), [A10] * 8) is None


PERCENTS = percent_resource(NAMES)
CARDS = [T4_0, T4_1]


def test_memory_that_one_kind_took_is_gone_for_the_other_kind_too() -> None:
    half = {T4_0.uuid: (7680, 50)}
    assert true_free(RESOURCE, CARDS, half, []) == 7 + 15
    assert true_free(PERCENTS, CARDS, half, []) == 50 + 100
    memory_only = {T4_0.uuid: (15360, 0)}
    assert true_free(PERCENTS, CARDS, memory_only, []) == 100
    whole = {card.uuid: (15360, 100) for card in CARDS}
    assert true_free(RESOURCE, CARDS, whole, []) == 0
    assert true_free(PERCENTS, CARDS, whole, []) == 0


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 15), st.booleans()), max_size=8),
    st.integers(0, 1),
    st.integers(1, 15),
)
def test_a_pod_that_is_on_its_way_always_finds_its_ids(
    others: list[tuple[int, int, bool]], card: int, wanted: int
) -> None:
    """Whoever has started or been admitted: what was placed within the cards' memory is admitted."""
    left = [15, 15]
    left[card] -= wanted
    used: dict[str, tuple[int, int]] = {}
    held, next_id = [], 0
    for on, units, started in others:
        if units > left[on]:
            continue
        left[on] -= units
        ids = frozenset(f"m{next_id + n}" for n in range(units))
        next_id += units
        uuid = CARDS[on].uuid
        held.append(Held(ids, frozenset({uuid} if started else ())))
        if started:
            used[uuid] = (used.get(uuid, (0, 0))[0] + units * 1024, 0)
    offered = offer(RESOURCE, CARDS, held, true_free(RESOURCE, CARDS, used, held))
    taken = {id for holder in held for id in holder.ids}
    assert sum(well for id, well in offered.items() if id not in taken) >= wanted
