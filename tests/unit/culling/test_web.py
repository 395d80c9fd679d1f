"""Who may ask what, by the Hub's model of a token."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from tornado.httpserver import HTTPServer

from hub_integration.accounting.accountant import Accountant
from hub_integration.accounting.book import Book
from hub_integration.culling.web import Caller, Parts, _Known, application, caller
from hub_integration.culling.workloads import WorkloadWatch
from tests.unit.culling.scenes import card, held, use, view
from tests.unit.culling.test_culler import World, culler, pass_time

PREFIX = "/services/gpushare-culler/"
ACCESS = "access:services!service=gpushare-culler"
MODELS = {
    "ann": {"kind": "user", "name": "ann", "scopes": [ACCESS, "access:servers!user=ann"]},
    "root": {"kind": "user", "name": "root", "admin": True, "scopes": [ACCESS]},
    "anns-server": {
        "kind": "user", "name": "ann", "admin": True,
        "scopes": [ACCESS, "access:servers!server=ann/", "users:activity!user=ann"],
    },
    "dashboard": {"kind": "service", "name": "dash", "scopes": [ACCESS, "delete:servers"]},
    "probe": {"kind": "service", "name": "probe", "scopes": [ACCESS]},
    "stranger": {"kind": "user", "name": "eve", "scopes": ["self"]},
}  # fmt: skip


def test_who_is_what() -> None:
    assert caller(MODELS["ann"]) == Caller("ann", False)
    assert caller(MODELS["root"]) == Caller("root", True)
    assert caller(MODELS["anns-server"]) == Caller("ann", False, "")
    assert caller(MODELS["dashboard"]) == Caller("", True)
    assert caller(MODELS["probe"]) == Caller("", False)
    limited = {**MODELS["root"], "scopes": [ACCESS, "delete:servers!user=root"], "admin": False}
    assert not caller(limited).admin, "a filtered scope is no admin's"


class Auth:
    """As HubOAuth, with the models above for tokens."""

    access_scopes = frozenset({ACCESS})

    async def get_user(self, handler: Any, *, sync: bool) -> dict[str, Any] | None:
        assert not sync
        return MODELS.get(handler.request.headers.get("Authorization", ""))  # type: ignore[return-value]

    def check_scopes(self, wanted: frozenset[str], model: dict[str, Any]) -> set[str]:
        return set(wanted) & set(model["scopes"])


Ask = Callable[..., Any]


@pytest.fixture
async def ask(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ask]:
    monkeypatch.setattr(_Known, "hub_auth", Auth())
    world = World()
    world.add("ann")
    world.add("bob")
    world.cards = view(card(held("ann"), held("bob")), uses=(use("ann"), use("bob", last=25)))
    one = culler(world)
    await pass_time(one, world, 28)
    one.problem = ""
    log = logging.getLogger("test")
    accountant = Accountant(Book("sqlite://"), None)
    parts = Parts(one, WorkloadWatch(one, None, {}, log), accountant, lambda _: "3 GiB on T4")
    server = HTTPServer(application(parts, PREFIX))
    server.listen(0, "127.0.0.1")
    port = next(iter(server._sockets.values())).getsockname()[1]
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(who: str, path: str, method: str = "GET", body: Any = None) -> Any:
            async with session.request(
                method, PREFIX + path, headers={"Authorization": who}, data=body
            ) as answer:
                text = await answer.text()
                kind = answer.headers["Content-Type"]
                return answer.status, json.loads(text) if kind == "application/json" else text

        yield ask
    server.stop()
    await asyncio.sleep(0)


async def test_everybody_sees_their_own(ask: Ask) -> None:
    status, mine = await ask("ann", "api/verdicts/mine")
    assert status == 200
    (verdict,) = mine["verdicts"]
    assert verdict["user"] == "ann"
    assert (verdict["action"], verdict["warned"], verdict["reason"]) == ("warn", True, "idle")
    assert verdict["sentence"] == "Ends at 08:30 UTC unless it is used: unused for 28 min."
    assert verdict["seconds_left"] == 120
    assert verdict["hold"] == {
        "minutes": 30.0, "allowed": True, "why_not": "", "until_at_most": "2026-03-02T09:28:00Z",
    }  # fmt: skip
    assert (await ask("ann", "api/verdicts"))[0] == 403
    assert (await ask("ann", "api/reclaimed?user=bob"))[0] == 403
    assert (await ask("anns-server", "api/verdicts"))[0] == 403
    assert len((await ask("anns-server", "api/verdicts/mine"))[1]["verdicts"]) == 1
    assert (await ask("probe", "api/verdicts/mine"))[1]["verdicts"] == []
    for path in ("api/verdicts", "api/workloads", "api/metrics", "api/usage", "api/reclaimed"):
        assert (await ask("dashboard", path))[0] == 200, path
        assert (await ask("root", path))[0] == 200, path
        assert (await ask("nobody", path))[0] == 401, path
        assert (await ask("stranger", path))[0] == 403, path


async def test_holds(ask: Ask) -> None:
    status, verdict = await ask("ann", "api/holds", "POST")
    assert status == 200
    assert verdict["held_until"] == "2026-03-02T08:58:00Z"
    assert not verdict["warned"]
    assert verdict["sentence"] == "Kept until at least 08:58 UTC, as you asked."
    assert (await ask("ann", "api/holds", "POST", '{"user": "bob"}'))[0] == 403
    assert (await ask("anns-server", "api/holds", "POST", '{"server": "other"}'))[0] == 403
    assert (await ask("root", "api/holds", "POST", '{"user": "bob", "minutes": 10}'))[0] == 200
    for bad in ('{"minutes": "many"}', '{"minutes": NaN}', '{"minutes": -1}', "[]", "{"):
        status, answer = await ask("ann", "api/holds", "POST", bad)
        assert (status, bool(answer["detail"])) == (400, True), bad
    assert (await ask("root", "api/holds", "POST", '{"user": "eve"}'))[0] == 404
    status, answer = await ask("ann", "api/holds", "POST", '{"minutes": 999}')
    assert (status, answer["detail"]) == (400, "It can be kept for 60 min from now at most.")


async def test_health_is_open_and_names_nobody(ask: Ask) -> None:
    assert await ask("nobody", "health") == (200, {"ok": True, "problem": ""})
    assert (await ask("nobody", "api/nothing"))[0] == 404


async def test_usage_as_csv_and_wrong_questions(ask: Ask) -> None:
    status, text = await ask("ann", "api/usage?format=csv&by=day,model")
    assert status == 200
    assert text.startswith("day,model,given_gib_hours")
    status, answer = await ask("ann", "api/usage?by=colour")
    assert (status, "there is no 'colour'" in answer["detail"]) == (400, True)
    assert (await ask("ann", "api/usage?from=yesterday"))[0] == 400
