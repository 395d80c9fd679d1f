"""GET /v1/plan: whose restart would make room, through a real socket."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest

from gpushare import usage
from gpushare.cli.plan import lines
from gpushare.usage import NodeUsage, SliceUse
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import Extender, HandClock, running
from tests.unit.extender.objects import node, pod, t4
from tests.unit.extender.test_http import served

AS_READER = {"Authorization": "Bearer reader"}


@pytest.fixture
async def extender(api: ApiDouble) -> AsyncIterator[Extender]:
    api.tokens = {"reader": "ann"}
    api.allowed = {("ann", "/v1/plan")}
    api.put("nodes", node("t4-1", t4("t4-1", 0), t4("t4-1", 1)))
    async with running(api, clock=HandClock()) as extender:
        yield extender


async def place(extender: Extender, name: str, mem: int) -> str:
    """A pod with a slice; its uid."""
    bound = extender.api.put("pods", pod(name, mem=mem))
    await extender.caught_up()
    assert await extender.bind(bound, "t4-1") == ""
    await extender.caught_up()
    return str(bound["metadata"]["uid"])


def measure(extender: Extender, idle: dict[str, float]) -> None:
    """The node tells for how many seconds each pod (by uid) has been idle."""
    now = time.time()
    slices = []
    for uid, seconds in idle.items():
        held = extender.service.view.ledger.slices[uid]
        (card,) = held.placement.footprint()
        slices.append(
            SliceUse(held.pod.namespace, held.pod.name, uid, card, 1, 1, last_kernel=now - seconds)
        )
    told = NodeUsage("t4-1", now, "watchdog", slices=tuple(slices))
    extender.service.usage.heard("t4-1", usage.encode(told).encode())


async def plan(extender: Extender, path: str = "/v1/plan") -> dict:
    async with (
        served(extender.service.state_app) as session,
        session.get(path, headers=AS_READER) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return json.loads(await answer.text())


async def test_nobody_waits(extender: Extender) -> None:
    answer = await plan(extender)
    assert (answer["pods"], answer["more"]) == ([], 0)
    assert lines(answer) == ["nobody waits"]


async def test_the_idle_pod_is_to_restart_and_the_busy_one_is_not(extender: Extender) -> None:
    idle, busy = await place(extender, "idle", 9), await place(extender, "busy", 9)
    extender.api.put("pods", pod("big", mem=15))
    await extender.caught_up()
    measure(extender, {idle: 7200, busy: 5})
    answer = await plan(extender)
    (big,) = answer["pods"]
    assert big["node"] == "t4-1"
    assert [(r["pod"], r["to"]) for r in big["restarts"]] == [("jupyter/idle", None)]
    assert big["restarts"][0]["idle_seconds"] >= 7200
    assert lines(answer) == [
        "jupyter/big would fit on t4-1: jupyter/idle, idle for 120 min: it would have to stop",
        "one more T4 would take 1 of the 1 waiting pods",
    ]


async def test_a_restart_that_comes_up_beside_another(extender: Extender) -> None:
    first, second = await place(extender, "first", 9), await place(extender, "second", 9)
    # The smaller one comes last and would fit beside either of them.
    small = await place(extender, "small", 5)
    extender.api.put("pods", pod("medium", mem=11))
    await extender.caught_up()
    measure(extender, {first: 9000, second: 1, small: 9000})
    (medium,) = (await plan(extender))["pods"]
    assert medium["restarts"]
    assert {r["pod"] for r in medium["restarts"]} <= {"jupyter/first", "jupyter/small"}


async def test_pods_of_which_nothing_is_known_are_not_idle(extender: Extender) -> None:
    await place(extender, "one", 9)
    await place(extender, "two", 9)
    extender.api.put("pods", pod("big", mem=15))
    await extender.caught_up()
    (big,) = (await plan(extender))["pods"]
    assert (big["node"], big["restarts"]) == (None, [])
    assert big["sentence"] == "no restart of idle pods makes room for jupyter/big"


async def test_idle_is_what_the_caller_says(extender: Extender) -> None:
    one, two = await place(extender, "one", 9), await place(extender, "two", 9)
    extender.api.put("pods", pod("big", mem=15))
    await extender.caught_up()
    measure(extender, {one: 600, two: 1})
    assert (await plan(extender))["pods"][0]["node"] is None
    assert (await plan(extender, "/v1/plan?idle_minutes=5"))["pods"][0]["node"] == "t4-1"
