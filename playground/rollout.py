"""Watching the product's pods come up, and saying what is wrong when they don't."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import urllib3
from kubernetes import client, watch

from gpushare.names import Names
from playground.progress import Say

_LOG_LINES = 12
_SERVICE = "gpushare-extender"
_AGENTS = "app.kubernetes.io/component=device-plugin"
READY = ", ready"  # how the state of a pod ends that is


@contextmanager
def narrated(api: client.ApiClient, namespace: str, say: Say) -> Iterator[None]:
    """Say each change of a pod's state for as long as the block runs."""
    done = threading.Event()
    narrator = threading.Thread(target=_narrate, args=(api, namespace, say, done), daemon=True)
    narrator.start()
    try:
        yield
    finally:
        done.set()


def _narrate(api: client.ApiClient, namespace: str, say: Say, done: threading.Event) -> None:
    core = client.CoreV1Api(api)
    said: dict[str, str] = {}
    while not done.is_set():
        # Progress is a courtesy: a broken watch is simply begun anew.
        with suppress(client.ApiException, urllib3.exceptions.HTTPError):
            stream = watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=5)
            for event in stream:
                if done.is_set():
                    return
                pod = event["object"]
                state = "gone" if event["type"] == "DELETED" else pod_state(pod)
                if said.get(pod.metadata.name) != state:
                    said[pod.metadata.name] = state
                    say(f"  {pod.metadata.name}: {state}")
        done.wait(0.5)


def pod_state(pod: client.V1Pod) -> str:
    """The pod's state in a few words: 'running on t4-1, ready', 'extender: CrashLoopBackOff'."""
    if pod.metadata.deletion_timestamp is not None:
        return "ending"
    statuses = [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]
    for status in statuses:
        waiting = status.state.waiting if status.state else None
        if waiting and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return f"{status.name}: {waiting.reason}: {waiting.message or 'no message'}"
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"not scheduled: {condition.message}"
    if pod.status.phase != "Running":
        return str(pod.status.phase).lower()
    unready = [status.name for status in statuses if not status.ready]
    where = f"running on {pod.spec.node_name}"
    return f"{where}, {' and '.join(unready)} not ready yet" if unready else where + READY


def diagnosis(api: client.ApiClient, namespace: str) -> str:
    """Every pod that is not ready, with its warnings and the last lines of its logs."""
    core = client.CoreV1Api(api)
    pods = core.list_namespaced_pod(namespace).items
    if not pods:
        return f"there is no pod in namespace {namespace}"
    parts = [
        f"{pod.metadata.name}: {pod_state(pod)}{_warnings(core, pod)}{_logs(core, pod)}"
        for pod in pods
        if not pod_state(pod).endswith(READY)
    ]
    return "\n".join(parts) or f"all {len(pods)} pods are ready"


def _warnings(core: client.CoreV1Api, pod: client.V1Pod) -> str:
    events = core.list_namespaced_event(
        pod.metadata.namespace,
        field_selector=f"involvedObject.uid={pod.metadata.uid},type=Warning",
    ).items
    messages = dict.fromkeys(f"{event.reason}: {event.message}" for event in events)
    return "".join(f"\n    {message}" for message in list(messages)[-5:])


def _logs(core: client.CoreV1Api, pod: client.V1Pod) -> str:
    text = ""
    for status in pod.status.container_statuses or []:
        if status.ready:
            continue
        try:
            log = core.read_namespaced_pod_log(
                pod.metadata.name,
                pod.metadata.namespace,
                container=status.name,
                previous=status.restart_count > 0 and not (status.state and status.state.running),
                tail_lines=_LOG_LINES,
            )
        except client.ApiException:
            continue  # no container has been made yet
        text += f"\n    last lines of {status.name}:" if log else ""
        text += "".join(f"\n      {line}" for line in log.splitlines())
    return text


def await_state_api(api: client.ApiClient, namespace: str, timeout: float) -> bool:
    """Wait until the API server leads to the state API; whether it does within ``timeout`` seconds.

    A pod is ready a moment before its Service has an address for it.
    """
    core, discovery = client.CoreV1Api(api), client.DiscoveryV1Api(api)
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        with suppress(client.ApiException):
            core.connect_get_namespaced_service_proxy_with_path(
                f"https:{_SERVICE}:state", namespace, "readyz"
            )
            return True
        # Not yet: the next thing that happens to its addresses is the time to ask again.
        stream = watch.Watch().stream(
            discovery.list_namespaced_endpoint_slice,
            namespace,
            label_selector=f"kubernetes.io/service-name={_SERVICE}",
            timeout_seconds=max(1, min(2, int(left))),
        )
        for event in stream:
            if any(endpoint.conditions.ready for endpoint in event["object"].endpoints or []):
                time.sleep(0.2)  # the API server's own copy of it follows within moments
                break
    return False


def await_cards(api: client.ApiClient, namespace: str, names: Names, timeout: float) -> list[str]:
    """Wait until each node with a device plugin offers memory of its cards; the nodes that don't.

    helm is content when all agents but one are ready, and the kubelet publishes what a plugin
    registers with its next status, up to 10 s later. ``timeout`` is in seconds.
    """
    core = client.CoreV1Api(api)
    deadline = time.monotonic() + timeout
    waiting = _await_agents(core, namespace, deadline)
    while waiting and (left := deadline - time.monotonic()) > 0:
        stream = watch.Watch().stream(core.list_node, timeout_seconds=max(1, int(left)))
        for event in stream:
            node = event["object"]
            if (node.status.allocatable or {}).get(names.gpu_mem, "0") != "0":
                waiting.discard(node.metadata.name)
            if not waiting:
                break
    return sorted(waiting)


def _await_agents(core: client.CoreV1Api, namespace: str, deadline: float) -> set[str]:
    """Wait until every device plugin is ready; the nodes that have one."""
    pods: dict[str, client.V1Pod] = {}
    while (left := deadline - time.monotonic()) > 0:
        listed = core.list_namespaced_pod(namespace, label_selector=_AGENTS)
        pods = {pod.metadata.name: pod for pod in listed.items}
        stream = watch.Watch().stream(
            core.list_namespaced_pod,
            namespace,
            label_selector=_AGENTS,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=max(1, int(left)),
        )
        while not all(pod_state(pod).endswith(READY) for pod in pods.values()):
            event = next(stream, None)
            if event is None:
                break
            pods[event["object"].metadata.name] = event["object"]
            if event["type"] == "DELETED":
                del pods[event["object"].metadata.name]
        else:
            break
    return {pod.spec.node_name for pod in pods.values() if pod.spec.node_name}
