"""A real Chromium for tests of pages: Debian's, driven by Playwright.

``open_page`` makes pages, ``picture`` keeps what they look like under build/screenshots, ``axe``
finds what keeps people from using them. A page that logs an error fails its test; a test that
fails leaves a picture of its last page behind.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "screenshots"
# Pictures that the documentation shows are written there only where this asks for it, so that a
# run of the tests leaves no changed files behind.
UPDATE = "GPUSHARE_UPDATE_IMAGES"
PATIENCE_MS = 30_000
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

OpenPage = Callable[..., Any]
Picture = Callable[..., Path]


def chromium_path() -> str:
    """Of the first one in PATH; '' without one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), "")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; each page gets a profile of its own."""
    if sync_playwright is None:
        pytest.skip("Playwright is missing: pip install playwright")
    path = chromium_path()
    if not path:
        pytest.skip("no Chromium in PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        # Containers have neither user namespaces for its sandbox nor much of /dev/shm.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report = yield
    item.stash.setdefault(_FAILED, []).append(report.failed)
    return report


_FAILED = pytest.StashKey[list[bool]]()


@pytest.fixture
def open_page(chromium: Any, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """``open_page(dark=False, javascript=True, width=1100, height=900)`` is a fresh page.

    ``errors_allowed``: a regular expression of messages of the console that are no failure.
    """
    contexts: list[Any] = []
    errors: list[str] = []
    node = request.node

    def make(
        *,
        dark: bool = False,
        javascript: bool = True,
        width: int = 1100,
        height: int = 900,
        errors_allowed: str = r"$^",
        **more: Any,
    ) -> Any:
        context = chromium.new_context(
            color_scheme="dark" if dark else "light",
            java_script_enabled=javascript,
            viewport={"width": width, "height": height},
            reduced_motion="reduce",
            **more,
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()

        def note(text: str) -> None:
            if not re.search(errors_allowed, text):
                errors.append(text)

        page.on("pageerror", lambda error: note(str(error)))
        page.on("console", lambda m: note(f"{m.text} {m.location}") if m.type == "error" else None)
        return page

    yield make
    failed = any(node.stash.get(_FAILED, []))
    for number, context in enumerate(contexts):
        if failed:
            for page in context.pages:
                name = re.sub(r"\W+", "-", node.name)
                page.screenshot(path=_folder() / f"failed-{name}-{number}.png", full_page=True)
        context.close()
    assert failed or not errors, f"the page said: {errors}"


@pytest.fixture
def picture() -> Picture:
    """``picture(page, "form")`` keeps build/screenshots/form.png; with ``documented=True`` also
    docs/images/form.png where the environment asks for it. A locator may stand for the page."""

    def take(shown: Any, name: str, *, documented: bool = False) -> Path:
        path = _folder() / f"{name}.png"
        if hasattr(shown, "goto"):
            shown.screenshot(path=path, full_page=True)
        else:
            shown.screenshot(path=path)
        if documented and os.environ.get(UPDATE):
            images = ROOT / "docs" / "images"
            images.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, images / f"{name}.png")
        return path

    return take


@pytest.fixture(scope="session")
def axe() -> Callable[..., None]:
    """``axe(page, within="main")`` fails with what axe-core calls serious or critical."""
    from tests.browser.axe import axe_script, serious_problems

    script = axe_script()
    return lambda page, within="body": serious_problems(page, script, within)


def _folder() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
