"""Asking the extender: in time, once for all, and never an exception."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gpushare.request import ContainerRequest, Demand, PodRequest, Role
from hub_integration import state_client
from hub_integration.snapshot import read_snapshot
from hub_integration.state_client import StateAddress, StateClient
from tests.unit.hub_integration.state import A10, T4, FakeExtender, answer, card

LOG = logging.getLogger("test")
GIB_3 = PodRequest((ContainerRequest("notebook", Role.APP, Demand(3072, 0)),), models=("T4",))


def client(extender: FakeExtender, **more: Any) -> StateClient:
    return StateClient(StateAddress(extender.url, **more), LOG)


async def test_what_is_free() -> None:
    with FakeExtender(answer(n1=[card(T4), card(T4, 9216)], n2=[card(A10)])) as extender:
        snapshot = await client(extender).snapshot()
    assert snapshot is not None
    assert snapshot.capacity.room(GIB_3).free == 7
    assert snapshot.capacity.room(GIB_3).total == 10


async def test_the_token_is_shown_and_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_client, "MAX_AGE", 0)
    (tmp_path / "token").write_text("first\n")
    with FakeExtender(answer()) as extender:
        asked = client(extender, token_file=str(tmp_path / "token"))
        await asked.snapshot()
        (tmp_path / "token").write_text("second")
        await asked.snapshot()
    assert [r["Authorization"] for r in extender.requests] == ["Bearer first", "Bearer second"]
    assert extender.requests[0]["X-Gpushare-Authorization"] == "Bearer first"
    assert extender.requests[0]["path"] == "/v1/nodes?slices=false"


async def test_a_hundred_forms_are_one_request() -> None:
    with FakeExtender(answer(n1=[card(T4)])) as extender:
        asked = client(extender)
        snapshots = await asyncio.gather(*(asked.snapshot() for _ in range(100)))
        assert await asked.snapshot() is snapshots[0]
    assert len(extender.requests) == 1
    assert len({id(snapshot) for snapshot in snapshots}) == 1


async def test_one_impatient_form_does_not_end_the_others() -> None:
    with FakeExtender(answer(n1=[card(T4)])) as extender:
        extender.hold = threading.Event()
        asked = client(extender)
        first = asyncio.ensure_future(asked.snapshot())
        second = asyncio.ensure_future(asked.snapshot())
        assert await asyncio.to_thread(extender.asked.wait, 5)
        first.cancel()
        extender.hold.set()
        assert await second is not None


async def test_a_slow_extender_costs_the_timeout_once(caplog: pytest.LogCaptureFixture) -> None:
    with FakeExtender(answer()) as extender:
        extender.hold = threading.Event()
        asked = client(extender, timeout=0.2)
        began = time.monotonic()
        assert await asked.snapshot() is None
        assert 0.15 < time.monotonic() - began < 1
        began = time.monotonic()
        assert await asked.snapshot() is None
        assert time.monotonic() - began < 0.1
        extender.hold.set()
    assert "extender_url" in caplog.text


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"not json"),
        (200, []),
        (200, {"nodes": 7}),
        (200, {"nodes": [{"name": "a"}]}),
        (200, {"nodes": [{"name": "a", "cards": [{"uuid": "x"}]}]}),
        (200, answer(n=[{**card(T4), "free_mib": "much"}])),
        (200, b"\xff" * 10),
        (401, {"detail": "no"}),
        (302, b""),
        (500, b""),
    ],
)
async def test_any_wrong_answer_is_no_answer(
    status: int, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeExtender(body) as extender:
        extender.status = status
        assert await client(extender).snapshot() is None
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "address",
    [
        StateAddress("http://127.0.0.1:1"),
        StateAddress("https://127.0.0.1:1", ca="/none"),
        StateAddress("http://127.0.0.1:1", token_file="/none"),
        StateAddress("http://name.invalid"),
        StateAddress("http://[broken"),
    ],
)
async def test_nothing_there_is_no_answer(address: StateAddress) -> None:
    assert await StateClient(address, LOG).snapshot() is None


async def test_it_says_once_that_it_is_away_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_client, "_FAILURE_AGE", 0)
    monkeypatch.setattr(state_client, "MAX_AGE", 0)
    caplog.set_level(logging.INFO, "test")
    with FakeExtender(answer(n1=[card(T4)])) as extender:
        asked = client(extender)
        extender.status = 503
        for _ in range(3):
            assert await asked.snapshot() is None
        extender.status = 200
        for _ in range(3):
            assert await asked.snapshot() is not None
    assert [r.levelname for r in caplog.records if r.name == "test"] == ["WARNING", "INFO"]


def test_cards_of_a_broken_node_are_not_offered() -> None:
    body = answer(n1=[card(T4)], n2=[card(T4)])
    body["nodes"][0]["problem"] = "the annotation cannot be read"
    assert read_snapshot(json.dumps(body).encode()).capacity.room(GIB_3).free == 5


def test_the_full_product_name_is_preferred() -> None:
    body = answer(n1=[card(("T4", 15360), product="Tesla T4")])
    assert read_snapshot(json.dumps(body).encode()).capacity.room(GIB_3).free == 5


def test_who_waits_is_counted() -> None:
    assert read_snapshot(json.dumps({**answer(), "waiting": [{}, {}]}).encode()).waiting == 2
    assert read_snapshot(json.dumps({**answer(), "waiting": None}).encode()).waiting == 0
