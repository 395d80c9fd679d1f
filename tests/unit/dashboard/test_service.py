"""The parts of the service that talk: login, cordons, trends, plots, and the feed's patience."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_asyncio.client import ApiException

from gpushare.names import Names
from hub_integration.dashboard.cordon import CordonFailed, Cordons, changed
from hub_integration.dashboard.early import EarlyAnswers
from hub_integration.dashboard.feed import Feed
from hub_integration.dashboard.login import Login, Settings, safe_path
from hub_integration.dashboard.neighbours import Away, HubSide, StateApi
from hub_integration.dashboard.pages import Pages
from hub_integration.dashboard.plots import plot
from hub_integration.dashboard.readings import Minute, Reading, read_minutes, read_nodes
from hub_integration.dashboard.screens import Screens
from hub_integration.dashboard.trends import BUCKET, DAY, WEEK, Trends
from hub_integration.dashboard.view import Everybody, cluster_screen, my_screen
from hub_integration.state_client import StateAddress
from tests.unit.dashboard.doubles import (
    T4,
    Double,
    card,
    fake_extender,
    held,
    history,
    node,
    usage,
)

log = logging.getLogger(__name__)


# --- login


SETTINGS = Settings(
    client_id="service-gpushare-dashboard",
    api_token="own",
    api_url="",
    authorize_url="http://hub/hub/api/oauth2/authorize",
    redirect_path="/services/gpushare-dashboard/oauth_callback",
    access_scopes=("access:services!service=gpushare-dashboard",),
)


class FakeHub:
    """The Hub's side of OAuth. ``model`` is who the token belongs to; None: nobody any more."""

    def __init__(self) -> None:
        self.double = Double()
        self.model: dict[str, Any] | None = {
            "kind": "user",
            "name": "alice",
            "scopes": ["access:services!service=gpushare-dashboard"],
        }
        self.double.answers = {"GET /user": self._user}

    def _user(self, request: dict[str, Any]) -> Any:
        return (403, {"message": "no"}) if self.model is None else self.model


@pytest.fixture
async def http() -> Any:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def hub() -> Any:
    fake = FakeHub()
    yield fake
    fake.double.close()


def make_login(http: aiohttp.ClientSession, hub: FakeHub) -> Login:
    login = Login(http, HubSide(http, hub.double.url, "", "own"), SETTINGS)

    async def token(code: str, pending: object) -> str:
        if code != "good":
            raise Away("The Hub does not accept the login; try again.", 400)
        return "alices-token"

    login._token = token  # type: ignore[method-assign, assignment]
    return login


async def log_in(login: Login) -> str:
    address, state = login.start("/services/gpushare-dashboard/cluster")
    assert parse_qs(urlsplit(address).query)["state"] == [state]
    done = await login.finish("good", state, state)
    assert done is not None
    assert done[1] == "/services/gpushare-dashboard/cluster"
    return done[0]


async def test_login_asks_the_hub_with_the_persons_token(
    http: aiohttp.ClientSession, hub: FakeHub
) -> None:
    login = make_login(http, hub)
    session = await login.session(await log_in(login))
    assert session is not None
    assert (session.user, session.admin) == ("alice", False)
    assert {r["token"] for r in hub.double.requests} == {"alices-token"}
    assert session.forged(None)
    assert session.forged("x")
    assert not session.forged(session.xsrf)
    assert await login.session("guessed") is None
    assert await login.session(None) is None


async def test_a_login_from_elsewhere_is_none(http: aiohttp.ClientSession, hub: FakeHub) -> None:
    login = make_login(http, hub)
    assert await login.finish("good", "made-up", "made-up") is None
    _, state = login.start("/")
    assert await login.finish("good", state, None) is None  # another browser's
    assert await login.finish("good", state, state) is None  # and it is used up
    _, state = login.start("/")
    with pytest.raises(Away, match="does not accept"):
        await login.finish("bad", state, state)


async def test_who_is_out_of_the_hub_is_out_here(http: aiohttp.ClientSession, hub: FakeHub) -> None:
    login = make_login(http, hub)
    cookie = await log_in(login)
    session = await login.session(cookie)
    assert session is not None
    hub.model = None
    assert await login.session(cookie) is session  # asked a moment ago
    session.checked = -1e9
    assert await login.session(cookie) is None
    assert await login.session(cookie) is None


async def test_rights_are_the_hubs(http: aiohttp.ClientSession, hub: FakeHub) -> None:
    login = make_login(http, hub)
    assert hub.model is not None
    access = SETTINGS.access_scopes[0]
    hub.model["scopes"] = [access, "admin-ui", "delete:servers!user=alice"]
    half = await login.session(await log_in(login))
    assert half is not None
    assert not half.admin
    hub.model["scopes"] = [access, "admin-ui", "delete:servers"]
    whole = await login.session(await log_in(login))
    assert whole is not None
    assert whole.admin
    hub.model["scopes"] = ["self"]  # not let in at all
    _, state = login.start("/")
    assert await login.finish("good", state, state) is None


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example/", "/\\evil", "evil", "/a\nb", ""]
)
def test_login_ends_here(path: str) -> None:
    assert safe_path(path) == ""


# --- cordons


@given(st.lists(st.sampled_from(["GPU-1", "GPU-2", "0", "1", ""])), st.booleans())
def test_a_cordon_changes_one_card_alone(listed: list[str], out: bool) -> None:
    text = changed(", ".join(listed), "GPU-1", 0, out)
    parts = text.split(",") if text else []
    assert ("GPU-1" in parts) is out
    assert "0" not in parts
    assert {p for p in parts if p != "GPU-1"} == {p for p in listed if p in ("GPU-2", "1")}
    assert len(parts) == len(set(parts))


class Core:
    """Nodes of a cluster in which somebody else writes as well."""

    def __init__(self, conflicts: int = 0) -> None:
        self.annotations = {"gpushare/cordon": "GPU-9"}
        self.conflicts = conflicts
        self.patches: list[Any] = []

    async def read_node(self, name: str) -> Any:
        metadata = SimpleNamespace(annotations=self.annotations, resource_version="7")
        return SimpleNamespace(metadata=metadata)

    async def patch_node(self, name: str, patch: Any, **_: Any) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise ApiException(status=409, reason="Conflict")
        self.patches.append(patch)


async def test_cordon_writes_with_the_version_that_was_read() -> None:
    core = Core(conflicts=2)
    cordons = Cordons(core, Names(), log)
    with pytest.raises(CordonFailed, match="may not patch"):
        await cordons.set("t4-1", "GPU-1", 0, True)
    cordons.allowed = True
    await cordons.set("t4-1", "GPU-1", 0, True)
    (patch,) = core.patches
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["annotations"] == {"gpushare/cordon": "GPU-9,GPU-1"}
    core.conflicts = 99
    with pytest.raises(CordonFailed, match="try again"):
        await cordons.set("t4-1", "GPU-1", 0, False)


# --- trends and plots


def test_a_week_is_kept_and_found_again(tmp_path: Path) -> None:
    now = 1_795_269_000.0
    trends = Trends(tmp_path / "trends.json", log)
    assert trends.add(read_minutes(history(now)))
    days = [Minute(now - WEEK - BUCKET * i, 100, 50, 20, 0) for i in range(200)]
    trends.add(days)  # older than a week: not kept beside newer ones
    trends.save()
    again = Trends(tmp_path / "trends.json", log)
    again.load()
    assert again.week() == trends.week()
    assert len(again.week()) <= WEEK // BUCKET
    (tmp_path / "trends.json").write_text("{broken")
    broken = Trends(tmp_path / "trends.json", log)
    broken.load()
    assert broken.week() == []


def test_a_full_bucket_is_not_replaced_by_its_remains() -> None:
    trends = Trends(None, log)
    whole = [Minute(60.0 * i, 100, 50, 20, 0) for i in range(20)]
    trends.add(whole)
    trends.add([Minute(540.0, 100, 99, 99, 5), Minute(1200.0, 100, 10, 5, 0)])
    assert [m.allocated for m in trends.week()] == [50, 50, 10]


def test_plots_say_what_they_show() -> None:
    now = time.time()
    drawn = plot(read_minutes(history(now)), "Last 24 hours", now, DAY)
    assert drawn is not None
    assert "given on average" in drawn.words
    assert "up to 2 waiting" in drawn.words
    assert drawn.given.startswith("M")
    assert drawn.used
    assert 3 <= len(drawn.ticks) <= 4
    assert plot([], "Last 24 hours", now, DAY) is None
    unmeasured = [Minute(now - 60 * i, 100, 50, None, 0) for i in range(10, 0, -1)]
    drawn = plot(unmeasured, "x", now, DAY)
    assert drawn is not None
    assert drawn.used == ""
    assert "nobody waited" in drawn.words


# --- the feed


async def test_changes_are_read_at_once_and_trouble_keeps_the_last_known(
    http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    extender = fake_extender()
    state = StateApi(http, StateAddress(extender.url, timeout=5))
    feed = Feed(state, HubSide(http, "http://none", "", ""), Trends(None, log), log)
    running = asyncio.create_task(feed.run())

    async def until(wanted: Any) -> Reading:
        async with asyncio.timeout(60):
            while True:
                event = feed.next_look
                if wanted(feed.reading):
                    return feed.reading
                await event.wait()

    try:
        reading = await until(lambda r: r.known)
        assert [n.name for n in reading.nodes] == ["t4-1", "a10-1"]
        assert reading.waiting[0].user == "frank"
        extender.answers["GET /v1/nodes"] = (503, {"detail": "not ready"})
        extender.change()
        old = await until(lambda r: r.problem)
        assert "not ready" in old.problem
        assert old.nodes == reading.nodes
        assert old.at == (await until(lambda r: r.problem)).at
        # An older extender: no usage, no line, no stream.
        nodes = {"nodes": [node("n1", card(T4, 0, held("zoe", 1024, None)))]}
        extender.answers = {"GET /v1/nodes": nodes}
        fresh = await until(lambda r: not r.problem)
        assert fresh.nodes[0].cards[0].slices[0].used_mib is None
        assert fresh.waiting == ()
    finally:
        running.cancel()
        extender.close()


async def test_the_culler_away_takes_its_words_along(http: aiohttp.ClientSession) -> None:
    extender = fake_extender()
    culler = Double()
    culler.answers = {"GET /api/verdicts": {"verdicts": [{"user": "alice", "pod": "p"}]}}
    culler.answers["GET /api/reclaimed"] = {"reclaimed": []}
    state = StateApi(http, StateAddress(extender.url, timeout=5))
    feed = Feed(state, HubSide(http, "http://none", culler.url, "t"), Trends(None, log), log)
    await feed.look()
    assert feed.reading.culler
    assert feed.reading.verdicts[0].user == "alice"
    culler.answers = {}
    await feed.look()
    assert not feed.reading.culler
    assert feed.reading.verdicts == ()
    assert feed.reading.nodes
    extender.close()
    culler.close()


# --- allowances and hours, asked for with the person's own token


async def test_allowances_and_hours(http: aiohttp.ClientSession) -> None:
    double = Double()
    account = {"user": "bob", "words": "1 of 2 slices in use", "grants": []}
    usage_rows = {"rows": [{"day": "2026-11-21", "model": "T4", "given": 14.25, "used": 8.0}]}
    double.answers = {
        "GET /hub/gpushare/quotas": {"quotas": [account]},
        "GET /hub/gpushare/quotas/bob": account,
        "POST /hub/gpushare/quotas/bob/grants": (201, account),
        "GET /culler/api/usage": usage_rows,
    }
    service = HubSide(http, f"{double.url}/hub/api", f"{double.url}/culler", "own")
    state = StateApi(http, StateAddress(""))
    screens = Screens(Feed(state, service, Trends(None, log), log), Pages("/s/", "/"), service)
    person = service.as_person("admins-token")
    table = await screens.allowances(person)
    assert "1 of 2 slices in use" in table
    await person.grant("bob", -5, "deadline")
    parts = await screens.mine("bob", service.as_person("bobs-token"))
    assert "14.2" in parts["hours"]
    assert "1 of 2 slices in use" in parts["hours"]
    tokens = {(r["method"], r["path"]): r["token"] for r in double.requests}
    assert tokens["POST", "/hub/gpushare/quotas/bob/grants"] == "admins-token"
    assert tokens["GET", "/hub/gpushare/quotas/bob"] == "bobs-token"
    assert tokens["GET", "/culler/api/usage"] == "bobs-token"
    (posted,) = [r["body"] for r in double.requests if r["method"] == "POST"]
    assert posted == {"gib_hours": -5, "note": "deadline"}
    double.answers = {}
    assert await screens.allowances(person) == ""  # a Hub without quotas
    with pytest.raises(Away, match="extender_url is not set"):
        await state.get("/v1/nodes")
    double.close()


# --- a thousand nodes


def test_a_thousand_nodes(record_property: Any) -> None:
    """The whole screen from JSON to HTML. Not judged by time; the figure is for whoever asks."""
    cards = [
        [
            card(T4, i, *(held(f"u{n}-{i}-{s}", 3072, 900) for s in range(2)), node=f"n{n}")
            for i in range(4)
        ]
        for n in range(1000)
    ]
    data = {"nodes": [node(f"n{n:04}", *cards[n]) for n in range(1000)]}
    used = usage(data, time.time())
    text = json.dumps(data), json.dumps(used)
    clock = time.perf_counter
    began = clock()
    nodes = read_nodes(json.loads(text[0]), json.loads(text[1]))
    read = clock()
    reading = Reading(at=time.time(), nodes=nodes)
    screen = cluster_screen(reading, time.time())
    parts = Pages("/s/", "/").cluster(screen, "", [], True)
    written = clock()
    everybody = Everybody(reading)
    indexed = clock()
    for n in range(100):
        my_screen(everybody, f"u{n}-0-0", time.time())
    mine = clock()
    assert len(parts) == 1005
    assert sum(map(len, parts.values())) < 1_000_000
    figures = {
        "read_ms": read - began,
        "write_ms": written - read,
        "index_ms": indexed - written,
        "my_screen_ms": (mine - indexed) / 100,
    }
    for name, seconds in figures.items():
        record_property(name, round(1000 * seconds, 2))
    print({name: round(1000 * seconds, 2) for name, seconds in figures.items()})


# --- the first seconds


def test_there_is_an_answer_before_the_service_is_loaded() -> None:
    early = EarlyAnswers("127.0.0.1", 0)
    host, port = early.socket.getsockname()
    url = f"http://{host}:{port}/services/gpushare-dashboard/"
    asked = requests.Session()
    asked.trust_env = False
    assert asked.get(url, timeout=30).status_code == 200  # all that the Hub waits for
    assert asked.get(url + "health", timeout=30).status_code == 503
    with early.hand_over() as taken:
        assert taken.getsockname() == (host, port)
