"""The whole way in a browser, on the playground's real cluster: line, smaller choice, notebook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client
from playwright.sync_api import expect

from playground.cluster import Cluster
from playground.hub import PASSWORD, Hub
from playground.hub_user import HubUser
from tests.browser.conftest import OpenPage, Picture
from tests.cluster.session import session, why_not

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(900),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
MINUTES_MS = 180_000


@pytest.fixture(scope="module")
def api() -> Iterator[client.ApiClient]:
    with session() as api:
        yield api


@pytest.fixture(scope="module")
def hub(api: client.ApiClient) -> Iterator[Hub]:
    quotas = {"everybody": {"slices": 1}}
    hub = Hub(Cluster(), spawner={"quotas": quotas, "gpu_start_timeout": 250})
    was_running = hub.running
    hub.start()
    yield hub
    if was_running:
        Hub(hub.cluster).start()
    else:
        hub.stop()


def test_from_the_line_to_a_notebook(hub: Hub, open_page: OpenPage, picture: Picture) -> None:
    """Both T4 are held whole; one waits for a part of one, and takes another card instead."""
    holders = [HubUser(hub.url, f"holder-{i}", PASSWORD) for i in (1, 2)]
    try:
        for holder in holders:
            holder.start_server({"profile": "t4", "slice": "whole"})
        page = open_page(errors_allowed=".")
        page.goto(f"{hub.url}/hub/login?next=/hub/spawn")
        page.fill("#username_input", "visitor")
        page.fill("#password_input", PASSWORD)
        page.click("#login_submit")
        page.wait_for_url("**/hub/spawn**")
        page.check("#profile-option-t4--slice--7g")
        words = page.locator("#profile-option-t4--slice--7g-words")
        expect(words).to_contain_text("none free now")
        expect(page.locator("#gpushare-allowance")).to_contain_text("0 of 1 slices in use")
        page.click("text=Queue for 7 GiB")
        page.wait_for_url("**/spawn-pending/visitor**")
        headline = page.locator(".gpushare-headline")
        expect(headline).to_contain_text("next in line for 7 GiB on NVIDIA T4", timeout=MINUTES_MS)
        said = page.locator("#gpushare-log li")
        page.click("#gpushare-details summary")
        expect(said.first).to_contain_text("Waiting for 7 GiB on NVIDIA T4", timeout=MINUTES_MS)
        picture(page, "end-to-end-waiting")
        instead = page.locator("#gpushare-panel button")
        expect(instead).to_contain_text("on NVIDIA A10 instead")
        instead.click()
        page.wait_for_url("**/user/visitor/**", timeout=MINUTES_MS)
        picture(page, "end-to-end-server")
    finally:
        for name in ("holder-1", "holder-2", "visitor"):
            user = HubUser(hub.url, name, PASSWORD)
            if user.server() is not None:
                user.stop_server()


def test_when_the_holder_leaves_the_one_who_waits_gets_in(hub: Hub, open_page: OpenPage) -> None:
    holders = [HubUser(hub.url, f"holder-{i}", PASSWORD) for i in (1, 2)]
    page = open_page(errors_allowed=".")
    try:
        for holder in holders:
            holder.start_server({"profile": "t4", "slice": "whole"})
        page.goto(f"{hub.url}/hub/login?next=/hub/spawn")
        page.fill("#username_input", "patient")
        page.fill("#password_input", PASSWORD)
        page.click("#login_submit")
        page.wait_for_url("**/hub/spawn**")
        page.check("#profile-option-t4--slice--3g")
        page.click("#spawn_form button[type=submit]")
        headline = page.locator(".gpushare-headline")
        expect(headline).to_contain_text("next in line", timeout=MINUTES_MS)
        holders[0].stop_server()
        page.wait_for_url("**/user/patient/**", timeout=MINUTES_MS)
    finally:
        for name in ("holder-1", "holder-2", "patient"):
            user = HubUser(hub.url, name, PASSWORD)
            if user.server() is not None:
                user.stop_server()
