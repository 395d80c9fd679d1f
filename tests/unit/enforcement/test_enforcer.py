"""The whole of it over a node in memory: what a notebook's user, a neighbour and an admin see."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from device_plugin.refusal import Refused
from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Share
from gpushare.request import Role

from .making import CARD, OTHER_CARD, pod_slice, uid
from .world import MEMORY, World

NAMES = Names()


def limit(units: int) -> dict[str, str]:
    return {NAMES.gpu_mem_limit: str(units)}


async def test_four_kernels_cannot_take_four_slices() -> None:
    world = World()
    world.add(pod_slice(1, 3072), pod_slice(2, 3072))
    for pid in (11, 12, 13, 14):
        world.run(pid, 2500)
    world.run(21, 3000, pod=2)
    await world.pass_time(2)
    assert world.server.reasons() == ["GPUMemoryExceeded"]
    await world.pass_time(20)
    # The biggest go, youngest first, until what is left fits; the neighbour is not touched.
    assert {pid for pid, _ in world.signals} == {14, 13, 12}
    assert sorted(world.processes) == [11, 21]
    assert world.server.reasons()[-1] == "GPUMemoryWithinSlice"


async def test_the_event_says_what_to_do() -> None:
    world = World()
    world.add(pod_slice(1, 3072))
    world.run(11, 2000)
    world.run(12, 3000)
    await world.pass_time(1)
    ((_, path, event),) = world.server.calls
    assert path == "/api/v1/namespaces/jupyter/events"
    assert event["involvedObject"]["name"] == "jupyter-user1"
    assert event["involvedObject"]["uid"] == uid(1)
    assert event["source"] == {"component": "gpushare", "host": "node-1"}
    assert event["message"] == (
        "uses 4.9 GiB of T4 card 0; its slice is 3 GiB. Free 1.3 GiB within 5 s, or its biggest "
        "GPU process is ended: process 12 (python3) in container notebook, holding 2.9 GiB"
    )


async def test_a_restart_of_the_plugin_is_no_fresh_grace(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add(pod_slice(1, 1024))
    world.run(11, 9000)
    await world.pass_time(4)
    assert world.signals == []
    again = World(tmp_path)
    again.now = world.now + 30  # its restart took a while, which is nobody's fault
    again.add(pod_slice(1, 1024))
    again.run(11, 9000)
    again.stubborn.add(11)
    await again.pass_time(2)
    assert again.signals == [(11, False)]
    # It was asked to end before another restart: what follows is the end, no second question.
    last = World(tmp_path)
    last.now = again.now
    last.add(pod_slice(1, 1024))
    last.run(11, 9000)
    await last.pass_time(3)
    assert last.signals == [(11, True)]


async def test_what_the_card_itself_does_is_measured() -> None:
    world = World()
    world.add(pod_slice(1))
    world.run(11, 100)
    world.active, world.card_percent = {11: 20}, 80
    await world.pass_time(6)
    assert world.enforcer.book.busy == {CARD: 80}


async def test_a_stubborn_process_is_killed() -> None:
    world = World()
    world.add(pod_slice(1, 1024))
    world.run(11, 5000)
    world.stubborn = {11}
    await world.pass_time(20)
    assert world.signals == [(11, False), (11, True)]
    assert world.server.reasons() == [
        "GPUMemoryExceeded", "GPUProcessEnding", "GPUProcessEnded", "GPUMemoryWithinSlice",
    ]  # fmt: skip


async def test_the_containers_first_process_is_spared_while_another_is_there() -> None:
    world = World()
    world.add(pod_slice(1, 1024))
    world.run(11, 5000)
    world.run(12, 10)
    world.inits = {11}
    await world.pass_time(7)
    assert world.signals[0] == (12, False)
    assert (11, False) in world.signals  # then it is alone


async def test_who_does_it_again_and_again_is_evicted() -> None:
    world = World(evict_after=2)
    world.add(pod_slice(1, 1024))
    for pid in (11, 12, 13):
        world.run(pid, 5000)
        await world.pass_time(12)
    assert world.server.deleted() == ["jupyter-user1"]
    reason, deletion = [c for c in world.server.calls if c[0] != "POST"]
    assert reason[1].endswith("/pods/jupyter-user1/status")
    (condition,) = reason[2]["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "GPUSliceEvicted")
    assert deletion[2]["preconditions"]["uid"] == uid(1)
    assert "gracePeriodSeconds" not in deletion[2]  # the pod's own
    (event,) = [e for e in world.server.events() if e["reason"] == "GPUSliceEvicted"]
    assert "2 GPU processes of the pod were ended" in event["message"]


async def test_advisory_tells_and_ends_nothing() -> None:
    world = World(level="advisory")
    world.add(pod_slice(1, 1024))
    world.run(11, 9000)
    await world.pass_time(60)
    assert world.signals == []
    assert world.server.reasons() == ["GPUMemoryExceeded"]
    assert world.enforcer.book.entries[uid(1), CARD].over_seconds > 50


async def test_a_profile_may_be_more_lenient_within_the_bounds() -> None:
    world = World(bounds='{"grace": 20}')
    world.add(pod_slice(1, 1024, annotations={NAMES.enforcement: '{"grace": 500}'}))
    world.run(11, 5000)
    await world.pass_time(19)
    assert world.signals == []
    await world.pass_time(4)
    assert world.signals == [(11, False)]


async def test_a_senseless_annotation_is_said_once_and_changes_nothing() -> None:
    world = World()
    world.add(pod_slice(1, 1024, annotations={NAMES.enforcement: "soft", **limit(0)}))
    await world.pass_time(10)
    assert world.server.reasons() == ["GPUSliceSetting", "GPUSliceSetting"]


async def test_while_the_driver_hangs_nobody_is_ended() -> None:
    world = World()
    world.add(pod_slice(1, 1024))
    world.run(11, 9000)
    await world.pass_time(3)
    world.stuck = True
    await world.pass_time(600)
    assert world.signals == []
    assert "not returned" in world.enforcer.problems()[0]
    world.stuck = False
    await world.pass_time(1)
    assert world.signals == []  # the time in between was nobody's fault
    assert world.enforcer.problems() == []


async def test_a_card_that_cannot_be_asked_has_no_empty_slices() -> None:
    world = World()
    world.add(pod_slice(1, 1024))
    world.run(11, 900)
    await world.pass_time(2)
    world.problem = "NVML: GPU is lost"
    await world.pass_time(2)
    assert world.enforcer.book.entries[uid(1), CARD].total.used == 900
    assert world.enforcer.problems() == [f"{CARD}: NVML: GPU is lost"]


async def test_without_the_capability_it_says_so() -> None:
    world = World()
    world.add(pod_slice(1, 1024))
    world.run(11, 9000)
    world.denied = True
    await world.pass_time(10)
    assert any("capability KILL" in text for text in world.enforcer.problems())
    assert "GPUProcessEnding" not in world.server.reasons()


async def test_strays_are_reported_and_taken_from_the_offer() -> None:
    world = World()
    heard: list[dict[str, int]] = []
    world.enforcer.on_taken(lambda taken: heard.append(dict(taken)))
    world.add(pod_slice(1, 1024), pod_slice(2, 1024, card=OTHER_CARD))
    world.run(90, 1000, pod=None)
    world.run(91, 500, pod=7)
    world.run(92, 100, pod=2)  # its slice is on another card
    await world.pass_time(3)
    assert heard == []
    await world.pass_time(5)
    assert heard == [{CARD: 1792}]
    strays = world.enforcer.states[CARD].account.strays
    assert {s.process.pid: s.pod_uid for s in strays} == {90: "", 91: uid(7), 92: uid(2)}
    assert world.signals == []  # they are nobody's to end
    for pid in (90, 91, 92):
        world.end(pid)
    await world.pass_time(40)
    assert heard == [{CARD: 1792}, {}]


async def test_a_bound_pod_that_has_not_started_owns_no_process() -> None:
    world = World()
    world.add(pod_slice(1, 1024, started=False))
    world.run(11, 500)
    await world.pass_time(1)
    assert world.enforcer.states[CARD].account.stray_mib == 500


# --- lending


async def test_idle_memory_is_lent_and_comes_back_before_a_newcomer_starts() -> None:
    world = World(burst_percent=1000)
    world.add(pod_slice(1, 3072, annotations=limit(12)))
    world.run(11, 3000)
    world.run(12, 8000)
    await world.pass_time(60)
    assert world.signals == []
    world.add(pod_slice(2, 8192, started=False))
    start = asyncio.create_task(world.gate.before_start(_pod(2), _placed(Share(CARD, 8192, 0))))
    await world.pass_time(1)
    assert world.server.reasons() == ["GPUMemoryRecalled"]
    assert not start.done()
    await world.pass_time(5)
    assert world.signals == [(12, False)]
    await world.pass_time(1)
    assert await start == {}


async def test_a_newcomer_waits_no_longer_than_the_kubelet_does() -> None:
    world = World(burst_percent=1000, reach="report")
    world.add(pod_slice(1, 3072, annotations=limit(14)), pod_slice(2, 8192, started=False))
    world.run(11, 11000)
    await world.pass_time(1)
    start = asyncio.create_task(world.gate.before_start(_pod(2), _placed(Share(CARD, 8192, 0))))
    await asyncio.sleep(0)
    await world.pass_time(22)
    with pytest.raises(Refused, match="told to give them back"):
        await start


async def test_what_was_borrowed_since_the_last_look_counts_too() -> None:
    world = World(burst_percent=1000)
    world.add(pod_slice(1, 3072, annotations=limit(12)))
    await world.pass_time(1)
    world.run(11, 11000)
    world.add(pod_slice(2, 8192, started=False))
    start = asyncio.create_task(world.gate.before_start(_pod(2), _placed(Share(CARD, 8192, 0))))
    await asyncio.sleep(0)
    await world.pass_time(1)
    assert not start.done()
    await world.pass_time(6)
    assert await start == {}
    assert world.signals == [(11, False)]


async def test_a_start_on_a_quiet_card_waits_for_nothing() -> None:
    world = World()
    world.add(pod_slice(1, 3072), pod_slice(2, 3072, started=False))
    world.run(11, 3000)
    await world.pass_time(1)
    placed = _placed(Share(CARD, 3072, 0))
    assert await asyncio.wait_for(world.gate.before_start(_pod(2), placed), 1) == {}


async def test_who_may_burst_gets_caps_of_that_size() -> None:
    world = World(burst_percent=200)
    world.add(pod_slice(1, 3072, annotations=limit(12)))
    edits = await world.gate.before_start(_pod(1), _placed(Share(CARD, 3072, 0)))
    env = dict(entry.split("=", 1) for entry in edits["env"])
    assert env["GPU_MEM_BURST_LIMIT"] == str(6144 << 20)
    assert "GPU_MEM_LIMIT" not in env
    assert float(env["GPU_MEM_FRACTION"]) * MEMORY == pytest.approx(6144 - 300, abs=2)


# --- usage


async def test_usage_by_pod_and_container_survives_a_restart() -> None:
    world = World()
    world.add(pod_slice(1, 3072))
    world.run(11, 2000)
    world.active = {11: 40}
    await world.pass_time(6)
    world.holding[11, CARD] = 500
    world.active = {}
    await world.pass_time(6)
    entry = world.enforcer.book.entries[uid(1), CARD]
    assert (entry.total.used, entry.total.peak, entry.total.sm) == (500, 2000, 0)
    ran = entry.total.last_kernel
    assert ran is not None
    assert 5 <= world.wall - ran <= 12
    assert entry.containers["notebook"].peak == 2000

    again = World()
    again.enforcer.book.load(world.enforcer.book.dump())
    again.add(pod_slice(1, 3072))
    await again.pass_time(2)
    entry = again.enforcer.book.entries[uid(1), CARD]
    assert (entry.total.used, entry.total.peak, entry.total.last_kernel) == (0, 2000, ran)


async def test_where_the_driver_tells_no_processes_apart_a_busy_card_keeps_all_awake() -> None:
    world = World()
    world.add(pod_slice(1), pod_slice(2), pod_slice(3))
    world.run(11, 100)
    world.run(21, 100, pod=2)
    world.active, world.card_percent = None, 80
    await world.pass_time(6)
    entries = world.enforcer.book.entries
    assert entries[uid(1), CARD].total.last_kernel == entries[uid(2), CARD].total.last_kernel
    assert entries[uid(1), CARD].total.last_kernel is not None
    assert entries[uid(1), CARD].total.sm is None
    assert entries[uid(3), CARD].total.last_kernel is None  # it has no process there


async def test_the_notice_board(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add(pod_slice(1, 3072), pod_slice(2, 3072))
    edits = await world.gate.before_start(_pod(1), _placed(Share(CARD, 3072, 0)))
    (mount,) = edits["mounts"]
    assert mount["containerPath"] == "/run/gpushare"
    assert mount["hostPath"] == str(tmp_path / "boards" / uid(1))
    assert "ro" in mount["options"]
    world.run(11, 9000)
    world.run(21, 100, pod=2)
    await world.pass_time(4)
    seen = json.loads((tmp_path / "boards" / uid(1) / "slice.json").read_text())
    (card,) = seen["cards"]
    assert (card["model"], card["slice_mib"], card["used_mib"]) == ("T4", 3072, 9000)
    assert [p["used_mib"] for p in card["processes"]] == [9000]  # and nothing of its neighbour
    (notice,) = seen["notices"]
    assert (notice["id"], notice["kind"]) == (1, "GPUMemoryExceeded")
    del world.slices[uid(1)]
    await world.pass_time(1)
    assert not (tmp_path / "boards" / uid(1)).exists()


async def test_a_fault_of_ours_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(period=0.1)
    real, calls, enough = world.enforcer.look, [0], asyncio.Event()

    async def sometimes() -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise KeyError("ours")
        await real()
        enough.set()

    monkeypatch.setattr(world.enforcer, "look", sometimes)
    task = asyncio.create_task(world.enforcer.run())
    await enough.wait()
    task.cancel()
    assert world.enforcer.failed_looks == 1


def _pod(n: int) -> dict:
    its = pod_slice(n).pod
    return {"metadata": {"namespace": its.namespace, "name": its.name, "uid": its.uid}}


def _placed(*shares: Share) -> ContainerPlacement:
    return ContainerPlacement("notebook", Role.APP, shares)
