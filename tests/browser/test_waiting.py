"""The page of somebody who waits: the line moves, the smaller choice, cancel, and the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from gpushare.waiting import Leaver, Obstacle, WayOut
from tests.browser.conftest import PATIENCE_MS, OpenPage, Picture
from tests.browser.culler import FakeCuller, verdict
from tests.browser.hub import NAMESPACE, cards, log_in, queue, start_hub, waiting_counts
from tests.unit.hub_integration.hub import Hub
from tests.unit.hub_integration.state import FakeExtender

expect.set_options(timeout=PATIENCE_MS)
FULL_FOR_7 = waiting_counts(cards((11, 15)), 3)
HEADLINE = ".gpushare-headline"
IN_THE_WAY = {
    "reasons": (Obstacle("t4-1", "GPU-1", 0, "T4", 4096, 100, "memory"),),
    "would_end": (
        WayOut("t4-1", "GPU-1", (Leaver(NAMESPACE, "jupyter-idler", "idler", 7168, 0),)),
    ),
}


@pytest.fixture(scope="module")
def extender() -> Iterator[FakeExtender]:
    with FakeExtender(FULL_FOR_7, waiting=queue()) as extender:
        yield extender


@pytest.fixture(scope="module")
def culler() -> Iterator[FakeCuller]:
    with FakeCuller([]) as culler:
        yield culler


@pytest.fixture(scope="module")
def hub(
    tmp_path_factory: pytest.TempPathFactory, extender: FakeExtender, culler: FakeCuller
) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("hub")
    with start_hub(folder, extender, culler_url=culler.url, culler_token="t") as hub:
        yield hub


@pytest.fixture(autouse=True)
def as_at_first(extender: FakeExtender, culler: FakeCuller) -> None:
    extender.body, extender.paths["/v1/waiting"] = FULL_FOR_7, queue()
    culler.verdicts = []


def start(page: Any, hub: Hub, user: str, extender: FakeExtender, *line: str) -> None:
    """Queue for 7 GiB of a T4; the line is then as said."""
    log_in(page, hub, user)
    queue_up(page, user, extender, *line)


def queue_up(page: Any, user: str, extender: FakeExtender, *line: str) -> None:
    page.check("#profile-option-t4--slice--7g")
    extender.paths["/v1/waiting"] = queue(*line, **IN_THE_WAY)
    page.click("#spawn_form button[type=submit]")
    page.wait_for_url(f"**/spawn-pending/{user}**")


@pytest.mark.parametrize("dark", [False, True])
def test_it_looks_well_and_is_accessible(
    hub: Hub,
    open_page: OpenPage,
    extender: FakeExtender,
    culler: FakeCuller,
    picture: Picture,
    axe: Callable[..., None],
    dark: bool,
) -> None:
    user = "dora" if dark else "dave"
    culler.verdicts = [
        verdict("idler", idle=1500, ends="2030-01-01T14:32:00Z"),
        verdict("other", idle=2000, ends=None),
        verdict("third", idle=3000, ends=None),
        verdict("busy", idle=10, ends=None),
        verdict("elsewhere", idle=3000, ends=None, model="NVIDIA A10"),
    ]
    page = open_page(dark=dark, width=1000, height=560, timezone_id="Europe/Berlin", locale="de")
    start(page, hub, user, extender, "alice", user, "carol")
    expect(page.locator(HEADLINE)).to_have_text("You are 2nd in line for 7 GiB on NVIDIA T4.")
    lines = page.locator(".gpushare-lines")
    expect(lines).to_contain_text(
        "3 notebooks on such cards have been idle for more than 20 minutes"
    )
    expect(lines).to_contain_text("comes back at 15:32 if")  # by the clock of who reads it
    expect(lines).to_contain_text("The largest piece of such a card that is free is 4 GiB.")
    expect(lines).to_contain_text("3 GiB on NVIDIA T4 is free right now.")
    axe(page, "#gpushare-wait")
    picture(page, "waiting-dark" if dark else "waiting", documented=True)
    page.click("#gpushare-cancel")
    page.wait_for_url(f"**/hub/spawn/{user}")


def test_a_line_of_three_moves_on(hub: Hub, open_page: OpenPage, extender: FakeExtender) -> None:
    names = ["one", "two", "three"]
    pages = []
    for i, name in enumerate(names):
        page = open_page()
        start(page, hub, name, extender, *names[: i + 1])
        pages.append(page)
    first, second, third = (page.locator(HEADLINE) for page in pages)
    expect(first).to_have_text("You are next in line for 7 GiB on NVIDIA T4. 2 wait behind you.")
    expect(second).to_have_text("You are 2nd in line for 7 GiB on NVIDIA T4.")
    expect(third).to_have_text("You are 3rd in line for 7 GiB on NVIDIA T4.")
    extender.paths["/v1/waiting"] = queue("two", "three", **IN_THE_WAY)
    expect(second).to_have_text("You are next in line for 7 GiB on NVIDIA T4. 1 waits behind you.")
    expect(third).to_have_text("You are 2nd in line for 7 GiB on NVIDIA T4.")
    for page in pages:
        page.click("#gpushare-cancel")
        page.wait_for_url("**/hub/spawn/**")


def test_cancel_leaves_nothing_and_harms_nothing(
    hub: Hub, open_page: OpenPage, extender: FakeExtender
) -> None:
    page = log_in(open_page(), hub, "fickle")
    for _ in range(6):  # more often than failures would end the Hub
        queue_up(page, "fickle", extender, "fickle")
        expect(page.locator(HEADLINE)).to_contain_text("next in line")
        page.click("#gpushare-cancel")
        page.wait_for_url("**/hub/spawn/fickle")
        expect(page.locator("#profile-option-t4--slice--7g")).to_be_checked()
    assert hub.alive
    server = hub.api("GET", "users/fickle").json()
    assert server["pending"] is None
    assert server["servers"] == {}


def test_the_smaller_choice_instead(hub: Hub, open_page: OpenPage, extender: FakeExtender) -> None:
    page = open_page()
    start(page, hub, "modest", extender, "modest")
    page.click("text=Take 3 GiB on NVIDIA T4 instead")
    page.wait_for_url("**/spawn-pending/modest**")
    expect(page.locator(HEADLINE)).to_contain_text("3 GiB on NVIDIA T4")
    options = hub.api("GET", "users/modest?include_stopped_servers").json()["servers"]
    assert [server["user_options"] for server in options.values()] == [
        {"profile": "t4", "slice": "3g"}
    ]
    page.click("#gpushare-cancel")
    page.wait_for_url("**/hub/spawn/modest")


def test_without_javascript(hub: Hub, open_page: OpenPage, extender: FakeExtender) -> None:
    page = open_page(javascript=False)
    start(page, hub, "plain", extender, "first", "plain")
    expect(page.locator(HEADLINE)).to_contain_text("2nd in line for 7 GiB")
    page.click("#gpushare-cancel")
    page.wait_for_url("**/hub/spawn/plain")


def test_the_end_says_what_to_do(tmp_path: Path, open_page: OpenPage, picture: Picture) -> None:
    """Nothing became free in time."""
    with (
        FakeExtender(FULL_FOR_7, waiting=queue()) as extender,
        start_hub(tmp_path, extender, gpu_start_timeout=3) as hub,
    ):
        page = open_page()
        start(page, hub, "late", extender, "late")
        told = page.get_by_role("alert")
        expect(told).to_contain_text("nothing large enough became free within 3 seconds")
        expect(told).to_contain_text("3 GiB on NVIDIA T4 is free now.")
        picture(page, "waiting-ended")
        page.click("text=Choose again")
        page.wait_for_url("**/hub/spawn/late")
        page.close()  # before the Hub goes


def test_others_can_neither_look_nor_cancel(
    hub: Hub, open_page: OpenPage, extender: FakeExtender
) -> None:
    page = open_page()
    start(page, hub, "victim", extender, "victim")
    other = open_page()
    log_in(other, hub, "mallory")
    token = other.evaluate("window.jhdata.xsrf_token")
    answer = other.request.post(
        f"{hub.url}/gpushare/cancel/victim", form={"_xsrf": token}, max_redirects=0
    )
    assert answer.status in (403, 404)
    forged = page.request.post(f"{hub.url}/gpushare/cancel/victim", max_redirects=0)
    assert forged.status == 403  # without the token of the page
    assert hub.api("GET", "users/victim").json()["pending"] == "spawn"
    page.click("#gpushare-cancel")
    page.wait_for_url("**/hub/spawn/victim")
