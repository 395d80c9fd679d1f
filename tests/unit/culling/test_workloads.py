"""Idle Jobs, Deployments and pods: reported, and ended through what would start them again."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpushare.names import Names
from hub_integration.culling.culler import Look
from hub_integration.culling.kube import KubeFailed
from hub_integration.culling.memory import State
from hub_integration.culling.observed import Held, Pod
from hub_integration.culling.workloads import WorkloadPolicy, WorkloadWatch, read_policies
from tests.unit.culling.scenes import MINUTE, at, card, held, use, view
from tests.unit.culling.test_culler import World, culler

ENDING = {"batch": WorkloadPolicy(60 * MINUTE, end=True)}


class Kube:
    """Notes what it is told to end."""

    def __init__(self, *pods: Pod, deployment: str = "") -> None:
        self.names = Names()
        self.there = list(pods)
        self.deployment = deployment
        self.did: list[tuple[str, ...]] = []
        self.refuses = False

    async def pods(self, everywhere: bool) -> list[Pod]:
        assert everywhere
        return self.there

    async def deployment_of_set(self, _namespace: str, _name: str) -> str:
        return self.deployment

    async def suspend_job(self, _namespace: str, name: str, note: dict[str, str]) -> None:
        if self.refuses:
            raise KubeFailed("403 Forbidden", 403)
        assert "unused for" in note["gpushare/ended"]
        self.did.append(("suspend", name))

    async def scale_to_none(self, kind: str, _namespace: str, name: str, _note: Any) -> None:
        self.did.append(("scale", kind, name))

    async def delete_pod(self, pod: Pod) -> None:
        self.did.append(("delete", pod.name))

    async def say(self, pod: Pod, reason: str, _text: str) -> None:
        self.did.append(("say", pod.name, reason))


def batch(name: str, kind: str = "", owner: str = "") -> tuple[Held, Pod]:
    part = replace(held(name), namespace="batch", pod=name, user="")
    return part, Pod("batch", name, part.uid, owner_kind=kind, owner=owner)


async def shown(
    kube: Kube, parts: list[Held], policies: dict[str, WorkloadPolicy], *, idle: float = 90,
    dry_run: bool = False, busy: tuple[str, ...] = (),
) -> WorkloadWatch:  # fmt: skip
    """A watch that has seen these slices, unused for ``idle`` minutes."""
    world = World()
    world.minutes = idle
    uses = tuple(use(p.pod, last=idle - 1 if p.pod in busy else 0) for p in parts)
    one = culler(world, dry_run=dry_run)
    watch = WorkloadWatch(one, kube, policies, logging.getLogger("test"))  # type: ignore[arg-type]
    look = Look(at(idle), {}, [], view(card(*parts), uses=uses))
    await watch(look, [])
    await watch(look, [])
    return watch


CASES = [
    ("Job", "train", "", ("suspend", "train")),
    ("ReplicaSet", "serve-5d", "serve", ("scale", "Deployment", "serve")),
    ("ReplicaSet", "bare-set", "", ("scale", "ReplicaSet", "bare-set")),
    ("StatefulSet", "db", "", ("scale", "StatefulSet", "db")),
    ("", "", "", ("delete", "pod-a")),
]


@pytest.mark.parametrize(("kind", "owner", "deployment", "done"), CASES)
async def test_what_would_start_it_again_is_ended(
    kind: str, owner: str, deployment: str, done: tuple[str, ...]
) -> None:
    part, pod = batch("pod-a", kind, owner)
    kube = Kube(pod, deployment=deployment)
    watch = await shown(kube, [part], ENDING)
    assert kube.did == [done, ("say", "pod-a", "SliceIdle")], "once, and said why"
    (reclaim,) = watch.culler.memory.open()
    assert (reclaim.kind, reclaim.reason, reclaim.gib) == ("workload", "workload-idle", 3)
    assert "batch allows 1 h" in reclaim.sentence


async def test_without_end_it_is_only_reported() -> None:
    part, pod = batch("pod-a", "Job", "train")
    kube = Kube(pod)
    watch = await shown(kube, [part], {"*": WorkloadPolicy(60 * MINUTE)})
    assert kube.did == []
    (line,) = watch.report
    assert (line["owner_kind"], line["owner"], line["action"]) == ("Job", "train", "report")
    assert line["gpu_idle_seconds"] == 90 * 60
    assert watch.culler.metrics.idle_workloads._value.get() == 1


async def test_a_dry_run_ends_nothing_and_notes_it_once() -> None:
    part, pod = batch("pod-a", "Job", "train")
    kube = Kube(pod)
    watch = await shown(kube, [part], ENDING, dry_run=True)
    assert kube.did == []
    assert [r.state for r in watch.culler.memory.recent(9)] == [State.DRY_RUN]


async def test_nobody_else_is_touched() -> None:
    part, pod = batch("pod-a", "Job", "train")
    other = replace(part, namespace="other")
    notebook = replace(held("ann"), namespace="batch")
    for parts in ([other], [replace(part, leaving=True)]):
        kube = Kube(pod)
        assert (await shown(kube, parts, ENDING)).report == []
    world_notebook = Kube(pod)
    watch = await shown(world_notebook, [notebook], {}, idle=900)
    assert watch.report == []
    early = await shown(Kube(pod), [part], ENDING, idle=59)
    assert early.report == []


async def test_one_busy_pod_keeps_the_whole_deployment() -> None:
    (a, pod_a), (b, pod_b) = (
        batch("pod-a", "ReplicaSet", "serve-5d"),
        batch("pod-b", "ReplicaSet", "serve-5d"),
    )
    kube = Kube(pod_a, pod_b, deployment="serve")
    watch = await shown(kube, [a, b], ENDING, busy=("pod-b",))
    assert kube.did == []
    assert [line["pod"] for line in watch.report] == ["pod-a"]


async def test_a_refusal_is_said_and_nothing_is_counted() -> None:
    part, pod = batch("pod-a", "Job", "train")
    kube = Kube(pod)
    kube.refuses = True
    watch = await shown(kube, [part], ENDING)
    assert watch.culler.memory.open() == []


def test_policies_are_checked() -> None:
    good = read_policies({"batch": {"idle_minutes": 2, "end": True}}, timedelta(minutes=1))
    assert good == {"batch": WorkloadPolicy(2 * MINUTE, True)}
    for bad in (
        {"b": {}},
        {"b": {"idle_minutes": 0}},
        {"b": 5},
        {"b": {"idle_minutes": 1, "x": 2}},
    ):
        with pytest.raises(ValueError, match=r"workload_policies\['b'\]"):
            read_policies(bad, timedelta(minutes=1))
