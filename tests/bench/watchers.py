"""What the Hub's process costs while 200 browsers have the form open.

python -m tests.bench hub-watchers

A real JupyterHub with the extender's answer of ``form`` (200 choices, 1,000 nodes, 500 waiting);
200 connections for 200 users read the stream of numbers. Processor time of the Hub's process, in per
cent of one core: without a form open, with numbers that stay, and with numbers that change every
second. No time on the wall is measured, so a loaded machine changes little.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from gpushare.waiting import waiting_object
from tests.bench.form import state, text, waiting
from tests.bench.results import Figure, publish
from tests.unit.hub_integration.hub import Hub
from tests.unit.hub_integration.state import FakeExtender

WATCHERS, SECONDS = 200, 20.0
_TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    line = {"waiting": [waiting_object(pod) for pod in waiting()]}
    with tempfile.TemporaryDirectory() as name, FakeExtender(b"", waiting=line) as extender:
        folder = Path(name)
        extender.body = json.dumps(state()).encode()
        (folder / "catalogue.json").write_text(text())
        settings = {
            "catalogue_file": str(folder / "catalogue.json"),
            "extender_url": extender.url,
            "extender_token_file": "",
        }
        with Hub(folder, "pending", settings) as hub:
            figures = asyncio.run(measure(hub, extender))
    publish("hub-watchers", figures)


async def measure(hub: Hub, extender: FakeExtender) -> list[Figure]:
    pid, size = hub.process.pid, f"{WATCHERS} forms"
    before = resident(pid)
    alone = await cost(pid)
    headers = {"Authorization": "token tester-token"}
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as web:
        for i in range(WATCHERS):
            async with web.post(f"{hub.url}/api/users/user-{i}") as answer:
                assert answer.status == 201
        counts = [0] * WATCHERS
        readers = [asyncio.ensure_future(watch(web, hub, i, counts)) for i in range(WATCHERS)]
        await until(lambda: min(counts) > 0)
        staying = await cost(pid)
        changing = asyncio.ensure_future(change(extender))
        told = sum(counts)
        moving = await cost(pid)
        messages = (sum(counts) - told) / WATCHERS / SECONDS
        after = resident(pid)
        for task in (changing, *readers):
            task.cancel()
        await asyncio.gather(changing, *readers, return_exceptions=True)
    return [
        Figure("processor, no form open", "0 forms", alone, "% core"),
        Figure("processor, numbers that stay", size, staying, "% core"),
        Figure("processor, numbers that change", size, moving, "% core"),
        Figure("messages to each form", size, messages, "a second"),
        Figure("memory for all of them", size, after - before, "MiB"),
    ]


async def watch(web: aiohttp.ClientSession, hub: Hub, i: int, counts: list[int]) -> None:
    async with web.get(f"{hub.url}/gpushare/free/user-{i}") as answer:
        assert answer.status == 200, answer.status
        async for line in answer.content:
            counts[i] += line.startswith(b"data: ")


async def change(extender: FakeExtender) -> None:
    body = state()
    number = 0
    while True:
        number += 1
        body["totals"]["waiting"] = 500 + number
        extender.body = json.dumps(body).encode()
        await asyncio.sleep(1)


async def cost(pid: int) -> float:
    """Per cent of one core that the process takes over ``SECONDS``."""
    began, used = time.monotonic(), ticks(pid)
    await asyncio.sleep(SECONDS)
    return 100 * (ticks(pid) - used) / _TICK / (time.monotonic() - began)


async def until(done: Any) -> None:
    async with asyncio.timeout(120):
        while not done():  # noqa: ASYNC110 - other tasks count, nobody tells
            await asyncio.sleep(0.1)


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
