"""The slice in a real JupyterLab, run by a real Hub: numbers, warning, hold, kernels."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from device_plugin.enforcement.notices import NoticeBoards
from playground.hub_user import HubUser
from tests.browser.conftest import OpenPage, Picture
from tests.browser.kernels import kernel_pid
from tests.browser.local_hub import LocalHub
from tests.unit.dashboard.doubles import Double, rfc3339, verdict

pytest.importorskip("jupyterlab")

CULLER = "/services/gpushare-culler"
UID = "uid-alice"
# Other extensions of JupyterLab complain in the console; ours must not.
NOISE = r"^(?!.*gpushare)"


@dataclass
class Node:
    """The notice board of alice's slice, written by the device plugin's own code."""

    boards: NoticeBoards
    used: int = 2150
    processes: list[dict[str, Any]] = field(default_factory=list)

    def show(self, over: bool = False) -> None:
        card = {
            "uuid": "GPU-1",
            "index": 0,
            "model": "T4",
            "memory_mib": 15360,
            "slice_mib": 7168,
            "limit_mib": 7168,
            "percent": 0,
            "used_mib": self.used,
            "peak_mib": max(3072, self.used),
            "sm_percent": 42,
            "last_kernel": time.time(),
            "over_since": time.time() if over else None,
            "processes": self.processes,
        }
        self.boards.show(UID, {"pod": "jupyter-alice", "cards": [card]}, time.time())

    def tell(self, kind: str, text: str) -> None:
        self.boards.post(UID, kind, text, time.time())


@dataclass
class World:
    hub: LocalHub
    culler: Double
    node: Node
    alice: HubUser

    def says(self, **more: Any) -> None:
        """The culler's verdict about alice's server."""
        answer = {"verdicts": [verdict("alice", **more)]}
        self.culler.answers[f"GET {CULLER}/api/verdicts/mine"] = answer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hub")
    node = Node(NoticeBoards(folder / "boards"))
    node.boards.edits(UID)
    node.show()
    culler = Double()
    # JupyterLab would ask whether it may ask the internet for news.
    quiet = folder / "settings" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)
    (quiet / "notification.jupyterlab-settings").write_text(
        json.dumps({"fetchNews": "false", "checkForUpdates": False})
    )
    lab = {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "GPUSHARE_BOARD": str(folder / "boards" / UID / "slice.json"),
        "GPUSHARE_CULLER_URL": f"{culler.url}{CULLER}",
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "jupyter"),
    }
    with LocalHub(folder, culler=culler.url, lab=lab) as hub:
        alice = hub.user("alice")
        world = World(hub, culler, node, alice)
        world.says()
        alice.start_server({})
        yield world
    culler.close()


def open_lab(world: World, open_page: OpenPage, path: str = "/user/alice/lab") -> Any:
    page = open_page(width=1200, height=760, errors_allowed=NOISE)
    page.context.set_default_timeout(120_000)
    world.hub.log_in(page, "alice", path)
    page.locator(".gpushare-item button").wait_for()
    return page


def look_again(page: Any) -> None:
    """As when somebody comes back to the tab: no need to wait for the next round."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Fine-tuning on a slice"},
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": "%gpushare",
        },
    ],
}


def past_minutes(route: Any) -> None:
    """The server's own answer, with a quarter of an hour of past for the picture."""
    answer = route.fetch()
    body = answer.json()
    now = body["at"]
    body["history"] = [
        [now - 5 * back, 600 if back > 120 else 2150 + 40 * (back % 3), 0 if back > 110 else 42]
        for back in range(170, 0, -1)
    ]
    route.fulfill(response=answer, json=body)


def test_the_status_bar_shows_the_slice(
    world: World, open_page: OpenPage, axe: Callable[..., None], picture: Picture
) -> None:
    # A real kernel, which the board says holds the memory.
    api = f"{world.hub.url}/user/alice/api"
    headers = {"Authorization": f"token {world.alice.token}"}
    file = {"type": "notebook", "content": NOTEBOOK}
    made = requests.put(f"{api}/contents/train.ipynb", headers=headers, json=file, timeout=120)
    assert made.ok, made.text
    kernel = requests.post(
        f"{api}/sessions",
        headers=headers,
        json={"path": "train.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}},
        timeout=120,
    ).json()["kernel"]["id"]
    pid = kernel_pid(kernel)
    world.node.processes = [
        {"pid": pid, "name": "python3", "container": "notebook", "used_mib": 2150}
    ]
    world.node.show()
    world.says(ends_at=rfc3339(time.time() + 22 * 60), sentence="Ends unless it is used.")
    page = open_lab(world, open_page, "/user/alice/lab/tree/train.ipynb")
    button = page.locator(".gpushare-item button")
    page.wait_for_function(
        "document.querySelector('.gpushare-item button').textContent === 'T4 · 2.1 / 7 GiB'"
    )
    button.click()
    panel = page.get_by_role("dialog", name="My GPU slice")
    panel.get_by_text("2.1 of 7 GiB of memory").wait_for()
    panel.get_by_text("train.ipynb: 2.1 GiB").wait_for()
    panel.get_by_text("Utilisation: 42 % on average").wait_for()
    axe(page, ".gpushare-panel")
    axe(page, ".gpushare-item")
    page.get_by_role("heading", name="Fine-tuning on a slice").wait_for()
    page.route("**/gpushare/slice*", past_minutes)
    look_again(page)
    panel.get_by_text("in the last 14 min").first.wait_for()
    picture(page, "lab", documented=True)
    page.unroute("**/gpushare/slice*")
    panel.get_by_role("button", name="Stop kernel of train.ipynb").click()
    panel.get_by_text("Stopped. Its memory comes back within seconds.").wait_for()
    await_gone(pid)
    world.node.processes, world.node.used = [], 0
    world.node.show()
    page.wait_for_function(
        "document.querySelector('.gpushare-item button').textContent === 'T4 · 0 / 7 GiB'"
    )
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")


def test_a_warning_before_the_end_and_a_hold(
    world: World, open_page: OpenPage, picture: Picture
) -> None:
    world.says(action="warn", ends_at=rfc3339(time.time() + 240), warned=True)
    held_until = rfc3339(time.time() + 1800)

    def hold(request: dict[str, Any]) -> Any:
        # The server's own token, by which the culler knows which server it is.
        me = requests.get(
            f"{world.hub.url}/hub/api/user",
            headers={"Authorization": f"token {request['token']}"},
            timeout=30,
        ).json()
        if f"access:servers!server={me['name']}/" not in me["scopes"]:
            return 403, {"detail": "not a server's token"}
        kept = verdict("alice", held_until=held_until)
        world.culler.answers[f"GET {CULLER}/api/verdicts/mine"] = {"verdicts": [kept]}
        return kept

    world.culler.answers[f"POST {CULLER}/api/holds"] = hold
    page = open_lab(world, open_page)
    warning = page.locator(".Toastify__toast").filter(has_text="gives its GPU slice back")
    warning.wait_for()
    assert "gpushare-ending" in (page.locator(".gpushare-item").get_attribute("class") or "")
    picture(page, "lab-warning")
    warning.get_by_role("button", name="Keep for 30 min").click()
    world.culler.await_request(lambda r: r["path"].endswith("api/holds"))
    warning.wait_for(state="detached")
    page.locator(".gpushare-item button").click()
    page.get_by_text("Kept for 30 min.").wait_for()
    world.says()


def test_over_the_limit_says_so(world: World, open_page: OpenPage, picture: Picture) -> None:
    page = open_lab(world, open_page)
    text = "uses 8 GiB of T4 card 0; its slice is 7 GiB. Free 1 GiB within 30 s"
    world.node.used = 8192
    world.node.tell("GPUMemoryExceeded", text)
    world.node.show(over=True)
    look_again(page)
    page.locator(".Toastify__toast").filter(has_text=text).wait_for()
    page.wait_for_function(
        "document.querySelector('.gpushare-item').classList.contains('gpushare-over')"
    )
    page.locator(".gpushare-item button").click()
    page.get_by_text("Over its limit by 1 GiB").wait_for()
    picture(page, "lab-over")
    world.node.used = 2150
    world.node.show()


def test_looking_is_no_use_of_the_server(world: World) -> None:
    """An open tab that only shows the slice must not keep an idle server alive."""
    api = f"{world.hub.url}/user/alice"
    headers = {"Authorization": f"token {world.alice.token}"}
    status = f"{api}/api/status?no_track_activity=1"
    before = requests.get(status, headers=headers, timeout=60).json()["last_activity"]
    seen = requests.get(f"{api}/gpushare/slice", headers=headers, timeout=60)
    assert seen.json()["cards"][0]["limit_mib"] == 7168
    assert requests.get(status, headers=headers, timeout=60).json()["last_activity"] == before


def test_strangers_see_nothing(world: World) -> None:
    bob = world.hub.user("bob")
    for token in ("", f"token {bob.token}"):
        answer = requests.get(
            f"{world.hub.url}/user/alice/gpushare/slice",
            headers={"Authorization": token} if token else {},
            timeout=60,
        )
        assert answer.status_code in (403, 401)
        assert "cards" not in answer.text


def await_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while Path("/proc", str(pid)).exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
