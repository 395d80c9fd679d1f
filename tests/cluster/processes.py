"""Killing and restarting the real processes of the playground."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kubernetes import client, watch

from playground.cluster import Cluster
from tests.cluster.inspection import gpushare

NAMESPACE = "gpushare"


class Processes:
    """The playground's components and the processes inside the product's pods."""

    def __init__(self, api: client.ApiClient) -> None:
        self.core = client.CoreV1Api(api)

    def restart(self, component: str) -> None:
        """Restart a component of the playground and wait until it is healthy again."""
        gpushare("playground", "restart", component)

    def kill_in_pod(
        self, app: str, program: str, *, wait: bool = True, how: int = signal.SIGKILL
    ) -> None:
        """End every process called ``program``, as a crash or the OOM killer would."""
        before = self._restarts(app)
        for pid in pids_of(program):
            os.kill(pid, how)
        if wait:
            self._await(app, lambda now: now > before and self._all_ready(app))

    def await_ready(self, app: str) -> None:
        self._await(app, lambda _: self._all_ready(app))

    def _await(self, app: str, holds: object) -> None:
        assert callable(holds)
        stream = watch.Watch().stream(
            self.core.list_namespaced_pod,
            NAMESPACE,
            label_selector=f"app.kubernetes.io/component={app.removeprefix('gpushare-')}",
            timeout_seconds=120,
        )
        for _ in stream:
            if holds(self._restarts(app)):
                return
        raise AssertionError(f"{app}: not ready again after 120 s")

    def _pods(self, app: str) -> list[client.V1Pod]:
        label = f"app.kubernetes.io/component={app.removeprefix('gpushare-')}"
        pods: list[client.V1Pod] = self.core.list_namespaced_pod(
            NAMESPACE, label_selector=label
        ).items
        assert pods, f"no pods of {app} in {NAMESPACE}"
        return pods

    def _restarts(self, app: str) -> int:
        return sum(
            status.restart_count
            for pod in self._pods(app)
            for status in pod.status.container_statuses or []
        )

    def _all_ready(self, app: str) -> bool:
        return all(
            status.ready
            for pod in self._pods(app)
            for status in pod.status.container_statuses or []
        )


def pids_of(program: str) -> list[int]:
    """Pids of processes in this playground's containers whose command line runs ``program``.

    Containers' processes are visible from the host; which playground's they are, and whether they
    are in a pod at all, their control group tells.
    """
    group_of_playground = Cluster().group
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            group = (entry / "cgroup").read_text()
        except OSError:
            continue
        runs = any(Path(os.fsdecode(part)).name == program for part in command[:2])
        if runs and "kubepods" in group and group_of_playground in group:
            found.append(int(entry.name))
    assert found, f"no process called {program} runs in a pod"
    return found
