"""The spawn form as people use it: with a mouse, with keys alone, without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE_MS, OpenPage, Picture
from tests.browser.hub import cards, log_in, queue, start_hub, waiting_counts, write_past
from tests.unit.hub_integration.hub import Hub
from tests.unit.hub_integration.state import FakeExtender

expect.set_options(timeout=PATIENCE_MS)
SOME_FREE = cards((9, 13), (22, 11, 11, 0))
FULL = re.compile(r"none free now · about \d+ min · 2 waiting")
T4 = "#profile-option-t4--slice--"


@pytest.fixture(scope="module")
def extender() -> Iterator[FakeExtender]:
    with FakeExtender(SOME_FREE, waiting=queue()) as extender:
        yield extender


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, extender: FakeExtender) -> Iterator[Hub]:
    quotas = {
        "everybody": {"slices": 2, "gib_hours_per_week": 40},
        "users": {"none": {"slices": 0}},
    }
    folder = tmp_path_factory.mktemp("hub")
    write_past(folder, "ann")
    with start_hub(folder, extender, quotas=quotas) as hub:
        yield hub


@pytest.fixture(autouse=True)
def as_at_first(extender: FakeExtender) -> None:
    extender.body, extender.paths["/v1/waiting"] = SOME_FREE, queue()


@pytest.mark.parametrize("dark", [False, True])
def test_it_looks_well_and_is_accessible(
    hub: Hub,
    open_page: OpenPage,
    extender: FakeExtender,
    picture: Picture,
    axe: Callable[..., None],
    dark: bool,
) -> None:
    extender.body = waiting_counts(SOME_FREE, 2)
    extender.paths["/v1/waiting"] = queue("x", "y")
    page = log_in(open_page(dark=dark, width=1000), hub, "ann")
    expect(page.locator("#gpushare-dot")).to_be_visible()
    expect(page.locator(f"{T4}7g-words")).to_have_text(FULL)
    axe(page, "#gpushare-form")
    page.check(f"{T4}custom")
    expect(page.locator(".gpushare-custom input[type=range]").first).to_be_visible()
    axe(page, "#gpushare-form")
    page.check(f"{T4}7g")
    picture(page, "form-dark" if dark else "form", documented=True)


def test_on_a_phone_nothing_is_cut_off(hub: Hub, open_page: OpenPage, picture: Picture) -> None:
    page = log_in(open_page(width=360, height=740), hub, "phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    picture(page, "form-phone")


def test_the_numbers_change_while_it_is_open(
    hub: Hub, open_page: OpenPage, extender: FakeExtender
) -> None:
    page = log_in(open_page(), hub, "live")
    expect(page.locator(f"{T4}3g-words")).to_have_text("2 free now")
    page.check(f"{T4}3g")
    expect(page.locator("#profile-item-t4-memory")).to_have_text("8 of 30 GiB free")
    start = page.locator("#spawn_form button[type=submit]")
    expect(start).to_have_text("Start")
    extender.paths["/v1/waiting"] = queue("x", "y")
    extender.body = waiting_counts(cards((15, 15)), 2)
    expect(page.locator(f"{T4}3g-words")).to_have_text(FULL)
    expect(page.locator("#profile-item-t4-memory")).to_have_text("full")
    expect(page.locator("#gpushare-updated")).to_have_text("What is free now; 2 are waiting.")
    # Who does not see it hears it, for the choice that is picked and for no other.
    expect(page.locator("#gpushare-status")).to_have_text(FULL)
    expect(start).to_have_text("Queue for 3 GiB")
    expect(page.locator("#gpushare-queue")).to_contain_text("stand in line")
    extender.body = SOME_FREE
    expect(start).to_have_text("Start")
    expect(page.locator("#gpushare-queue")).to_be_hidden()


def test_the_numbers_come_back_with_the_extender(
    hub: Hub, open_page: OpenPage, extender: FakeExtender
) -> None:
    extender.status = 503
    try:
        page = open_page()
        log_in(page, hub, "away")
        expect(page.locator("#gpushare-updated")).to_contain_text("not known right now")
        expect(page.locator(".gpushare-bar").first).to_be_hidden()
    finally:
        extender.status = 200
    expect(page.locator(f"{T4}3g-words")).to_have_text("2 free now")
    expect(page.locator(".gpushare-bar").first).to_be_visible()


def test_with_keys_alone(hub: Hub, open_page: OpenPage) -> None:
    page = log_in(open_page(), hub, "keys")
    page.locator("#profile-item-t4").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#profile-item-a10")).to_be_checked()
    expect(page.locator("#profile-item-t4-parts")).to_be_hidden()
    page.keyboard.press("Tab")
    expect(page.locator("#profile-option-a10--slice--11g")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#profile-option-a10--slice--whole")).to_be_checked()
    page.keyboard.press("Tab")
    expect(page.locator("#spawn_form button[type=submit]")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/spawn-pending/keys**")
    expect(page.locator(".gpushare-headline")).to_contain_text("whole card on NVIDIA A10")


def test_a_size_of_ones_own(hub: Hub, open_page: OpenPage) -> None:
    page = log_in(open_page(), hub, "own")
    number = page.locator("[name='profile-option-t4--slice--unlisted-choice']")
    expect(number).to_be_hidden()
    page.check(f"{T4}custom")
    slider = page.locator(".gpushare-custom input[type=range]").first
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(number).to_have_value("5")
    page.click("#spawn_form button[type=submit]")
    page.wait_for_url("**/spawn-pending/own**")
    expect(page.locator(".gpushare-headline")).to_contain_text("5 GiB on NVIDIA T4")
    page.click("#gpushare-cancel")
    page.wait_for_url("**/hub/spawn/own")
    # What was chosen last is chosen again.
    expect(page.locator(f"{T4}custom")).to_be_checked()
    expect(number).to_have_value("5")


def test_without_javascript(hub: Hub, open_page: OpenPage, picture: Picture) -> None:
    page = log_in(open_page(javascript=False), hub, "plain")
    expect(page.locator(f"{T4}3g-words")).to_have_text("2 free now")
    expect(page.locator("#profile-item-a10-parts")).to_be_hidden()
    page.check("#profile-item-a10")
    expect(page.locator("#profile-item-a10-parts")).to_be_visible()
    page.check("#profile-option-a10--slice--5g")
    picture(page, "form-without-javascript")
    page.click("#spawn_form button[type=submit]")
    page.wait_for_url("**/spawn-pending/plain**")
    expect(page.locator(".gpushare-headline")).to_contain_text("5 GiB on NVIDIA A10")
    page.click("#gpushare-cancel")
    page.wait_for_url("**/hub/spawn/plain")


def test_a_refusal_by_quota_says_why(
    hub: Hub, open_page: OpenPage, picture: Picture, axe: Callable[..., None]
) -> None:
    page = open_page(errors_allowed="403")
    log_in(page, hub, "none")
    expect(page.locator("#gpushare-allowance")).to_contain_text("0 of 0 slices in use")
    page.check(f"{T4}3g")
    page.click("#spawn_form button[type=submit]")
    error = page.locator(".spawn-error-msg")
    expect(error).to_contain_text("You may not start servers with a GPU here")
    # The form is there again, as it was sent.
    expect(page.locator(f"{T4}3g")).to_be_checked()
    axe(page, "#gpushare-form")
    picture(page, "refused-by-quota")


def test_nothing_of_the_catalogue_but_its_words_is_sent(hub: Hub, open_page: OpenPage) -> None:
    page = open_page()
    seen: list[str] = []
    page.on("response", lambda r: seen.append(r.url) if "gpushare" in r.url else None)
    log_in(page, hub, "curious")
    expect(page.locator("#gpushare-dot")).to_be_visible()
    text = page.content()
    assert "gpu-mem" not in text
    assert not re.search(r"gpushare/(gpu|card|choice)", text)
    assert [url for url in seen if "/gpushare/free/curious" in url]


def test_somebody_elses_numbers_are_not_given(hub: Hub, open_page: OpenPage) -> None:
    page = log_in(open_page(), hub, "nosy")
    answer: Any = page.request.get(f"{hub.url}/gpushare/free/ann")
    assert answer.status in (403, 404)
