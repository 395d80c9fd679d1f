"""Ends through jupyterhub-idle-culler with and without an arbiter."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import jupyterhub_idle_culler
import pytest
from aiohttp import web

from hub_integration.culling.hub_api import HubApi, HubFailed
from hub_integration.culling.observed import Server
from hub_integration.culling.stopping import Stopper

STARTED = "2026-03-02T08:00:00.000000Z"
TOKEN = "secret"


class FakeHub:
    """As much of the Hub's API as both cullers use."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []
        self.posts: list[Any] = []
        self.page = 2

    def add(self, user: str, server: str = "") -> None:
        model = {
            "name": server, "url": f"/user/{user}/{server}", "started": STARTED,
            "last_activity": STARTED, "ready": True, "pending": None, "user_options": {},
        }  # fmt: skip
        entry = self.users.setdefault(user, {"name": user, "admin": False, "groups": ["staff"]})
        entry.setdefault("servers", {})[server] = model

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/hub/api/", self.version)
        app.router.add_get("/hub/api/users", self.listed)
        app.router.add_get("/hub/api/users/{user}", self.one)
        app.router.add_delete("/hub/api/users/{user}/server", self.delete)
        app.router.add_delete("/hub/api/users/{user}/servers/{server}", self.delete)
        app.router.add_post("/hub/api/users/{user}/activity", self.activity)
        return app

    async def version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": "6.1.1"})

    async def listed(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"token {TOKEN}"
        offset = int(request.query.get("offset", 0))
        items = list(self.users.values())
        more = None
        if offset + self.page < len(items):
            url = request.url.update_query(offset=str(offset + self.page))
            more = {"url": str(url)}
        page = items[offset : offset + self.page]
        return web.json_response({"items": page, "_pagination": {"next": more}})

    async def one(self, request: web.Request) -> web.Response:
        model = self.users.get(request.match_info["user"])
        return web.json_response(model or {"message": "no such user"}, status=200 if model else 404)

    async def delete(self, request: web.Request) -> web.Response:
        user, server = request.match_info["user"], request.match_info.get("server", "")
        if user == "bad":
            return web.json_response({"message": "the proxy is away"}, status=503)
        self.deleted.append(f"{user}/{server}")
        return web.Response(status=202)

    async def activity(self, request: web.Request) -> web.Response:
        self.posts.append((request.match_info["user"], await request.json()))
        return web.json_response({})


@pytest.fixture
async def fake() -> FakeHub:
    return FakeHub()


@pytest.fixture
async def hub(fake: FakeHub) -> AsyncIterator[HubApi]:
    runner = web.AppRunner(fake.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        yield HubApi(session, f"http://127.0.0.1:{port}/hub/api", TOKEN)
    await runner.cleanup()


def old(*_: object, cull_users: bool = False) -> None:
    """As 1.4: without an arbiter. It must never be called."""
    raise AssertionError("culler 1.4 would end everybody")


@pytest.fixture(params=["2.0", "1.4"])
def stopper(
    hub: HubApi, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Stopper:
    if request.param == "1.4":
        monkeypatch.setattr(jupyterhub_idle_culler, "cull_idle", old)
    stopper = Stopper(hub, TOKEN, logging.getLogger("test"))
    assert stopper.has_arbiter == (request.param == "2.0")
    return stopper


async def test_exactly_the_chosen_are_ended(fake: FakeHub, hub: HubApi, stopper: Stopper) -> None:
    for user in ("ann", "bob", "cyd"):
        fake.add(user)
    fake.add("bob", "second")
    servers = {str(s): s for s in await hub.servers()}
    assert set(servers) == {"ann", "bob", "bob/second", "cyd"}, "all pages are read"
    assert servers["ann"].groups == {"staff"}
    await stopper.stop([servers["bob/second"], servers["cyd"]], lambda _: True)
    assert sorted(fake.deleted) == ["bob/second", "cyd/"]


async def test_what_is_used_at_the_last_moment_stays(
    fake: FakeHub, hub: HubApi, stopper: Stopper
) -> None:
    fake.add("ann")
    (server,) = await hub.servers()
    fake.users["ann"]["servers"][""]["last_activity"] = "2026-03-02T09:00:00Z"
    told: list[Server] = []

    def confirm(now: Server) -> bool:
        told.append(now)
        return False

    await stopper.stop([server], confirm)
    assert fake.deleted == []
    assert told[0].last_activity is not None
    assert told[0].last_activity.hour == 9


async def test_one_that_cannot_be_ended_holds_up_nobody(
    fake: FakeHub, hub: HubApi, stopper: Stopper
) -> None:
    fake.add("bad")
    fake.add("cyd")
    servers = await hub.servers()
    with suppress(HubFailed):  # culler 2.0 only logs it
        await stopper.stop(servers, lambda _: True)
    assert fake.deleted == ["cyd/"]


async def test_posted_activity_reads_as_the_hub_takes_it(fake: FakeHub, hub: HubApi) -> None:
    await hub.post_activity("ann", "second", 1772438400.25)
    ((user, body),) = fake.posts
    assert user == "ann"
    assert json.loads(json.dumps(body)) == {
        "servers": {"second": {"last_activity": "2026-03-02T08:00:00.250000+00:00"}}
    }
