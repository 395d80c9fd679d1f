"""SIGTERM: nothing new is taken on, what has begun is finished, and it does not take long."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.unit.extender.api_double import ApiDouble, Object
from tests.unit.extender.conftest import until
from tests.unit.extender.objects import node, pod, t4

# It drains for at most 5 s, within the 10 s that its pod has; the rest is for slow machines.
PATIENCE = 20


@asynccontextmanager
async def process(
    api: ApiDouble, folder: Path, *more: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A real extender process that follows the double, and the address of its verbs."""
    async with api.serving() as client:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "clusters": [{"name": "c", "cluster": {"server": client._host}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        verbs, state = (f"127.0.0.1:{port}" for port in await _free_ports(2))
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "extender.app", f"--kubeconfig={kubeconfig}",
            f"--verbs={verbs}", f"--state={state}", *more,
        )  # fmt: skip
        try:
            await _ready(state)
            yield running, f"http://{verbs}/scheduler"
        finally:
            if running.returncode is None:
                running.kill()
            await running.wait()


async def _free_ports(count: int) -> list[int]:
    servers = [
        await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0) for _ in range(count)
    ]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


async def _ready(state: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            try:
                async with session.get(f"http://{state}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


def binding(its: Object) -> Object:
    metadata = its["metadata"]
    return {"PodName": metadata["name"], "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"], "Node": "n"}  # fmt: skip


@pytest.mark.parametrize("answered", [True, False])
async def test_a_bind_in_flight_is_finished(api: ApiDouble, tmp_path: Path, answered: bool) -> None:
    """Or, where the API server never answers, given up in time."""
    api.put("nodes", node("n", t4("n", 0)))
    its = api.put("pods", pod("p", mem=7))
    api.answering = asyncio.Event()
    where = "--Extender.workload_map=gpushare/gpushare-workload"
    async with (
        process(api, tmp_path, where) as (running, verbs),
        aiohttp.ClientSession() as session,
    ):
        ask = {"Pod": its, "NodeNames": ["n"]}
        async with session.post(f"{verbs}/filter", json=ask) as answer:
            assert (await answer.json())["NodeNames"] == ["n"]
        bind = asyncio.create_task(session.post(f"{verbs}/bind", json=binding(its)))
        await until(lambda: api.bindings, "the bind is in flight", 30)
        running.send_signal(signal.SIGTERM)
        if answered:
            api.answering.set()
            async with await bind as reply:
                assert await reply.json() == {"Error": ""}
        async with asyncio.timeout(PATIENCE):
            assert await running.wait() == 0
        bind.cancel()
        api.answering.set()
    # And what was learned was written before the end.
    assert "gpushare-workload" in api.configmaps
