"""The state API through a real socket: who waits and why, what fits, what changes, what was."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from extender.history import DAY
from gpushare import usage, waiting
from gpushare.usage import CardUse, NodeUsage, SliceUse
from gpushare.waiting import PlacedPod, RefusedPod, WaitingPod
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import Extender, HandClock, running, until
from tests.unit.extender.objects import a10, finished, node, pod, t4
from tests.unit.extender.test_http import served

PATHS = (
    "/v1/nodes", "/v1/waiting", "/v1/pods/jupyter/erin/why", "/v1/fit", "/v1/usage", "/v1/events",
    "/v1/history", "/v1/openapi.json", "/metrics",
)  # fmt: skip
AS_READER = {"Authorization": "Bearer reader"}


@pytest.fixture
async def extender(api: ApiDouble) -> AsyncIterator[Extender]:
    api.tokens = {"reader": "ann"}
    api.allowed = {("ann", path) for path in PATHS}
    api.put("nodes", node("t4-1", t4("t4-1", 0), t4("t4-1", 1)))
    api.put("nodes", node("a10-1", a10("a10-1", 0)))
    async with running(api, clock=HandClock()) as extender:
        yield extender


def person(name: str, user: str, **wants: Any) -> dict[str, Any]:
    return pod(name, annotations={"hub.jupyter.org/username": user}, **wants)


async def get(session: aiohttp.ClientSession, path: str, status: int = 200) -> bytes:
    async with session.get(path, headers=AS_READER) as answer:
        text = await answer.read()
        assert answer.status == status, text
        return text


async def test_every_path_needs_a_token(extender: Extender):
    async with served(extender.service.state_app) as session:
        for path in PATHS:
            async with session.request("POST" if path == "/v1/fit" else "GET", path) as answer:
                assert answer.status == 401, path
                assert "bearer token is needed" in (await answer.json())["detail"]
        extender.api.allowed.clear()
        extender.service.clock.pass_by(11)  # type: ignore[attr-defined]
        for path in PATHS:
            method = "POST" if path == "/v1/fit" else "GET"
            async with session.request(method, path, headers=AS_READER) as answer:
                assert answer.status == 403, path


async def test_openapi_describes_all_of_it(extender: Extender):
    async with served(extender.service.state_app) as session:
        described = json.loads(await get(session, "/v1/openapi.json"))
    assert set(described["paths"]) == {
        "/v1/nodes", "/v1/waiting", "/v1/pods/{namespace}/{pod}/why", "/v1/fit", "/v1/usage",
        "/v1/events", "/v1/history", "/v1/plan",
    }  # fmt: skip
    for path in described["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert {"200", "401", "403", "503"} <= set(operation["responses"])


async def test_who_waits_where_in_the_line_and_why(api: ApiDouble, extender: Extender):
    job = api.put("pods", pod("train", percent=100))
    bob = api.put("pods", person("jupyter-bob", "bob", mem=13))
    for placed in (job, bob):
        assert await extender.bind(placed, "t4-1") == ""
    erin = api.put("pods", person("erin", "erin", mem=7))
    erin["metadata"]["annotations"]["gpushare/card-model"] = "T4"
    api.put("pods", erin)
    big = person("big", "dora", mem=20)
    big["metadata"]["creationTimestamp"] = "2025-01-01T00:00:01Z"
    api.put("pods", big)
    await extender.caught_up()
    extender.filter(erin, "t4-1", "a10-1")
    async with served(extender.service.state_app) as session:
        line = waiting.decode(await get(session, "/v1/waiting"))
        assert [(w.pod, w.place, w.of) for w in line] == [("erin", 1, 2), ("big", 2, 2)]
        first = line[0]
        assert (first.user, first.mib, first.models, first.request) == (
            "erin", 7168, ("T4",), "7 GiB on one card (T4)",
        )  # fmt: skip
        assert [(o.node, o.index, o.model, o.free_mib) for o in first.reasons] == [
            ("t4-1", 0, "T4", 0),
            ("t4-1", 1, "T4", 2048),
        ]
        assert first.reasons[1].reason == (
            "wants 7 GiB on one card, the most free on one card is 2 GiB"
        )
        ways = [(way.node, [s.pod for s in way.slices]) for way in first.would_end]
        assert ways == [("t4-1", ["jupyter-bob"])]
        why = waiting.decode_why(await get(session, "/v1/pods/jupyter/erin/why"))
        assert why == first
        api.allowed |= {("ann", f"/v1/pods/jupyter/{name}/why") for name in ("train", "bad", "no")}
        why = waiting.decode_why(await get(session, "/v1/pods/jupyter/train/why"))
        assert isinstance(why, PlacedPod)
        assert (why.node, why.cards[0].mib, why.cards[0].percent) == ("t4-1", 15360, 100)
        api.put("pods", pod("bad", percent=150))
        await extender.caught_up()
        why = waiting.decode_why(await get(session, "/v1/pods/jupyter/bad/why"))
        assert isinstance(why, RefusedPod)
        assert "use at most 100, or 100 or 200" in why.sentence
        missing = json.loads(await get(session, "/v1/pods/jupyter/no/why", 404))
        assert "no pod jupyter/no" in missing["detail"]


async def test_how_many_fit_and_where(api: ApiDouble, extender: Extender):
    held = api.put("pods", pod("held", mem=10))
    assert await extender.bind(held, "t4-1") == ""
    await extender.caught_up()
    body = {
        "requests": [
            {"id": "t4-5", "mib": 5120, "models": ["T4"]},
            {"id": "whole", "percent": 100, "models": ["T4"]},
            {"id": "two", "mib": 1024, "cards": 2},
            {"id": "large", "mib": 30000},
        ]
    }
    async with served(extender.service.state_app) as session:
        async with session.post("/v1/fit", json=body, headers=AS_READER) as answer:
            assert answer.status == 200
            fits = {fit["id"]: fit for fit in (await answer.json())["fits"]}
        assert (fits["t4-5"]["count"], fits["t4-5"]["where"]) == (
            4, {"node": "t4-1", "card": "GPU-t4-1-0"},
        )  # fmt: skip
        assert (fits["whole"]["count"], fits["whole"]["where"]["card"]) == (1, "GPU-t4-1-1")
        assert fits["two"]["count"] == 5
        assert fits["large"] == {
            "id": "large", "count": 0, "where": None, "largest_mib": 23028,
        }  # fmt: skip
        for bad, says in (
            ({"requests": [{"id": "x"}]}, "asks for nothing"),
            ({"requests": [{"id": "x", "mib": -1}]}, "requests.0.mib"),
            ({"requests": [{"id": "x", "percent": 150}]}, "multiple of 100"),
        ):
            async with session.post("/v1/fit", json=bad, headers=AS_READER) as answer:
                assert answer.status == 400
                assert says in (await answer.json())["detail"]


class Reader:
    """A reader of the stream."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.lines = answer.content
        self.last = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        kind, data = "", {}
        async with asyncio.timeout(10):
            while True:
                line = (await self.lines.readline()).decode().rstrip("\n")
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("id: "):
                    self.last = line[4:]
                elif line.startswith("data: "):
                    data = json.loads(line[6:])
                elif not line and kind:
                    return kind, data


async def test_changes_are_streamed_and_taken_up_again(api: ApiDouble, extender: Extender):
    async with served(extender.service.state_app) as session:
        async with session.get("/v1/events", headers=AS_READER) as answer:
            assert answer.content_type == "text/event-stream"
            reader = Reader(answer)
            await answer.content.readline()
            made = api.put("pods", pod("p", mem=3))
            kind, data = await reader.next()
            assert (kind, data["kind"], data["pod"]) == ("change", "waiting", "p")
            mark = reader.last
            assert await extender.bind(made, "t4-1") == ""
            kinds = [(await reader.next())[1]["kind"] for _ in range(2)]
            assert sorted(kinds) == ["placed", "unwaiting"]
            api.put("pods", finished(copy.deepcopy(api.pod("jupyter", "p"))))
            _, data = await reader.next()
            assert (data["kind"], data["node"], data["card"], data["pod"]) == (
                "released", "t4-1", "GPU-t4-1-0", "p",
            )  # fmt: skip
            api.put("nodes", node("t4-1", t4("t4-1", 0, health="XID 79"), t4("t4-1", 1)))
            assert (await reader.next())[1]["kind"] == "card"
        again = {**AS_READER, "Last-Event-ID": mark}
        async with session.get("/v1/events", headers=again) as answer:
            reader = Reader(answer)
            kinds = [(await reader.next())[1]["kind"] for _ in range(4)]
            assert sorted(kinds) == ["card", "placed", "released", "unwaiting"]
        for lost in ("1", "garbage", str(int(mark) + 4000)):
            again = {**AS_READER, "Last-Event-ID": lost}
            async with session.get("/v1/events", headers=again) as answer:
                assert (await Reader(answer).next())[0] == "reset"


async def test_the_stream_forgets_no_more_than_it_says(extender: Extender):
    changes = extender.service.changes
    stream = changes.follow("")
    await anext(stream)
    for _ in range(1500):
        changes.usage()
    assert (await anext(stream)).startswith(b"event: reset")
    changes.usage()
    assert (await anext(stream)).startswith(b"event: change")
    assert len(changes._ring) == 1000
    await stream.aclose()


async def test_history_is_a_day_and_no_more(api: ApiDouble, extender: Extender):
    made = api.put("pods", pod("p", mem=3))
    assert await extender.bind(made, "t4-1") == ""
    history = extender.service.history
    for _ in range(DAY + 10):
        await history.record()
    async with served(extender.service.state_app) as session:
        assert len(json.loads(await get(session, "/v1/history"))["minutes"]) == DAY
        (last,) = json.loads(await get(session, "/v1/history?minutes=1"))["minutes"]
        assert last["capacity_mib"] == 2 * 15360 + 23028
        assert last["allocated_mib"] == 3072
        assert last["used_mib"] is None
        assert last["by_model"]["T4"]["allocated_mib"] == 3072
        assert waiting.seconds_of(last["at"]) > 1e9
        await get(session, "/v1/history?minutes=0", 400)


async def test_what_is_used_is_shown_with_its_age(api: ApiDouble, extender: Extender):
    made = api.put("pods", pod("p", mem=3))
    assert await extender.bind(made, "t4-1") == ""
    uid, card = made["metadata"]["uid"], "GPU-t4-1-0"
    told = NodeUsage(
        "t4-1", 1.0, "watchdog", (CardUse(card, 15360, 900),),
        (SliceUse("jupyter", "p", uid, card, 3072, 3072, used_mib=800),),
    )  # fmt: skip
    extender.service.usage.heard("t4-1", usage.encode(told).encode())
    with pytest.raises(ValueError, match="says that it is node"):
        extender.service.usage.heard("a10-1", usage.encode(told).encode())
    clock = extender.service.clock
    clock.pass_by(7)  # type: ignore[attr-defined]
    async with served(extender.service.state_app) as session:
        answer = json.loads(await get(session, "/v1/usage"))
        assert answer["age_seconds"] == {"t4-1": 7.0}
        assert usage.decode(json.dumps(answer["nodes"][0])) == told
        nodes = json.loads(await get(session, "/v1/nodes"))["nodes"]
        shown = {c["uuid"]: c for n in nodes for c in n["cards"]}
        assert shown[card]["used_mib"] == 900
        assert shown[card]["slices"][0]["used_mib"] == 800
        assert shown["GPU-t4-1-1"]["used_mib"] is None
        clock.pass_by(60)  # type: ignore[attr-defined]
        assert json.loads(await get(session, "/v1/usage")) == {"nodes": [], "age_seconds": {}}
    await until(lambda: True, "nothing")


def test_the_entry_for_a_person_fits_the_shared_shape() -> None:
    assert set(WaitingPod.__dataclass_fields__) >= {"place", "of", "would_end", "reasons", "more"}
