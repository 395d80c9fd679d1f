"""A cluster with the product installed, for tests and measurements.

A playground that is up already is used and left up; otherwise one is brought up and taken down.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from kubernetes import client, config, watch

from gpushare.names import Names
from playground import images
from playground.capability import can_run_containers
from playground.cluster import Cluster
from playground.install import NAMESPACE, install
from playground.rollout import READY, await_cards, await_state_api, pod_state


def why_not() -> str | None:
    """Why there can be no cluster here, or None."""
    return can_run_containers()


@contextmanager
def session() -> Iterator[client.ApiClient]:
    """The playground, up, with the notebook image and the product in it.

    Within another one: the same cluster, with its product well.
    """
    if _open:
        _mend(_open[-1])
        yield _open[-1]
        return
    cluster = Cluster()
    was_up = cluster.description is not None
    try:
        cluster.up()
        cluster.import_image(images.build("singleuser").path)
        install(cluster)
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig())
        api = config.new_client_from_config(str(cluster.kubeconfig()))
        _open.append(api)
        yield api
    finally:
        _open.clear()
        if not was_up:
            cluster.down()


_open: list[client.ApiClient] = []


def _mend(api: client.ApiClient) -> None:
    """Have pods of the product that tests have killed often made anew: the kubelet restarts their
    containers later each time, a new pod's at once."""
    core = client.CoreV1Api(api)
    for pod in core.list_namespaced_pod(NAMESPACE).items:
        if not pod_state(pod).endswith(READY):
            core.delete_namespaced_pod(pod.metadata.name, NAMESPACE, grace_period_seconds=0)
    waiting = await_cards(api, NAMESPACE, Names(), timeout=120)
    assert not waiting, f"no card is offered by {waiting}"
    assert await_state_api(api, NAMESPACE, timeout=60), "the state API does not answer"


@contextmanager
def scratch_namespace(
    api: client.ApiClient, stem: str, *, admission: bool = False
) -> Iterator[str]:
    """A namespace of its own; at the end its pods are gone and nothing of it is left.

    Unless ``admission`` is wanted the webhook leaves it alone, so that pods are what a test makes
    them, and what stands behind the webhook is tested too.
    """
    core = client.CoreV1Api(api)
    name = f"{stem}-{uuid.uuid4().hex[:6]}"
    labels = {} if admission else {f"{Names().prefix}/admission": "disabled"}
    core.create_namespace({"metadata": {"name": name, "labels": labels}})
    try:
        yield name
    finally:
        core.delete_collection_namespaced_pod(name, grace_period_seconds=1)
        await_empty(core, name)
        core.delete_namespace(name)


def await_empty(core: client.CoreV1Api, namespace: str, timeout: int = 90) -> None:
    """Wait until the namespace has no pods."""
    first = core.list_namespaced_pod(namespace)
    left = {pod.metadata.uid for pod in first.items}
    if not left:
        return
    stream = watch.Watch().stream(
        core.list_namespaced_pod,
        namespace,
        resource_version=first.metadata.resource_version,
        timeout_seconds=timeout,
    )
    for event in stream:
        if event["type"] == "DELETED":
            left.discard(event["object"].metadata.uid)
            if not left:
                return
    raise AssertionError(f"{len(left)} pods of {namespace} are still there after {timeout} s")
