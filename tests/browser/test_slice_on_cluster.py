"""All of it together: a notebook on the real cluster, its slice in JupyterLab, and the dashboard."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import requests

from gpushare import placement
from gpushare.names import Names
from playground.cards import node_cards
from playground.cluster import Cluster
from playground.demo import stop_old_servers
from playground.hub import PASSWORD, Hub
from playground.hub_account import pod_annotations
from playground.hub_user import HubUser
from tests.browser.conftest import OpenPage, Picture
from tests.browser.kernels import kernel_pid
from tests.cluster.session import session, why_not

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(600),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]

PATIENCE = 120_000
USER = "slice-user"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with session():
        hub = Hub(Cluster(), culler={}, dashboard=True)
        was_running = hub.running
        hub.start()
        yield hub
        if was_running:
            Hub(hub.cluster).start()  # with the settings that it had
        else:
            hub.stop()


@pytest.fixture(scope="module")
def user(hub: Hub) -> Iterator[HubUser]:
    user = HubUser(hub.url, USER, PASSWORD)
    stop_old_servers({USER: user})
    user.start_server({"profile": "t4", "slice": "7g"})
    yield user
    stop_old_servers({USER: user})


def go(page: Any, hub: Hub, name: str, to: str) -> None:
    page.context.set_default_timeout(PATIENCE)
    page.goto(f"{hub.url}/hub/login?next={quote(to, safe='')}")
    page.fill("#username_input", name)
    page.fill("#password_input", PASSWORD)
    page.click("#login_submit")
    page.wait_for_url(f"{hub.url}{to}**")


def train(hub: Hub, user: HubUser) -> None:
    """A notebook whose kernel, a real process in the pod, holds 2.1 GiB of the simulated card."""
    answer = requests.post(
        f"{user.server_url}api/sessions",
        headers={"Authorization": f"token {user.token}"},
        json={"path": "train.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}},
        timeout=120,
    )
    pid = kernel_pid(answer.json()["kernel"]["id"])
    pod = pod_annotations(hub.cluster.api(), f"jupyter-{USER}")
    placed = placement.decode(pod[Names().placement])
    (card,) = placed.footprint()
    with node_cards(hub.cluster.cards_root(placed.node)).edit() as edit:
        edit.add_process(card, pid, 2150, sm=42)


def test_jupyterlab_and_dashboard(
    hub: Hub, user: HubUser, open_page: OpenPage, picture: Picture, axe: Callable[..., None]
) -> None:
    shown = user.run_cell("%gpushare")
    assert shown.startswith("T4 (card "), shown
    assert "of 7 GiB in use" in shown
    command = user.run_cell("!gpushare slice")
    assert "of 7 GiB in use" in command, command

    lab = open_page(errors_allowed=r"^(?!.*gpushare)")
    go(lab, hub, USER, f"/user/{USER}/lab")
    button = lab.locator(".gpushare-item button")
    button.filter(has_text="T4 · 0 / 7 GiB").wait_for()
    train(hub, user)
    button.filter(has_text="T4 · 2.1 / 7 GiB").wait_for()
    button.click()
    panel = lab.get_by_role("dialog", name="My GPU slice")
    panel.get_by_text("train.ipynb: 2.1 GiB").wait_for()
    panel.get_by_role("button", name="Keep for 30 min").click()
    panel.get_by_text("Kept until").wait_for()  # the real culler, asked with the server's token
    picture(lab, "lab-cluster")
    lab.close()  # it would ask a server that is stopped below

    mine = open_page(errors_allowed="Applying inline style")
    go(mine, hub, USER, "/services/gpushare-dashboard/")
    mine.get_by_text("7 GiB on T4").first.wait_for()
    mine.get_by_text("Kept for").first.wait_for()

    admin = open_page(width=1200, errors_allowed="Applying inline style")
    go(admin, hub, "admin", "/services/gpushare-dashboard/cluster")
    admin.get_by_role("link", name=f"{USER}: 7 GiB").wait_for()
    axe(admin)
    picture(admin, "dashboard-cluster")
    admin.on("dialog", lambda dialog: dialog.accept())
    admin.get_by_role("link", name=f"{USER}: 7 GiB").click()
    admin.get_by_role("button", name=f"Stop the server of {USER}").click()
    # The page is live: the slice goes when the node says so.
    admin.get_by_role("link", name=f"{USER}: 7 GiB").wait_for(state="detached")
    with contextlib.suppress(AssertionError):
        assert user.server() is None
