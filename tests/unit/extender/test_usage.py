"""Gathering what is used: real TLS to a plugin that checks who asks, and nodes that fail."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from extender import usage as usage_module
from extender.usage import Endpoint, Gatherer, Usage, UsageSettings
from gpushare import usage
from gpushare.usage import CardUse, NodeUsage
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.authority import Authority
from tests.unit.extender.conftest import HandClock, until

HOST = "gpushare-device-plugin.gpushare.svc"


def endpoint_slice(
    name: str, port: int, *nodes: str, service: str = "gpushare-device-plugin"
) -> Any:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "usage", "port": port}],
        "endpoints": [{"nodeName": node, "addresses": ["127.0.0.1"]} for node in nodes],
    }


@asynccontextmanager
async def plugin(
    authority: Authority, answer: Callable[[web.Request], web.Response]
) -> AsyncIterator[int]:
    async def usage_of(request: web.Request) -> web.Response:
        return answer(request)

    app = web.Application()
    app.add_routes([web.get("/v1/usage", usage_of)])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("plugin", hosts=[HOST]))
    server = TestServer(app)
    await server.start_server(ssl=context)
    try:
        yield int(server.port or 0)
    finally:
        await server.close()


def told(node: str, mib: int) -> web.Response:
    text = usage.encode(NodeUsage(node, 1.0, "watchdog", (CardUse("c", 15360, mib),)))
    return web.Response(text=text)


async def gathered(
    api: ApiDouble, folder: Path, port: int, *nodes: str, ca: Path | None = None
) -> Usage:
    known = Usage(HandClock())
    settings = UsageSettings(
        "gpushare-device-plugin", "gpushare", str(ca or folder / "authority.crt")
    )
    async with api.serving() as client, aiohttp.ClientSession() as session:
        client._settings.api_key["BearerToken"] = "ours"
        client._settings.api_key_prefix["BearerToken"] = "Bearer"
        gatherer = Gatherer(client, settings, known)
        group = gatherer._read(endpoint_slice("s", port, *nodes))
        assert group is not None
        gatherer._apply(group)
        await gatherer.round(session)
    return known


async def test_a_node_is_asked_with_our_token_and_its_certificate_is_checked(
    api: ApiDouble, tmp_path: Path
):
    seen = []

    def answer(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return told("n", 700)

    authority = Authority(tmp_path)
    async with plugin(authority, answer) as port:
        known = await gathered(api, tmp_path, port, "n")
        assert seen == ["Bearer ours"]
        assert known.card("n", "c") == 700
        other = Authority(tmp_path, "other")
        known = await gathered(api, tmp_path, port, "n", ca=other.file)
        assert len(seen) == 1, "the token is shown to nobody who is not trusted"
        assert "certificate verify failed" in known.problems()["n"]
        known = await gathered(api, tmp_path, port, "n", ca=tmp_path / "no")
        assert "Extender.usage_ca" in known.problems()["n"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda _r: web.Response(status=403, text="may not"), "HTTP 403: may not"),
        (lambda _r: web.Response(text="{"), "cannot be read"),
        (lambda _r: told("another", 1), "says that it is node 'another'"),
        (lambda _r: web.Response(status=302, headers={"Location": "http://elsewhere"}), "HTTP 302"),
    ],
)
async def test_a_node_that_answers_badly_is_left_out_and_said_so(
    api: ApiDouble, tmp_path: Path, answer: Any, says: str
):
    async with plugin(Authority(tmp_path), answer) as port:
        known = await gathered(api, tmp_path, port, "n")
    assert known.card("n", "c") is None
    assert says in known.problems()["n"]


async def test_plugins_come_and_go_with_the_endpoint_slices(
    api: ApiDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(usage_module, "_EVERY", 0.0)
    async with plugin(Authority(tmp_path), lambda _r: told("a", 5)) as port:
        api.put("endpointslices", endpoint_slice("one", port, "a"))
        api.put("endpointslices", endpoint_slice("other", port, "x", service="another"))
        known = Usage(HandClock())
        settings = UsageSettings(
            "gpushare-device-plugin", "gpushare", str(tmp_path / "authority.crt")
        )
        async with api.serving() as client:
            gatherer = Gatherer(client, settings, known)
            task = asyncio.create_task(gatherer.run())
            await until(lambda: known.card("a", "c") == 5, "the node is read")
            assert gatherer.members() == {"a": Endpoint("a", "127.0.0.1", port)}
            api.put("endpointslices", endpoint_slice("two", port, "b"))
            await until(lambda: "b" in gatherer.members(), "a second one is seen")
            api.delete("endpointslices", "", "one")
            await until(lambda: known.card("a", "c") is None, "it is forgotten")
            task.cancel()
