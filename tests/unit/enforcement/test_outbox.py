"""What reaches the API server, and what happens while it is away."""

from __future__ import annotations

import asyncio

import pytest

from device_plugin.enforcement import outbox as module
from device_plugin.enforcement.messages import Message, Reason
from device_plugin.enforcement.outbox import Outbox
from gpushare.names import Names
from gpushare.pods import PodRef

from .making import uid
from .world import Failing, Server

POD = PodRef("jupyter", "jupyter-ada", uid(1))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def outbox(server: Server, monkeypatch: pytest.MonkeyPatch) -> Outbox:
    monkeypatch.setattr(module, "_FIRST_RETRY", 0.001)
    monkeypatch.setattr(module, "_LONGEST_RETRY", 0.001)
    return Outbox(server, "node-1", Names())


async def settle(outbox: Outbox, seconds: float = 0.05) -> None:
    task = asyncio.create_task(outbox.run())
    await asyncio.sleep(seconds)
    task.cancel()


def over(text: str = "too much") -> Message:
    return Message(Reason.OVER, text)


async def test_while_the_server_is_away_nothing_is_lost(outbox: Outbox, server: Server) -> None:
    server.failing = Failing(0)
    outbox.event(POD, over())
    outbox.evict(POD, Message(Reason.EVICTED, "evicted"))
    await settle(outbox)
    assert outbox.problem == "answer 0"
    server.failing = None
    await settle(outbox)
    assert [method for method, _, _ in server.calls] == ["POST", "POST", "PATCH", "DELETE"]
    assert outbox.problem == ""


async def test_the_newest_are_kept(outbox: Outbox, server: Server) -> None:
    for number in range(500):
        outbox.event(POD, over(str(number)))
    await settle(outbox)
    assert [e["message"] for e in server.events()] == [str(n) for n in range(300, 500)]


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
async def test_a_refusal_is_final(outbox: Outbox, server: Server, status: int) -> None:
    server.failing = Failing(status)
    outbox.evict(POD, Message(Reason.EVICTED, "evicted"))
    await settle(outbox)
    server.failing = None
    await settle(outbox)
    assert server.calls == []
    outbox.evict(POD, Message(Reason.EVICTED, "evicted"))  # it can be asked for again
    await settle(outbox)
    assert server.deleted() == ["jupyter-ada"]


async def test_one_eviction_at_a_time(outbox: Outbox, server: Server) -> None:
    for _ in range(5):
        outbox.evict(POD, Message(Reason.EVICTED, "evicted"))
    await settle(outbox)
    assert server.deleted() == ["jupyter-ada"]


async def test_a_long_name_still_makes_an_event(outbox: Outbox, server: Server) -> None:
    outbox.event(PodRef("a", "x" * 253, uid(2)), over("y" * 5000))
    await settle(outbox)
    (event,) = server.events()
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) == 1000


async def test_a_fault_of_ours_costs_one_letter(outbox: Outbox, server: Server, caplog) -> None:
    server.failing = KeyError("ours")
    outbox.event(POD, over())
    await settle(outbox)
    assert "fault of ours" in caplog.text
    server.failing = None
    outbox.event(POD, over("next"))
    await settle(outbox)
    assert [e["message"] for e in server.events()] == ["next"]
