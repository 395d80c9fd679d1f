"""Quotas in a real JupyterHub: the form, the API, named servers and admins, by one rule."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hub_integration.quota.ledger import Holding, Ledger
from tests.unit.hub_integration.hub import Browser, Hub
from tests.unit.hub_integration.state import T4, FakeExtender, answer, card

GIB = 1024
QUOTAS = {
    "everybody": {"slices": 2, "memory": "10GiB", "gib_hours_per_month": 100},
    "users": {"single": {"slices": 1}},
    "groups": {"staff": {"together": {"slices": 1}}},
}


def held(user: str, pod: str, mib: int, namespace: str = "default", **more: Any) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "pod": pod,
        "uid": f"uid-{namespace}-{pod}",
        "user": user,
        "mib": mib,
        "percent": 0,
        "reserved": False,
        "leaving": False,
        **more,
    }


SLICES = [
    held("busy", "jupyter-busy", 3 * GIB),
    held("busy", "jupyter-busy--two---0000", 3 * GIB, leaving=True),
    held("large", "jupyter-large--other---1234", 5 * GIB),
    held("colleague", "jupyter-colleague", 1 * GIB),
    # Pods of others may say that they are anybody's.
    held("single", "pretender", 1 * GIB, namespace="elsewhere"),
]


@pytest.fixture(scope="module")
def extender() -> Iterator[FakeExtender]:
    with FakeExtender(answer(t4=[card(T4, slices=SLICES), card(T4)])) as extender:
        yield extender


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a ledger in which 'spent' has had 120 GiB-hours within this month."""
    folder: Path = tmp_path_factory.mktemp("hub")
    ledger, now = Ledger(f"sqlite:///{folder}/ledger.sqlite"), time.time()
    gone = [
        Holding(f"uid-{user}", "GPU-9", user, namespace, "gone", "t4", "T4", 7200 * GIB, 0)
        for user, namespace in (("spent", "default"), ("framed", "elsewhere"))
    ]
    ledger.look(gone, now - 61)
    ledger.look(gone, now - 1)
    ledger.close()
    return folder


@pytest.fixture(scope="module")
def hub(folder: Path, extender: FakeExtender) -> Iterator[Hub]:
    settings = {
        "extender_url": extender.url,
        "extender_token_file": "",
        "quotas": QUOTAS,
        "quota_timezone": "Europe/Berlin",
    }
    groups = {"staff": {"users": ["prof", "colleague"]}}
    with Hub(folder, "running", settings, groups=groups) as hub:
        yield hub


def start(hub: Hub, user: str, server: str = "", slice_name: str = "3g") -> Any:
    hub.api("POST", f"users/{user}")
    path = f"users/{user}/servers/{server}" if server else f"users/{user}/server"
    return hub.api("POST", path, json={"profile": "t4", "slice": slice_name})


def refusal(answer: Any) -> str:
    assert answer.status_code == 403, answer.text
    return str(answer.json()["message"])


def test_what_the_cluster_holds_counts(hub: Hub) -> None:
    assert (
        "10 GiB of GPU memory in use, and this would be 7 GiB more: choose 5 GiB or less"
        in refusal(start(hub, "large", "second", "7g"))
    )


def test_a_server_that_starts_again_does_not_stand_in_its_own_way(hub: Hub) -> None:
    """Its old slice is still there, under the same name."""
    assert start(hub, "busy").status_code in (201, 202)


def test_pods_of_other_namespaces_do_not_count(hub: Hub) -> None:
    assert start(hub, "single").status_code in (201, 202)
    assert "the one slice in use that you may have at once: stop that server first" in refusal(
        start(hub, "single", "another")
    )


def test_servers_that_start_at_the_same_time_are_counted(hub: Hub) -> None:
    hub.api("POST", "users/hasty")
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda i: start(hub, "hasty", f"s{i}"), range(6)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes[2:] == [403] * 4
    assert set(codes[:2]) <= {201, 202}
    assert hub.alive


def test_a_group_stands_together(hub: Hub) -> None:
    assert "Your group staff has the one slice in use" in refusal(start(hub, "prof"))


def test_gib_hours_are_counted_and_granted(hub: Hub) -> None:
    told = refusal(start(hub, "spent"))
    assert "used up the 100 GiB-hours of this month" in told
    assert "ask your admin for more" in told
    granted = hub.api(
        "POST", "../gpushare/quotas/spent/grants", json={"gib_hours": 50, "note": "thesis"}
    )
    assert granted.status_code == 201, granted.text
    assert [grant["note"] for grant in granted.json()["grants"]] == ["thesis"]
    assert start(hub, "spent").status_code in (201, 202)


def test_pods_of_other_namespaces_cost_nothing(hub: Hub) -> None:
    assert start(hub, "framed").status_code in (201, 202)


def test_a_server_without_a_gpu_is_always_possible(hub: Hub) -> None:
    hub.api("POST", "users/prof")
    answer = hub.api("POST", "users/prof/server", json={"profile": "cpu"})
    assert answer.status_code in (201, 202)


@pytest.mark.parametrize("body", [{}, {"gib_hours": "many"}, {"gib_hours": True}, [1]])
def test_a_grant_must_be_a_number(hub: Hub, body: Any) -> None:
    hub.api("POST", "users/x")
    assert hub.api("POST", "../gpushare/quotas/x/grants", json=body).status_code == 400


def test_admins_see_all_accounts_and_others_their_own(hub: Hub) -> None:
    hub.api("POST", "users/large")
    accounts = {a["user"]: a for a in hub.api("GET", "../gpushare/quotas").json()["quotas"]}
    large = accounts["large"]
    assert (large["mib"], large["most_mib"], large["slices"]) == (5 * GIB, 10 * GIB, 1)
    assert large["words"].startswith("1 of 2 slices in use")
    (together,) = accounts["prof"]["groups"]
    assert (together["group"], together["words"]) == ("staff", "1 of 1 slices in use")
    browser = Browser(hub, "large")
    own = browser.get("gpushare/quotas/large")
    assert own.json()["gib_hours"]["month"]["most"] == 100
    assert browser.get("gpushare/quotas/spent").status_code in (403, 404)
    assert browser.get("gpushare/quotas").status_code == 403


def test_the_form_shows_what_is_left(hub: Hub) -> None:
    page = Browser(hub, "large").spawn_page()
    assert page.text("gpushare-allowance").startswith("Your allowance: 1 of 2 slices in use")
    refused = Browser(hub, "colleague").submit(
        **{"profile": "t4", "profile-option-t4--slice": "15g"}
    )
    assert refused.status_code == 403
    assert "more than you may have now" in refused.text


def test_the_count_goes_on_after_a_restart(hub: Hub, folder: Path, extender: FakeExtender) -> None:
    """The Hub writes down what is held; another process finds it there."""
    ledger = Ledger(f"sqlite:///{folder}/ledger.sqlite")
    stays = {stay.holding.user: stay for stay in ledger.stays(0, time.time())}
    assert stays["large"].ended is None
    assert stays["spent"].ended is not None
