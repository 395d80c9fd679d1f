"""The dashboard of a real Hub in a real browser: as a user, as an admin, live, on a phone."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.browser.conftest import OpenPage, Picture
from tests.browser.local_hub import LocalHub
from tests.unit.dashboard.doubles import (
    T4,
    Double,
    card,
    classroom,
    fake_extender,
    held,
    node,
    reclaimed,
    rfc3339,
    usage,
    verdict,
)

CULLER = "/services/gpushare-culler"
MINE = "/services/gpushare-dashboard/"
CLUSTER = "/services/gpushare-dashboard/cluster"
# The page's policy forbids style elements, which axe and the camera try to add.
TOOLS = "Applying inline style"


@dataclass
class World:
    """A Hub, and what the services beside it say."""

    hub: LocalHub
    extender: Double
    culler: Double
    holds: list[dict[str, Any]] = field(default_factory=list)

    def as_before(self) -> None:
        now = time.time()
        nodes = classroom()
        self.extender.answers["GET /v1/nodes"] = nodes
        self.extender.answers["GET /v1/usage"] = usage(nodes, now)
        ending = verdict("alice", ends_at=rfc3339(now + 270), action="warn")
        hours = [
            {"day": "2026-11-20", "model": "T4", "given": 21.0, "used": 9.5},
            {"day": "2026-11-21", "model": "T4", "given": 14.25, "used": 8.0},
        ]
        self.culler.answers = {
            f"GET {CULLER}/api/verdicts": {"verdicts": [ending, verdict("bob")]},
            f"GET {CULLER}/api/reclaimed": reclaimed(now),
            f"GET {CULLER}/api/usage": {"rows": hours},
            f"POST {CULLER}/api/holds": self._hold,
        }

    def _hold(self, request: dict[str, Any]) -> dict[str, Any]:
        kept = verdict("alice", held_until=rfc3339(time.time() + 1800))
        self.culler.answers[f"GET {CULLER}/api/verdicts"] = {"verdicts": [kept, verdict("bob")]}
        return kept


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    extender, culler = fake_extender(), Double()
    folder = tmp_path_factory.mktemp("hub")
    with LocalHub(folder, extender=extender.url, culler=culler.url) as hub:
        hub.await_service("gpushare-dashboard")
        yield World(hub, extender, culler)
    extender.close()
    culler.close()


@pytest.fixture
def world(running: World) -> World:
    running.as_before()
    running.extender.change()
    return running


def watch(page: Any, hub: LocalHub) -> list[str]:
    """Addresses outside of the Hub that the page asks for."""
    outside: list[str] = []
    here = urlsplit(hub.url).netloc

    def note(request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https") and address.netloc != here:
            outside.append(request.url)

    page.on("request", note)
    return outside


def fits(page: Any) -> None:
    """Nothing has to be scrolled sideways."""
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(width) <= 0


def test_a_user_sees_their_own(
    world: World, open_page: OpenPage, axe: Callable[..., None], picture: Picture
) -> None:
    page = open_page(errors_allowed=TOOLS)
    outside = watch(page, world.hub)
    world.hub.log_in(page, "alice", MINE)
    page.get_by_text("5.1 of 7 GiB used").wait_for()
    page.get_by_text(re.compile("Ends in [34] min unless it is used")).wait_for()
    page.get_by_text("2 of 30 GiB free").wait_for()
    page.get_by_role("cell", name="21.0").wait_for()
    body = page.locator("body").inner_text()
    for other in ("bob", "carol", "dave", "job/train", "t4-1", "All cards"):
        assert other not in body
    axe(page)
    fits(page)
    picture(page, "dashboard-user")
    page.get_by_role("button", name="Keep for 30 min").click()
    page.get_by_text("Kept for 30 min").first.wait_for()
    asked = world.culler.await_request(lambda r: r["path"].endswith("api/holds"))
    assert asked["body"] == {"user": "alice", "server": ""}
    assert not outside


def test_an_admin_sees_all_cards(
    world: World, open_page: OpenPage, axe: Callable[..., None], picture: Picture
) -> None:
    page = open_page(width=1200, errors_allowed=TOOLS)
    outside = watch(page, world.hub)
    world.hub.log_in(page, "admin", CLUSTER)
    bar = page.get_by_role("article", name="T4 0 of t4-1")
    bar.locator(".gs-seg").first.wait_for()
    widths = bar.evaluate(  # of one moment: the page is live
        """card => [...card.querySelectorAll('.gs-seg')].map(one =>
            one.getBoundingClientRect().width / one.parentElement.getBoundingClientRect().width)"""
    )
    assert [round(w, 2) for w in widths] == pytest.approx([7 / 15, 0.2, 0.2, 2 / 15], abs=0.02)
    page.get_by_text("XID 79 at 13:58").first.wait_for()
    page.get_by_text(re.compile("idle 4[23] min")).first.wait_for()
    page.get_by_text("would fit on t4-1 without alice (7 GiB)").wait_for()
    page.get_by_text("A finalizer keeps the pod").wait_for()
    page.get_by_text("Last 24 hours").wait_for()
    axe(page)
    fits(page)
    picture(page, "dashboard", documented=True)
    bar.get_by_role("link", name="alice: 7 GiB").click()
    row = bar.get_by_role("listitem").filter(has_text="alice")
    row.get_by_text("pod jupyter/jupyter-alice").wait_for()
    assert page.evaluate("document.activeElement.textContent").strip().startswith("alice")
    # Not this Hub's account but a kubeconfig that is not there: the command instead of the button.
    bar.get_by_text("gpushare cordon GPU-t4-1-0").wait_for()
    axe(page)
    assert not outside


def test_changes_come_by_themselves(world: World, open_page: OpenPage) -> None:
    page = open_page(errors_allowed=TOOLS)
    world.hub.log_in(page, "admin", CLUSTER)
    bar = page.get_by_role("article", name="T4 0 of t4-1")
    bar.locator("summary").click()
    bar.get_by_text("pod jupyter/jupyter-carol").wait_for()
    page.locator("html[data-live]").wait_for(state="attached")
    streams = world.extender.streams
    fresh = copy.deepcopy(classroom())
    fresh["nodes"][0]["cards"][0] = card(T4, 0, held("zoe", 5120, 100), node="t4-1")
    fresh["nodes"].append(node("t4-9", card(T4, 0, node="t4-9")))
    world.extender.answers["GET /v1/nodes"] = fresh
    world.extender.change()
    bar.get_by_role("link", name="zoe: 5 GiB").wait_for()
    bar.get_by_text("pod jupyter/jupyter-zoe").wait_for()  # what was open stays open
    page.get_by_role("article", name="T4 0 of t4-9").wait_for()
    world.extender.answers["GET /v1/nodes"] = classroom()
    world.extender.change()
    bar.get_by_role("link", name="carol: 3 GiB").wait_for()
    page.get_by_role("article", name="T4 0 of t4-9").wait_for(state="detached")
    # Two more pages are no more connections to the extender.
    for _ in range(2):
        other = open_page(errors_allowed=TOOLS)
        world.hub.log_in(other, "alice", MINE)
        other.locator("html[data-live]").wait_for(state="attached")
    assert world.extender.streams == streams == 1


def test_without_the_extender_the_last_known_is_shown_with_its_age(
    world: World, open_page: OpenPage
) -> None:
    page = open_page(errors_allowed=TOOLS)
    world.hub.log_in(page, "admin", CLUSTER)
    page.get_by_text("live", exact=True).wait_for()
    world.extender.answers["GET /v1/nodes"] = (503, {"detail": "the pods are not read yet"})
    world.extender.change()
    page.get_by_text("The extender does not answer: the pods are not read yet.").wait_for()
    page.get_by_text(re.compile("Shown is what was known .* ago")).wait_for()
    assert page.get_by_role("link", name="alice: 7 GiB").count() == 1
    world.extender.answers["GET /v1/nodes"] = classroom()
    page.get_by_text("live", exact=True).wait_for()


def test_an_admin_stops_a_server(world: World, open_page: OpenPage) -> None:
    bob = world.hub.user("bob")
    bob.start_server({})
    page = open_page(errors_allowed=TOOLS)
    page.on("dialog", lambda dialog: dialog.accept())
    world.hub.log_in(page, "admin", CLUSTER)
    bar = page.get_by_role("article", name="T4 0 of t4-1")
    bar.locator("summary").click()
    bar.get_by_role("button", name="Stop the server of bob").click()
    page.get_by_text("The server of bob stops.").wait_for()
    deadline = time.monotonic() + 60
    while bob.server() is not None:
        assert time.monotonic() < deadline
        page.wait_for_timeout(200)


def test_a_large_cluster_opens_node_by_node(
    world: World, open_page: OpenPage, axe: Callable[..., None], picture: Picture
) -> None:
    many = {
        "nodes": [
            node(
                f"t4-{n:03}",
                card(T4, 0, held(f"user-{n}", 7168, 900), node=f"t4-{n:03}"),
                **({"problem": "the plugin is silent"} if n == 41 else {}),
            )
            for n in range(250)
        ]
    }
    world.extender.answers["GET /v1/nodes"] = many
    world.extender.answers["GET /v1/usage"] = usage(many, time.time())
    world.extender.change()
    world.extender.await_request(lambda r: r["path"] == "/v1/nodes")
    page = open_page(errors_allowed=TOOLS)
    world.hub.log_in(page, "admin", CLUSTER)
    nodes = page.locator("section.gs-node")
    page.get_by_text("250 cards on 250 nodes").wait_for()
    page.reload()  # as a page of many nodes, not as one of two that grew
    first = nodes.first
    first.get_by_text("the plugin is silent").wait_for()  # trouble comes first
    assert page.locator("article.gs-card").count() == 0
    page.get_by_label("Show nodes with").fill("t4-007")
    page.locator("section.gs-node:visible").nth(1).wait_for(state="detached")
    page.get_by_text("t4-007").click()
    page.get_by_role("link", name="user-7: 7 GiB").wait_for()
    axe(page)
    picture(page, "dashboard-large")
    many["nodes"][7]["cards"][0] = card(T4, 0, held("zoe", 3072, 100), node="t4-007")
    world.extender.change()
    page.get_by_role("link", name="zoe: 3 GiB").wait_for()  # what is open is live as well


@pytest.mark.parametrize("path", [MINE, CLUSTER])
def test_on_a_phone(
    world: World, open_page: OpenPage, axe: Callable[..., None], picture: Picture, path: str
) -> None:
    page = open_page(width=360, height=740, errors_allowed=TOOLS)
    world.hub.log_in(page, "admin" if path == CLUSTER else "alice", path)
    page.get_by_role("heading", level=1).wait_for()
    fits(page)
    axe(page)
    picture(page, f"dashboard-phone-{'admin' if path == CLUSTER else 'user'}")


def test_in_the_dark(
    world: World, open_page: OpenPage, axe: Callable[..., None], picture: Picture
) -> None:
    page = open_page(dark=True, width=1200, errors_allowed=TOOLS)
    world.hub.log_in(page, "admin", CLUSTER)
    page.get_by_role("article", name="T4 0 of t4-1").wait_for()
    assert page.locator("html").get_attribute("data-bs-theme") == "dark"
    axe(page)
    picture(page, "dashboard-dark")


def test_without_javascript_the_page_is_complete(world: World, open_page: OpenPage) -> None:
    page = open_page(javascript=False, errors_allowed=TOOLS)
    world.hub.log_in(page, "alice", MINE)
    page.get_by_text("5.1 of 7 GiB used").wait_for()
    page.get_by_role("button", name="Keep for 30 min").click()
    page.wait_for_url(world.hub.url + MINE)
    deadline = time.monotonic() + 60
    while not page.get_by_text("Kept for 30 min").count():
        assert time.monotonic() < deadline
        page.reload()


def test_doors_are_closed(world: World, open_page: OpenPage) -> None:
    hub = world.hub
    at = hub.url + MINE
    nobody = requests.Session()
    nobody.trust_env = False
    assert nobody.get(at + "stream", timeout=30).status_code == 401
    assert nobody.post(at + "stop", timeout=30).status_code == 401
    to_login = nobody.get(at, headers={"Accept": "text/html"}, allow_redirects=False, timeout=30)
    assert to_login.status_code == 302
    assert "/hub/api/oauth2/authorize" in to_login.headers["Location"]
    forged = nobody.get(at + "oauth_callback?code=x&state=y", timeout=30)
    assert forged.status_code == 403
    page = open_page(errors_allowed="403")
    hub.log_in(page, "alice", MINE)
    post = """async ([path, fields, token]) => {
        const headers = {Accept: "application/json"};
        if (token) headers["X-XSRFToken"] = document.body.dataset.xsrf;
        const body = new URLSearchParams(fields);
        return (await fetch(path, {method: "POST", headers, body})).status;
    }"""
    assert page.evaluate(post, [MINE + "stop", {"user": "alice"}, False]) == 403  # no token
    assert page.evaluate(post, [MINE + "stop", {"user": "bob", "server": ""}, True]) == 403
    assert page.evaluate(post, [MINE + "cordon", {"node": "t4-1", "card": "x"}, True]) == 403
    assert page.evaluate(post, [MINE + "grant", {"user": "bob", "gib_hours": "5"}, True]) == 403
    for path in (CLUSTER, CLUSTER + "/stream", CLUSTER + "/nodes/t4-1"):
        assert page.evaluate("async path => (await fetch(path)).status", path) == 403
