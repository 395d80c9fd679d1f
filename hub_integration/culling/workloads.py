"""The same rule for pods beside the notebooks: a Job or Deployment whose slice nobody uses.

Off where a namespace has no policy. With one, idle pods are reported; ended only where that policy
says ``end``. What ends is the controller, or it would start the pod again: a Job is suspended, a
Deployment, ReplicaSet or StatefulSet is scaled to none, and only when all its pods with slices are
idle; a pod of nobody is deleted. Why it was is in an Event and in an annotation on the controller.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpushare.usage import SliceUse
from hub_integration.culling import wording
from hub_integration.culling.culler import Culler, Look
from hub_integration.culling.judging import FRESH, Judged
from hub_integration.culling.kube import SCALED, Kube, KubeFailed
from hub_integration.culling.memory import Reclaim, State
from hub_integration.culling.observed import Held, Pod
from hub_integration.culling.reporting import slice_object

REASON = "workload-idle"


@dataclass(frozen=True, slots=True)
class WorkloadPolicy:
    """``idle``: so long a slice's GPU may lie unused. ``end``: end it then, not only report it."""

    idle: timedelta
    end: bool = False


@dataclass(frozen=True, slots=True)
class Idle:
    """A pod whose slices have been idle beyond its namespace's policy."""

    namespace: str
    pod: str
    uid: str
    held: tuple[Held, ...]
    idle: timedelta
    policy: WorkloadPolicy

    @property
    def text(self) -> str:
        return (
            f"its slice ({wording.slices(self.held)}) has been unused for "
            f"{wording.span(self.idle)}; {self.namespace} allows {wording.span(self.policy.idle)}"
        )


def read_policies(given: Mapping[str, Any], minute: timedelta) -> dict[str, WorkloadPolicy]:
    """``{"batch": {"idle_minutes": 60, "end": True}, "*": {…}}``. Raises ValueError."""
    policies = {}
    for namespace, entry in given.items():
        where = f"GPUShareCuller.workload_policies[{namespace!r}]"
        if not isinstance(entry, Mapping) or set(entry) - {"idle_minutes", "end"}:
            raise ValueError(f"{where}: it has 'idle_minutes' and 'end' and nothing else")
        minutes = entry.get("idle_minutes")
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes <= 0:
            raise ValueError(f"{where}: 'idle_minutes' must be a number above 0")
        policies[namespace] = WorkloadPolicy(minutes * minute, bool(entry.get("end", False)))
    return policies


def idle_workloads(
    held: Mapping[str, Sequence[Held]],
    uses: Mapping[str, Sequence[SliceUse]],
    notebooks: frozenset[str],
    policies: Mapping[str, WorkloadPolicy],
    now: datetime,
) -> list[Idle]:
    """The pods that are idle beyond their policy. What is not measured is not idle."""
    found = []
    for uid, slices in held.items():
        first = slices[0]
        policy = policies.get(first.namespace, policies.get("*"))
        mine = uses.get(uid)
        if uid in notebooks or policy is None or not mine or any(s.leaving for s in slices):
            continue
        since = max(max(use.last_kernel or 0.0, use.watched_since) for use in mine)
        idle = now - datetime.fromtimestamp(since, UTC)
        if idle >= policy.idle:
            found.append(Idle(first.namespace, first.pod, uid, tuple(slices), idle, policy))
    return found


class WorkloadWatch:
    """Shown every look of the culler. ``kube`` is None where nothing may be ended."""

    def __init__(
        self,
        culler: Culler,
        kube: Kube | None,
        policies: Mapping[str, WorkloadPolicy],
        log: logging.Logger,
    ) -> None:
        self.culler = culler
        self.kube = kube
        self.policies = dict(policies)
        self.log = log
        self.report: list[dict[str, Any]] = []
        self._noted: set[str] = set()

    async def __call__(self, look: Look, judged: Sequence[Judged]) -> None:
        if not self.policies or look.view is None:
            return
        notebooks = {pod.uid for pod in look.pods or () if pod.user is not None}
        notebooks |= {one.pod.uid for one in judged if one.pod is not None}
        held = look.view.held()
        idle = idle_workloads(
            held, look.view.uses(FRESH), frozenset(notebooks), self.policies, look.at
        )
        self.culler.metrics.idle_workloads.set(len(idle))
        pods = await self._pods() if idle else {}
        self.report = [self._object(one, pods.get(one.uid)) for one in idle]
        idle_uids = {one.uid for one in idle}
        for one in idle:
            if one.policy.end and not self._others_busy(one, pods, held, idle_uids):
                await self._end(one, pods.get(one.uid), look.at)

    async def _pods(self) -> dict[str, Pod]:
        if self.kube is None:
            return {}
        try:
            return {pod.uid: pod for pod in await self.kube.pods(everywhere=True)}
        except KubeFailed as error:
            if "pods" not in self._noted:
                self._noted.add("pods")
                self.log.warning("Idle workloads are reported without their owners: %s", error)
            return {}

    @staticmethod
    def _others_busy(
        one: Idle, pods: Mapping[str, Pod], held: Mapping[str, Sequence[Held]], idle: set[str]
    ) -> bool:
        """Whether the same controller has pods whose slices are in use."""
        pod = pods.get(one.uid)
        if pod is None or not pod.owner:
            return False
        owner = (pod.namespace, pod.owner_kind, pod.owner)
        return any(
            (other.namespace, other.owner_kind, other.owner) == owner
            and other.uid in held
            and other.uid not in idle
            for other in pods.values()
        )

    def _object(self, one: Idle, pod: Pod | None) -> dict[str, Any]:
        action = "report"
        if one.policy.end:
            action = "would-end" if self.culler.options.dry_run else "ended"
        return {
            "namespace": one.namespace,
            "pod": one.pod,
            "uid": one.uid,
            "owner_kind": pod.owner_kind if pod else "",
            "owner": pod.owner if pod else "",
            "slices": [slice_object(held) for held in one.held],
            "gpu_idle_seconds": round(one.idle.total_seconds(), 1),
            "limit_seconds": one.policy.idle.total_seconds(),
            "action": action,
            "sentence": f"{one.namespace}/{one.pod}: {one.text}.",
        }

    async def _end(self, one: Idle, pod: Pod | None, now: datetime) -> None:
        on_its_way = any(reclaim.uid == one.uid for reclaim in self.culler.memory.open())
        if one.uid in self._noted or on_its_way:
            return
        self._noted.add(one.uid)
        dry = self.culler.options.dry_run
        reclaim = Reclaim(
            kind="workload",
            user="",
            server="",
            started=0.0,
            namespace=one.namespace,
            pod=one.pod,
            uid=one.uid,
            node=one.held[0].node,
            models=tuple(dict.fromkeys(held.model for held in one.held)),
            mib=sum(held.mib for held in one.held),
            reason=REASON,
            sentence=f"Ended: {one.text}.",
            state=State.DRY_RUN if dry else State.STOPPING,
            decided_at=now.timestamp(),
        )
        if dry:
            self.culler.memory.add(reclaim)
            self.culler.metrics.dry_runs.labels("workload", REASON).inc()
            self.log.info("Dry run: %s/%s would be ended: %s", one.namespace, one.pod, one.text)
            return
        if self.kube is None or pod is None:
            self.log.warning(
                "%s/%s cannot be ended: the culler may not read pods there", one.namespace, one.pod
            )
            return
        try:
            await self._stop(self.kube, pod, one.text)
        except KubeFailed as error:
            self.log.warning(
                "%s/%s cannot be ended: %s; the culler's account needs the ClusterRole in "
                "docs/culling.md",
                one.namespace, one.pod, error,
            )  # fmt: skip
            return
        self.culler.memory.add(replace(reclaim, asked_at=now.timestamp()))
        self.culler.metrics.culls.labels("workload", REASON).inc()
        self.culler.follow_now()
        self.log.info("Ended %s/%s: %s", one.namespace, one.pod, one.text)

    async def _stop(self, kube: Kube, pod: Pod, text: str) -> None:
        """End the pod through whatever would start it again. Raises KubeFailed."""
        kind, name = pod.owner_kind, pod.owner
        if kind == "ReplicaSet":
            deployment = await kube.deployment_of_set(pod.namespace, name)
            kind, name = ("Deployment", deployment) if deployment else (kind, name)
        note = {kube.names.ended: json.dumps({"reason": REASON, "text": text})}
        if kind == "Job":
            await kube.suspend_job(pod.namespace, name, note)
        elif kind in SCALED:
            await kube.scale_to_none(kind, pod.namespace, name, note)
        else:
            await kube.delete_pod(pod)
        await kube.say(pod, "SliceIdle", f"Ended: {text}")
