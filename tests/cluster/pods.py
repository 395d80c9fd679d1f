"""Pods for the cluster tests, and waiting for what becomes of them by watching, never by sleeping."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kubernetes import client, watch

from gpushare.names import SCHEDULER_NAME, Names
from gpushare.placement import Placement, decode

NAMES = Names()
IMAGE = "localhost/gpushare/singleuser:dev"

# What a container sees: the cards that NVML shows it, and its environment. Written to the log as
# one JSON line, then the container stays until it is told to go.
LOOK = """
import json, os, signal, sys
seen = {"env": {k: v for k, v in os.environ.items() if k.startswith(("GPU", "NVIDIA", "CUDA", "XLA", "TF_"))}}
try:
    import pynvml
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    seen["cards"] = [pynvml.nvmlDeviceGetUUID(h) for h in handles]
except Exception as error:
    seen["cards"], seen["error"] = [], f"{type(error).__name__}: {error}"
seen["devices"] = sorted(n for n in os.listdir("/dev") if n.startswith("nvidia"))
print(json.dumps(seen), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if "--once" not in sys.argv:
    signal.pause()
"""


@dataclass(frozen=True)
class Sight:
    """What one container saw."""

    cards: tuple[str, ...]
    devices: tuple[str, ...]
    env: dict[str, str]
    error: str = ""


def container(name: str, mem: int = 0, percent: int = 0, *, once: bool = False) -> dict[str, Any]:
    """A container that looks at its cards and says what it sees."""
    limits = {}
    if mem:
        limits[NAMES.gpu_mem] = str(mem)
    if percent:
        limits[NAMES.gpu_percent] = str(percent)
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", LOOK, *(["--once"] if once else [])],
        "resources": {"limits": limits} if limits else {},
    }


def pod(
    name: str,
    *containers: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    scheduler: str = SCHEDULER_NAME,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of such containers."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "initContainers": init or [],
            "containers": list(containers),
            **spec,
        },
    }


class Pods:
    """One namespace's pods."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.core = client.CoreV1Api(api)
        self.namespace = namespace

    def create(self, manifest: dict[str, Any]) -> str:
        name: str = manifest["metadata"]["name"]
        self.core.create_namespaced_pod(self.namespace, manifest)
        return name

    def read(self, name: str) -> client.V1Pod:
        return self.core.read_namespaced_pod(name, self.namespace)

    def delete(self, name: str, grace: int | None = None) -> None:
        self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=grace)

    def await_pod(
        self, name: str, what: str, holds: Callable[[client.V1Pod], bool], timeout: float = 60
    ) -> client.V1Pod:
        """The pod once ``holds`` is true of it. Fails with its events when it does not come true."""
        found = self._await(f"metadata.name={name}", holds, timeout)
        assert found is not None, f"{name}: not {what} after {timeout:.0f} s\n{self.story(name)}"
        return found

    def await_any(
        self, what: str, holds: Callable[[client.V1Pod], bool], timeout: float = 60
    ) -> client.V1Pod:
        """The first pod of which ``holds`` is true."""
        found = self._await("", holds, timeout)
        assert found is not None, f"no pod is {what} after {timeout:.0f} s"
        return found

    def _await(
        self, fields: str, holds: Callable[[client.V1Pod], bool], timeout: float
    ) -> client.V1Pod | None:
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            stream = watch.Watch().stream(
                self.core.list_namespaced_pod,
                self.namespace,
                field_selector=fields,
                timeout_seconds=max(1, int(left)),
            )
            for event in stream:
                if event["type"] != "DELETED" and holds(event["object"]):
                    return event["object"]
        return None

    def await_running(self, name: str, timeout: float = 60) -> client.V1Pod:
        return self.await_pod(name, "Running", lambda p: p.status.phase == "Running", timeout)

    def await_gone(self, name: str, timeout: float = 60) -> None:
        """Wait until the pod's object is deleted."""
        fields = f"metadata.name={name}"
        first = self.core.list_namespaced_pod(self.namespace, field_selector=fields)
        if not first.items:
            return
        stream = watch.Watch().stream(
            self.core.list_namespaced_pod,
            self.namespace,
            field_selector=fields,
            resource_version=first.metadata.resource_version,
            timeout_seconds=int(timeout),
        )
        gone = any(event["type"] == "DELETED" for event in stream)
        assert gone, f"{name}: still there after {timeout:.0f} s\n{self.story(name)}"

    def await_event(self, name: str, text: str, timeout: float = 60) -> str:
        """The message of the first Event about the pod that contains ``text``."""
        stream = watch.Watch().stream(
            self.core.list_namespaced_event,
            self.namespace,
            field_selector=f"involvedObject.name={name}",
            timeout_seconds=int(timeout),
        )
        for event in stream:
            if text in (event["object"].message or ""):
                return str(event["object"].message)
        raise AssertionError(
            f"{name}: no event with {text!r} in {timeout:.0f} s\n{self.story(name)}"
        )

    def placement(self, name: str) -> Placement:
        annotations = self.read(name).metadata.annotations or {}
        return decode(annotations[NAMES.placement])

    def log_lines(self, name: str, container_name: str, timeout: float = 30) -> Iterator[bytes]:
        """The container's log, line by line, as it is written."""
        response = self.core.read_namespaced_pod_log(
            name,
            self.namespace,
            container=container_name,
            follow=True,
            _preload_content=False,
            _request_timeout=timeout,
        )
        return _lines(response)

    def sight(self, name: str, container_name: str, timeout: float = 30) -> Sight:
        """What the container wrote first in its log."""
        seen = json.loads(next(self.log_lines(name, container_name, timeout)))
        return Sight(
            tuple(seen["cards"]), tuple(seen["devices"]), seen["env"], seen.get("error", "")
        )

    def await_forgery(self, *, allowed: bool, timeout: float = 30) -> None:
        """Wait until the API server has taken note of the admission policy's coming or going.

        It tells nobody, so it is asked again and again, without anything being created.
        """
        forged = pod("probe", container("main"), annotations={NAMES.placement: "{}"})
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                self.core.create_namespaced_pod(self.namespace, forged, dry_run="All")
            except client.ApiException as error:
                if error.status not in (403, 422):
                    raise
                if not allowed:
                    return
            else:
                if allowed:
                    return
            time.sleep(0.2)
        raise AssertionError(f"forged placements are {'not ' if allowed else ''}allowed")

    def story(self, name: str) -> str:
        """All that Kubernetes said about the pod, for the message of a failed test."""
        events = self.core.list_namespaced_event(
            self.namespace, field_selector=f"involvedObject.name={name}"
        )
        return "\n".join(f"  {e.reason}: {e.message}" for e in events.items)


def _lines(response: Any) -> Iterator[bytes]:
    buffer = b""
    for chunk in response.stream():
        buffer += chunk
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            yield line
