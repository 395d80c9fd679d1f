"""A slice counts as free only when everybody says so; else there is an alarm with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_integration.culling.following import Sight, Trouble, follow, sight
from hub_integration.culling.memory import State
from tests.unit.culling.scenes import at, card, held, pod, reclaim, server, stray, use, view

NOW = at(41).timestamp()
LATE = at(45).timestamp()
GONE = Sight(running=False, pods_known=True, held=False, processes=0, measured_at=NOW)


def test_from_the_decision_to_the_proof() -> None:
    one = reclaim()
    running = sight(one, {("ann", ""): server("ann")}, [pod("ann")], view(card(held("ann"))), NOW)
    assert follow(one, running, NOW, 120).state is State.STOPPING
    dying = sight(one, {}, [pod("ann", deleting=True)], view(card(held("ann"))), NOW)
    leaving = follow(one, dying, NOW, 120)
    assert (leaving.state, leaving.stopped_at) == (State.LEAVING, NOW)
    counted = sight(leaving, {}, [], view(card(held("ann"))), NOW + 1)
    assert follow(leaving, counted, NOW + 1, 120).state is State.LEAVING
    unmeasured = sight(leaving, {}, [], view(card(), age=30), NOW + 2)
    assert follow(leaving, unmeasured, NOW + 2, 120).freed_at is None, "measured before the stop"
    free = follow(leaving, sight(leaving, {}, [], view(card(), age=1), NOW + 3), NOW + 3, 120)
    assert (free.state, free.freed_at, free.confirmed) == (State.FREED, NOW + 3, True)


TROUBLES = [
    (Trouble.HUB, replace(GONE, running=True)),
    (Trouble.HUB, replace(GONE, pod=pod("ann"))),
    (Trouble.FINALIZER, replace(GONE, pod=pod("ann", deleting=True, finished=True,
                                              finalizers=("example.org/keep",)))),
    (Trouble.NODE, replace(GONE, pod=pod("ann", deleting=True), node_silent=True)),
    (Trouble.NODE, replace(GONE, node_silent=True)),
    (Trouble.PROCESS, replace(GONE, processes=2, used_mib=900)),
    (Trouble.PROCESS, replace(GONE, processes=1, pod=pod("ann", deleting=True, finished=True))),
    (Trouble.UNKNOWN, replace(GONE, pod=pod("ann", deleting=True))),
    (Trouble.UNKNOWN, replace(GONE, held=True)),
    (Trouble.UNKNOWN, replace(GONE, held=None)),
    (Trouble.UNKNOWN, replace(GONE, running=None)),
    (Trouble.UNKNOWN, replace(GONE, pods_known=False, pods_missing=True)),
]  # fmt: skip


@pytest.mark.parametrize(("trouble", "seen"), TROUBLES)
def test_what_does_not_come_back_raises_the_alarm(trouble: Trouble, seen: Sight) -> None:
    leaving = reclaim(state=State.LEAVING, stopped_at=at(40).timestamp())
    assert follow(leaving, seen, at(41).timestamp(), 120).alarm == "", "not yet"
    stuck = follow(leaving, seen, LATE, 120)
    assert (stuck.state, stuck.alarm, stuck.freed_at) == (State.STUCK, trouble.value, None)
    assert stuck.alarm_text
    again = follow(stuck, seen, LATE + 60, 120)
    assert again.alarm_since == LATE
    freed = follow(again, GONE, LATE + 90, 120)
    assert (freed.state, freed.alarm) == (State.FREED, "")


def test_a_process_that_outlives_its_pod_is_seen() -> None:
    one = reclaim(state=State.LEAVING, stopped_at=at(40).timestamp())
    seen = sight(one, {}, [], view(card(), strays=(stray("ann", 700),)), LATE)
    assert follow(one, seen, LATE, 120).alarm == Trouble.PROCESS
    still = sight(one, {}, [], view(card(), uses=(use("ann", mib=500),)), LATE)
    assert (still.processes, still.used_mib) == (1, 500)


def test_the_next_server_of_the_same_user_is_another() -> None:
    newer = replace(server("ann"), started=at(42))
    seen = sight(reclaim(), {("ann", ""): newer}, [], view(card()), LATE)
    assert seen.running is False


def test_without_measurements_it_is_free_but_not_confirmed() -> None:
    one = reclaim(state=State.LEAVING, stopped_at=at(40).timestamp())
    freed = follow(one, replace(GONE, processes=None), LATE, 120)
    assert (freed.state, freed.confirmed) == (State.FREED, False)


def test_a_server_without_a_slice_needs_no_node() -> None:
    one = reclaim(mib=0, node="", uid="", pod="")
    here = {("ann", ""): server("ann")}
    assert follow(one, sight(one, here, None, None, NOW), NOW, 120).state is State.STOPPING
    freed = follow(one, sight(one, {}, None, None, NOW), NOW, 120)
    assert (freed.state, freed.confirmed) == (State.FREED, True)


sights = st.builds(
    Sight,
    running=st.none() | st.booleans(),
    pod=st.none() | st.builds(lambda d, f: pod("ann", deleting=d, finished=f), st.booleans(),
                              st.booleans()),
    pods_known=st.booleans(),
    held=st.none() | st.booleans(),
    processes=st.none() | st.integers(0, 2),
    measured_at=st.sampled_from([0.0, NOW, LATE + 1]),
    node_silent=st.booleans(),
)  # fmt: skip


@given(sights, st.sampled_from([NOW, LATE]))
def test_never_free_while_anything_is_left(seen: Sight, now: float) -> None:
    after = follow(reclaim(), seen, now, 120)
    if after.state is State.FREED:
        assert seen.pod is None
        assert not seen.running
        assert seen.held is False
        assert not seen.processes
    elif now == LATE:
        assert after.alarm, "late, and nobody is told why"
