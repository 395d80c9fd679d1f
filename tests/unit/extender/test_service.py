"""The whole extender against the API double: what holds from watch to bind and back."""

from __future__ import annotations

import asyncio
import copy

from gpushare import placement
from gpushare.pods import PodRef
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import HandClock, running, until
from tests.unit.extender.objects import NAMES, a10, bound, finished, node, pod, started, t4


def two_nodes(api: ApiDouble) -> None:
    api.put("nodes", node("t4-1", t4("t4-1", 0), t4("t4-1", 1)))
    api.put("nodes", node("a10-1", *(a10("a10-1", i) for i in range(4))))


async def test_a_pod_is_filtered_scored_bound_and_its_placement_is_on_the_binding(api: ApiDouble):
    two_nodes(api)
    async with running(api) as extender:
        alice = api.put("pods", pod("alice", mem=7))
        answer = extender.filter(alice, "t4-1", "a10-1")
        assert sorted(answer["NodeNames"]) == ["a10-1", "t4-1"]
        assert answer["Nodes"] is None
        scores = extender.prioritize(alice, "t4-1", "a10-1")
        assert scores["t4-1"] == 10
        assert scores.get("a10-1", 0) < 10
        assert await extender.bind(alice, "t4-1") == ""
        written = placement.decode(
            api.pod("jupyter", "alice")["metadata"]["annotations"][NAMES.placement]
        )
        assert written.uid == alice["metadata"]["uid"]
        assert written.node == "t4-1"
        assert written.footprint() == {"GPU-t4-1-0": (7168, 0)}
        assert api.bindings[0]["metadata"]["uid"] == alice["metadata"]["uid"]
        await extender.caught_up()
        held = extender.service.view.slice_of(alice["metadata"]["uid"])
        assert held
        assert not held.reserved


async def test_filling_every_card_never_overbooks_and_the_next_is_told_why(api: ApiDouble):
    two_nodes(api)
    async with running(api) as extender:
        pods = [api.put("pods", pod(f"p{i}", mem=5)) for i in range(40)]
        results = await asyncio.gather(
            *(extender.bind(p, "t4-1" if i % 2 else "a10-1") for i, p in enumerate(pods))
        )
        # 15 GiB take three, 22.5 GiB take four.
        assert results.count("") == 2 * 3 + 4 * 4
        assert not list(extender.service.view.ledger.overbooked())
        refused = next(result for result in results if result)
        assert "wants 5 GiB on one card, the most free on one card is" in refused
        late = api.put("pods", pod("late", mem=5))
        answer = extender.filter(late, "t4-1", "a10-1")
        assert answer["NodeNames"] == []
        assert answer["FailedNodes"]["t4-1"] == (
            "wants 5 GiB on one card, the most free on one card is 0 MiB"
        )
        await until(lambda: api.events, "the event is written")
        (event,) = api.events.values()
        assert event["involvedObject"]["uid"] == late["metadata"]["uid"]
        assert event["source"]["component"] == "gpushare"
        assert "wants 5 GiB on one card; free: a10-1 card 0 (A10) 2.5 GiB" in event["message"]
        assert "t4-1 card 0 (T4) 0 MiB" in event["message"]


async def test_a_freed_slice_wakes_the_pod_that_waits_for_it(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        first = api.put("pods", pod("first", mem=15))
        assert await extender.bind(first, "n") == ""
        waiting = api.put("pods", pod("waiting", mem=7))
        large = api.put("pods", pod("large", mem=20))
        await extender.caught_up()
        assert extender.filter(waiting, "n")["NodeNames"] == []
        assert "n" in extender.filter(large, "n")["FailedAndUnresolvableNodes"]
        api.put("pods", finished(copy.deepcopy(api.pod("jupyter", "first"))))
        await until(lambda: api.woken, "woken")
        assert api.woken == ["waiting"]
        assert extender.filter(waiting, "n")["NodeNames"] == ["n"]


async def test_a_deletion_timestamp_frees_nothing(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        first = api.put("pods", pod("first", mem=15))
        assert await extender.bind(first, "n") == ""
        api.change(
            "pods",
            "jupyter",
            "first",
            lambda p: (started(p), p["metadata"].update(deletionTimestamp="2025-01-01T00:00:00Z")),
        )
        await extender.caught_up()
        assert extender.filter(pod("next", mem=1), "n")["NodeNames"] == []
        api.change("pods", "jupyter", "first", lambda p: finished(p) and None)
        await extender.caught_up()
        assert extender.filter(pod("next", mem=1), "n")["NodeNames"] == ["n"]


async def test_a_bind_whose_answer_is_lost_is_settled_by_reading_the_pod(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        lost = api.put("pods", pod("lost", mem=7))
        api.faults = lambda method, _path: "unanswered" if method == "POST" else ""
        assert await extender.bind(lost, "n") == ""
        assert len(api.bindings) == 1
        assert await extender.bind(lost, "n") == ""
        assert len(api.bindings) == 1


async def test_a_bind_that_never_arrived_frees_its_place(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    clock = HandClock()
    async with running(api, clock=clock) as extender:
        lost = api.put("pods", pod("lost", mem=15))

        def faults(method: str, path: str) -> str:
            if path.endswith("/binding"):
                clock.time += 10  # the server's own time limit is over
                return "lost"
            return ""

        api.faults = faults
        assert "did not bind" in await extender.bind(lost, "n")
        assert extender.filter(pod("next", mem=15), "n")["NodeNames"] == ["n"]
        api.faults = lambda _method, _path: ""
        assert await extender.bind(lost, "n") == ""


async def test_an_unknown_outcome_keeps_the_place_until_it_is_known(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        lost = api.put("pods", pod("lost", mem=15))
        await extender.caught_up()
        down = True
        api.faults = lambda _method, path: (
            "unanswered"
            if path.endswith("/binding")
            else ("lost" if down and path.endswith("/lost") else "")
        )
        # The watch may tell first; either way nobody else gets the place.
        await extender.bind(lost, "n")
        assert extender.filter(pod("next", mem=15), "n")["NodeNames"] == []
        down = False
        await until(lambda: extender.service.view.is_bound(lost["metadata"]["uid"]), "settled")


async def test_binding_twice_at_once_is_one_bind(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    async with running(api) as extender:
        twice = api.put("pods", pod("twice", mem=7))
        results = await asyncio.gather(*(extender.bind(twice, "n") for _ in range(5)))
        assert results == [""] * 5
        assert len(api.bindings) == 1
        api.put("nodes", node("m", t4("m", 0)))
        await extender.caught_up()
        assert await extender.bind(twice, "m") == "the pod is bound to n already"


async def test_a_new_pod_of_the_same_name_never_mixes_with_the_old(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        old = api.put("pods", pod("jupyter-alice", mem=15))
        assert await extender.bind(old, "n") == ""
        await extender.caught_up()
        new = api.put("pods", pod("jupyter-alice", mem=15))
        await extender.caught_up()
        # The old one had not started, so it is gone for good.
        assert extender.service.view.slice_of(old["metadata"]["uid"]) is None
        assert "replaced by another" in await extender.bind(old, "n")
        assert await extender.bind(new, "n") == ""
        assert list(extender.service.view.ledger.slices) == [new["metadata"]["uid"]]


async def test_a_pod_deleted_by_force_keeps_its_slice_for_a_while(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    clock = HandClock()
    async with running(api, clock=clock) as extender:
        gone = api.put("pods", pod("gone", mem=15))
        assert await extender.bind(gone, "n") == ""
        api.change("pods", "jupyter", "gone", lambda p: started(p) and None)
        await extender.caught_up()
        waiting = api.put("pods", pod("waiting", mem=15))
        api.delete("pods", "jupyter", "gone")
        await extender.caught_up()
        assert extender.filter(waiting, "n")["NodeNames"] == []
        assert extender.service.view.held_after_deletion(gone["metadata"]["uid"])
        clock.pass_by(41)
        await until(lambda: api.woken == ["waiting"], "woken")
        assert extender.filter(waiting, "n")["NodeNames"] == ["n"]


async def test_a_new_list_removes_what_vanished_meanwhile(api: ApiDouble):
    two_nodes(api)
    api.page = 2
    async with running(api) as extender:
        pods = [api.put("pods", pod(f"p{i}", mem=5)) for i in range(5)]
        for p in pods:
            assert await extender.bind(p, "a10-1") == ""
        await extender.caught_up()
        api.cut()
        api.objects["pods"].pop(("jupyter", "p0"))
        api.objects["nodes"].pop(("", "t4-1"))
        api.put("pods", finished(copy.deepcopy(api.pod("jupyter", "p1"))))
        api.expire()
        await until(lambda: extender.service.pods.progress.lists > 1, "listed again")
        await until(lambda: extender.service.nodes.progress.lists > 1, "listed again")
        await extender.caught_up()
        assert len(extender.service.view.ledger.slices) == 3
        assert extender.service.view.node_names() == ["a10-1"]


async def test_restarting_rebuilds_the_same_ledger(api: ApiDouble):
    two_nodes(api)
    async with running(api) as extender:
        pods = [
            pod("a", mem=3), pod("b", percent=50), pod("c", percent=100), pod("d", mem=2, percent=25),
            pod("e", mem=4, annotations={NAMES.cards: "2"}),
        ]  # fmt: skip
        for p in pods:
            api.put("pods", p)
            assert await extender.bind(p, "a10-1") == "", p["metadata"]["name"]
        await extender.caught_up()
        before = extender.service.view.ledger.snapshot()
    async with running(api) as again:
        assert again.service.view.ledger.snapshot() == before


async def test_forged_placements_take_nothing_and_free_nothing(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    async with running(api) as extender:
        real = api.put("pods", pod("real", mem=15))
        assert await extender.bind(real, "n") == ""
        mine = api.pod("jupyter", "real")["metadata"]["annotations"][NAMES.placement]
        api.put("pods", bound(pod("copied", mem=15), "n", mine))
        api.put("pods", bound(pod("garbage", mem=15), "n", "{"))
        api.put("pods", bound(pod("byhand", mem=15), "n", None))
        await extender.caught_up()
        view = extender.service.view
        assert set(view.ledger.slices) == {real["metadata"]["uid"]}
        assert len(view.doubts) == 3
        # The kubelet gave them devices all the same, so it would refuse one more.
        answer = extender.filter(pod("next", mem=15), "n")
        assert "the kubelet" in answer["FailedNodes"]["n"]

        # Tampering with a running pod's annotation frees nothing, not even after a restart.
        def tamper(p: dict) -> None:
            started(p)
            p["metadata"]["annotations"][NAMES.placement] = mine.replace("15360", "1")

        for name in ("copied", "garbage", "byhand"):
            api.delete("pods", "jupyter", name)
        api.change("pods", "jupyter", "real", tamper)
        await extender.caught_up()
        assert view.ledger.slices[real["metadata"]["uid"]].placement.footprint() == {
            "GPU-n-0": (15360, 0)
        }
    async with running(api) as again:
        # Where it is can't be known now, so it counts on both.
        held = again.service.view.ledger.slices[real["metadata"]["uid"]].placement.footprint()
        assert held == {"GPU-n-0": (15360, 0), "GPU-n-1": (15360, 0)}


async def test_faults_of_the_watch_are_survived(api: ApiDouble):
    two_nodes(api)
    async with running(api) as extender:
        uids = set()
        for i in range(12):
            p = api.put("pods", pod(f"p{i}", mem=2))
            uids.add(p["metadata"]["uid"])
            assert await extender.bind(p, "a10-1") == ""
            if i % 3 == 0:
                api.cut()
            if i % 4 == 0:
                api.expire()
            api.repeat("pods", i)
        await extender.caught_up()
        assert set(extender.service.view.ledger.slices) == uids


async def test_an_unready_extender_says_so(api: ApiDouble):
    two_nodes(api)
    async with running(api) as extender:
        extender.service.verbs.ready = False
        assert "not read the cluster yet" in extender.filter(pod("p", mem=1), "t4-1")["Error"]
        assert "not read the cluster yet" in await extender.bind(pod("p", mem=1), "t4-1")


def test_the_placement_of_a_ref_prints_as_people_write_it():
    assert str(PodRef("a", "b", "c")) == "a/b"
