"""A real JupyterHub beside the cluster: spawn, run a cell, stop, as a user would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from kubernetes import client

from gpushare.names import SCHEDULER_NAME, Names
from playground.cluster import Cluster
from playground.demo import (
    LOOK,
    Seen,
    check_placements,
    cull,
    holds_slice,
    inspect,
    look,
    parse_look,
    start_servers,
    stop_old_servers,
)
from playground.demo_people import Person
from playground.hub import PASSWORD, Hub
from playground.hub_account import NAMESPACE, pod_annotations
from playground.hub_user import HubError, HubUser

pytestmark = pytest.mark.root

NAMES = Names()
PEOPLE = (
    Person("hubtest-a", "t4", "3g", {NAMES.gpu_mem: 3}, "T4"),
    Person("hubtest-b", "t4", "3g", {NAMES.gpu_mem: 3}, "T4"),
    Person("hubtest-c", "a10", "25p", {NAMES.gpu_percent: 25}, "A10"),
)


@pytest.fixture(scope="module")
def hub(api: client.ApiClient) -> Iterator[Hub]:
    hub = Hub(Cluster(), spawner={"gpu_start_timeout": 30})
    was_running = hub.running
    hub.start()
    yield hub
    if was_running:
        Hub(hub.cluster).start()  # with the settings that it had
    else:
        hub.stop()


@pytest.fixture
def users(hub: Hub) -> Iterator[dict[str, HubUser]]:
    users = {person.name: HubUser(hub.url, person.name, PASSWORD) for person in PEOPLE}
    stop_old_servers(users)
    yield users
    stop_old_servers(users)


@pytest.fixture
def user(users: dict[str, HubUser]) -> HubUser:
    return users[PEOPLE[0].name]


def pod_of(api: client.ApiClient, user: HubUser) -> client.V1Pod:
    return client.CoreV1Api(api).read_namespaced_pod(f"jupyter-{user.name}", NAMESPACE)


def test_spawn_run_a_cell_and_stop(api: client.ApiClient, hub: Hub, user: HubUser) -> None:
    cluster, person = hub.cluster, PEOPLE[0]
    user.start_server(person.options)
    pod = pod_of(api, user)
    limits = pod.spec.containers[0].resources.limits
    assert {k: int(v) for k, v in limits.items() if k in NAMES.resources} == person.limits
    assert pod.spec.scheduler_name == SCHEDULER_NAME
    assert pod.metadata.annotations[NAMES.choice] == "t4/3g"
    seen = parse_look(user.run_cell(LOOK))
    assert [name for _, name in seen.cards] == ["Tesla T4"]
    check_placements(cluster, {user.name: seen})
    assert user.name in inspect(cluster)
    freed = cull(cluster, hub, person)
    assert freed < 15
    assert user.server() is None


def test_equal_choices_at_once(hub: Hub, users: dict[str, HubUser]) -> None:
    start_servers(users, PEOPLE, print)
    seen = look(users, print)
    check_placements(hub.cluster, seen)
    assert all(len(shown.cards) == 1 for shown in seen.values())


def test_a_server_without_a_gpu_sees_none(api: client.ApiClient, hub: Hub, user: HubUser) -> None:
    user.start_server({"profile": "cpu"})
    assert NAMES.placement not in pod_annotations(hub.cluster.api(), f"jupyter-{user.name}")
    assert pod_of(api, user).spec.scheduler_name == "default-scheduler"
    printed = user.run_cell(
        "import os, pynvml\n"
        "try:\n    pynvml.nvmlInit(); print('cards')\n"
        "except pynvml.NVMLError as error:\n    print(type(error).__name__)\n"
        "print(any(n.startswith('nvidia') for n in os.listdir('/dev')))"
    )
    assert printed.split() == ["NVMLError_LibraryNotFound", "False"]


def test_the_form_tells_what_is_free(hub: Hub, users: dict[str, HubUser]) -> None:
    first, second, _ = users.values()

    def free() -> int:
        page = second.spawn_page()
        words = re.search(r'--slice--3g-words">(\d+|none) free now', page)
        assert words, page
        return 0 if words[1] == "none" else int(words[1])

    before = free()
    assert before > 0
    first.start_server(PEOPLE[0].options)
    after = free()
    assert after == before - 1


def test_a_refusal_is_the_hubs_answer(hub: Hub, user: HubUser) -> None:
    with pytest.raises(HubError, match="no slice '99g'"):
        user.start_server({"profile": "t4", "slice": "99g"})
    assert user.server() is None
    assert not holds_slice(hub.cluster, user.name)


def test_no_room_ends_with_a_reason_and_leaves_nothing(
    api: client.ApiClient, hub: Hub, users: dict[str, HubUser]
) -> None:
    """Whole cards until there is none; the next one waits, is told why, and the Hub stays up."""
    first, second, third = users.values()
    whole = {"profile": "t4", "slice": "whole"}
    first.start_server(whole)
    second.start_server(whole)
    third.request_server({"profile": "t4", "slice": "7g"})
    *said, last = [event["message"] for event in third.progress()]
    assert any("nothing is free that is large enough" in text for text in said), said
    assert any("You are next in line for 7 GiB on NVIDIA T4." in text for text in said), said
    assert any("Free now: a10-1 card 0 (A10) 22.5 GiB" in text for text in said), said
    assert "nothing large enough became free within 30 seconds" in last
    assert "on NVIDIA A10 is free now" in last
    with pytest.raises(client.ApiException) as gone:
        pod_of(api, third)
    assert gone.value.status == 404
    first.stop_server()
    third.start_server({"profile": "t4", "slice": "7g"})
    assert parse_look(third.run_cell(LOOK)).uuids


def test_the_hub_restarts_under_running_servers(
    api: client.ApiClient, hub: Hub, user: HubUser
) -> None:
    user.start_server(PEOPLE[0].options)
    before = pod_of(api, user).metadata.uid
    hub.restart()
    server = user.server()
    assert server is not None
    assert server["ready"]
    assert parse_look(user.run_cell(LOOK)) != Seen(())
    assert pod_of(api, user).metadata.uid == before
    account = allowance(hub, user)
    assert (account["slices"], account["mib"]) == (1, 3 * 1024)
    cull(hub.cluster, hub, PEOPLE[0])
    assert allowance(hub, user)["slices"] == 0


def allowance(hub: Hub, user: HubUser) -> dict[str, Any]:
    """What the Hub says that somebody has and used."""
    headers = {"Authorization": f"token {user.token}"}
    url = f"{hub.url}/hub/gpushare/quotas/{user.name}"
    answer = requests.get(url, headers=headers, timeout=30)
    answer.raise_for_status()
    account: dict[str, Any] = answer.json()
    return account
