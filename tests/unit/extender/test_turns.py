"""The line in the running extender: who is woken, who is let by, and for how long room is kept."""

from __future__ import annotations

import copy
from typing import Any

from extender.waiting import Fairness
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import HandClock, running, until
from tests.unit.extender.objects import finished, node, pod, t4

Object = dict[str, Any]


def of(user: str, name: str, at: int, **wants: Any) -> Object:
    made = pod(name, annotations={"hub.jupyter.org/username": user}, **wants)
    made["metadata"]["creationTimestamp"] = f"2025-01-01T00:{at // 60:02}:{at % 60:02}Z"
    return made


def end(api: ApiDouble, name: str) -> None:
    api.put("pods", finished(copy.deepcopy(api.pod("jupyter", name))))


async def test_the_first_in_line_is_woken_and_nobody_takes_its_place(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    clock = HandClock()
    async with running(api, clock=clock) as extender:
        holder = api.put("pods", pod("holder", mem=15))
        assert await extender.bind(holder, "n") == ""
        first = api.put("pods", of("alice", "first", 0, mem=10))
        second = api.put("pods", of("bob", "second", 1, mem=10))
        await extender.caught_up()
        for waiting in (second, first):
            assert extender.filter(waiting, "n")["NodeNames"] == []
        end(api, "holder")
        await until(lambda: api.woken, "somebody is woken")
        assert api.woken == ["first"]
        refused = extender.filter(second, "n")
        assert refused["NodeNames"] == []
        assert "kept for 1 pod(s)" in refused["FailedNodes"]["n"]
        assert "kept for" in await extender.bind(second, "n")
        # What is left beside the first is anybody's.
        assert extender.filter(of("carol", "small", 2, mem=5), "n")["NodeNames"] == ["n"]
        assert extender.filter(first, "n")["NodeNames"] == ["n"]
        assert await extender.bind(first, "n") == ""


async def test_room_is_kept_for_a_time_and_then_the_next_is_woken(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    clock = HandClock()
    async with running(api, clock=clock, fairness=Fairness(grace=15)) as extender:
        holder = api.put("pods", pod("holder", mem=15))
        assert await extender.bind(holder, "n") == ""
        first = api.put("pods", of("alice", "first", 0, mem=15))
        second = api.put("pods", of("bob", "second", 1, mem=15))
        await extender.caught_up()
        for waiting in (first, second):
            extender.filter(waiting, "n")
        end(api, "holder")
        await until(lambda: api.woken == ["first"], "the first is woken")
        assert extender.filter(second, "n")["NodeNames"] == []
        clock.pass_by(16)
        await until(lambda: "second" in api.woken, "the second is woken")
        assert extender.filter(second, "n")["NodeNames"] == ["n"]
        assert await extender.bind(second, "n") == ""


async def test_a_persons_second_pod_comes_after_everybodys_first(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        for name, user, at in (("a1", "alice", 0), ("a2", "alice", 1), ("b1", "bob", 60)):
            api.put("pods", of(user, name, at, mem=20))
        await extender.caught_up()
        queue = [waiter.ref.name for waiter in extender.service.waiting.queue()]
        assert queue == ["a1", "b1", "a2"]


async def test_a_slice_that_somebody_has_counts_when_he_asks_for_another(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        has = api.put("pods", of("alice", "has", 0, mem=1))
        assert await extender.bind(has, "n") == ""
        api.put("pods", of("alice", "another", 1, mem=20))
        api.put("pods", of("bob", "first", 60, mem=20))
        await extender.caught_up()
        assert [w.ref.name for w in extender.service.waiting.queue()] == ["first", "another"]


async def test_a_card_is_emptied_for_the_first_that_has_waited_long(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    clock = HandClock()
    async with running(api, clock=clock, fairness=Fairness(drain=300)) as extender:
        for i in range(6):
            held = api.put("pods", of(f"u{i}", f"h{i}", i, mem=5))
            assert await extender.bind(held, "n") == ""
        whole = api.put("pods", of("alice", "whole", 10, percent=100))
        await extender.caught_up()
        assert extender.filter(whole, "n")["NodeNames"] == []
        end(api, "h5")
        await extender.caught_up()
        late = of("bob", "late", 20, mem=5)
        assert extender.filter(late, "n")["NodeNames"] == ["n"]
        clock.pass_by(301)
        # Its card is the one where less has to end.
        assert "kept for" in extender.filter(late, "n")["FailedNodes"]["n"]
        # A pod that kube-scheduler has not brought for long has nothing kept for it.
        clock.pass_by(361)
        assert extender.filter(late, "n")["NodeNames"] == ["n"]


async def test_a_pod_that_may_go_nowhere_near_keeps_nothing(api: ApiDouble):
    for name in ("n", "m"):
        api.put("nodes", node(name, t4(name, 0)))
    async with running(api) as extender:
        for name in ("n", "m"):
            held = api.put("pods", pod(f"on-{name}", mem=15))
            assert await extender.bind(held, name) == ""
        picky = api.put("pods", of("alice", "picky", 0, mem=15))
        await extender.caught_up()
        assert extender.filter(picky, "m")["NodeNames"] == []
        end(api, "on-n")
        await extender.caught_up()
        assert extender.filter(of("bob", "late", 9, mem=15), "n", "m")["NodeNames"] == ["n"]
