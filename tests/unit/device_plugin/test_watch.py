from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from device_plugin.holders import Holder
from device_plugin.kube import ApiError, Kube
from device_plugin.pods import Pods
from device_plugin.watch import Watch

from .api_server import ApiServer
from .making import NAMES, NODE, container, pod
from .waiting import until

ALICE = "/api/v1/namespaces/jupyter/pods/alice"
BOB = "/api/v1/namespaces/jupyter/pods/bob"


@pytest.fixture
async def pods(api: ApiServer, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pods]:
    monkeypatch.setattr("device_plugin.watch._FIRST_DELAY", 0.05)
    monkeypatch.setattr("device_plugin.watch._LONGEST_DELAY", 0.2)
    changed: list[str] = []
    pods = Pods(kube, NODE, NAMES, changed.append)
    task = asyncio.create_task(pods.watch.run())
    yield pods
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def named(name: str, uid: str, **more: Any) -> dict[str, Any]:
    return pod(container("main", 3), name=name, uid=uid, **more)


async def test_what_was_there_and_what_comes_and_goes(api: ApiServer, pods: Pods) -> None:
    await api.put(ALICE, named("alice", "u1"))
    await until(lambda: pods.known("u1") is not None)
    await api.put(BOB, named("bob", "u2"))
    await until(lambda: pods.known("u2") is not None)
    await api.delete(ALICE)
    await until(lambda: pods.known("u1") is None)
    assert pods.alive() == {"u2"}


async def test_only_this_nodes_pods_and_no_secrets_are_kept(api: ApiServer, pods: Pods) -> None:
    elsewhere = named("bob", "u2")
    elsewhere["spec"]["nodeName"] = "a10-1"
    token = {"name": "JUPYTERHUB_API_TOKEN", "value": "very-secret"}
    mine = pod(container("main", 3, env=[token]), uid="u1", annotations={"other/thing": "x"})
    await api.put(BOB, elsewhere)
    await api.put(ALICE, mine)
    await until(lambda: pods.known("u1") is not None)
    assert pods.known("u2") is None
    assert "very-secret" not in str(pods.watch.objects)
    assert "other/thing" not in str(pods.watch.objects)


async def test_a_watch_that_breaks_is_taken_up_again(api: ApiServer, pods: Pods) -> None:
    await until(lambda: api.watches == 1)
    for i in range(3):
        await api.drop()
        await api.put(f"{ALICE}{i}", named(f"alice{i}", f"u{i}"))
        await until(lambda i=i: pods.known(f"u{i}") is not None)  # type: ignore[misc]
    await until(lambda: pods.watch.problem == "")


async def test_after_a_gap_in_history_nothing_gone_is_kept(api: ApiServer, pods: Pods) -> None:
    await api.put(ALICE, named("alice", "u1"))
    await until(lambda: pods.known("u1") is not None)
    del api.objects[ALICE]
    await api.put(BOB, named("bob", "u2"))
    await api.forget()
    await until(lambda: pods.alive() == {"u2"})


async def test_while_the_server_is_away_what_is_known_stays(api: ApiServer, pods: Pods) -> None:
    await api.put(ALICE, named("alice", "u1"))
    await until(lambda: pods.known("u1") is not None)
    await api.stop()
    await until(lambda: pods.watch.problem != "")
    assert pods.alive() is None
    found = await pods.find(Holder("main", {}, "jupyter", "alice", "u1"))
    assert found is not None
    with pytest.raises(ApiError):
        await pods.find(Holder("main", {}, "jupyter", "carol", "u3"))
    await api.start()
    await until(lambda: pods.alive() == {"u1"})


async def test_an_object_that_cannot_be_kept_does_not_end_the_watch(
    api: ApiServer, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_plugin.watch._FIRST_DELAY", 0.01)
    broken = [True]

    def keep(item: dict[str, Any]) -> dict[str, Any]:
        if broken:
            broken.pop()
            raise KeyError("odd object")
        return item

    watch = Watch(kube, "/api/v1/pods", {}, keep, lambda uid: None)
    await api.put(ALICE, named("alice", "u1"))
    task = asyncio.create_task(watch.run())
    await until(lambda: "u1" in watch.objects)
    task.cancel()


async def test_a_pod_that_the_watch_has_not_told_yet_is_asked_for(
    api: ApiServer, kube: Kube
) -> None:
    pods = Pods(kube, NODE, NAMES, lambda uid: None)  # its watch does not run
    await api.put(ALICE, named("alice", "u1"))
    assert await pods.find(Holder("main", {}, "jupyter", "alice", "u1"))
    assert await pods.find(Holder("main", {}, "jupyter", "alice"))
    assert await pods.find(Holder("main", {}, uid="u1"))
    assert await pods.find(Holder("main", {}, "jupyter", "alice", "u-other")) is None
    assert await pods.find(Holder("main", {}, "jupyter", "nobody")) is None
    assert await pods.find(Holder("main", {}, uid="u-other")) is None


async def test_a_pod_of_another_node_is_not_found(api: ApiServer, kube: Kube) -> None:
    pods = Pods(kube, "a10-1", NAMES, lambda uid: None)
    await api.put(ALICE, named("alice", "u1"))
    assert await pods.find(Holder("main", {}, "jupyter", "alice")) is None


async def test_requests_carry_the_token(api: ApiServer, kube: Kube) -> None:
    await kube.get("/api/v1/pods")
    assert api.authorizations == ["Bearer token-of-the-test"]


async def test_an_error_says_what_the_server_said(api: ApiServer, kube: Kube) -> None:
    api.fail = [403]
    with pytest.raises(ApiError, match="failure 403") as caught:
        await kube.get("/api/v1/pods")
    assert caught.value.status == 403
