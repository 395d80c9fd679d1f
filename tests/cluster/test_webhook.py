"""The admission webhook with the real API server: what it makes of pods, and what it refuses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from gpushare.names import SCHEDULER_NAME, Names
from tests.cluster.admitted import await_webhook, created, plain
from tests.cluster.pods import Pods, container, pod
from tests.cluster.session import scratch_namespace

NAMES = Names()


@pytest.fixture(scope="module")
def hooked(api: client.ApiClient) -> Iterator[Pods]:
    with scratch_namespace(api, "hook", admission=True) as name:
        found = Pods(api, name)
        await_webhook(found)
        yield found


def refused(pods: Pods, manifest: dict[str, Any]) -> str:
    with pytest.raises(client.ApiException) as error:
        created(pods, manifest, dry_run=True)
    assert 400 <= error.value.status < 500
    return str(error.value.body)


def test_a_pod_that_only_has_limits_gets_its_slice_and_no_more(hooked: Pods) -> None:
    manifest = plain("simple")
    manifest["spec"]["containers"][0]["env"] = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/somewhere"},
    ]
    made = created(hooked, manifest)
    assert made.spec.scheduler_name == SCHEDULER_NAME
    assert any(t.key == "nvidia.com/gpu" for t in made.spec.tolerations)
    assert [(e.name, e.value) for e in made.spec.containers[0].env] == [
        ("NVIDIA_VISIBLE_DEVICES", "void")
    ]
    hooked.await_running("simple")
    (share,) = hooked.placement("simple").containers[0].shares
    assert hooked.sight("simple", "main").cards == (share.card,)


def test_what_can_never_fit_is_refused_with_what_would(hooked: Pods) -> None:
    text = refused(hooked, plain("huge", mem=30))
    assert "this can never fit: wants 30 GiB on one card" in text
    assert "A10 with 22.5 GiB, T4 with 15 GiB" in text
    t4 = plain("huge", mem=20)
    t4["metadata"]["annotations"] = {NAMES.card_model: "T4"}
    assert "or name another model" in refused(hooked, t4)
    assert "use at most 100, or 100 or 200" in refused(hooked, plain("odd", percent=150))


def test_pods_without_a_slice_are_left_alone(hooked: Pods) -> None:
    manifest = pod("cpu", container("main"), scheduler="default-scheduler")
    made = created(hooked, manifest, dry_run=True)
    assert made.spec.scheduler_name == "default-scheduler"
    assert not made.spec.containers[0].env


def test_a_namespace_may_opt_out(pods: Pods) -> None:
    made = created(pods, plain("alone", mem=30), dry_run=True)
    assert made.spec.scheduler_name == "default-scheduler"


def test_a_resource_quota_on_slices_is_respected(hooked: Pods) -> None:
    name = f"requests.{NAMES.gpu_mem}"
    hooked.core.create_namespaced_resource_quota(
        hooked.namespace, {"metadata": {"name": "slices"}, "spec": {"hard": {name: "8"}}}
    )
    _await_quota(hooked, name)
    created(hooked, plain("within", mem=5))
    text = refused(hooked, plain("beyond", mem=5))
    assert "exceeded quota: slices" in text
    assert name in text
    hooked.await_running("within")
    hooked.core.delete_namespaced_resource_quota("slices", hooked.namespace)


def _await_quota(pods: Pods, name: str, timeout: float = 60) -> None:
    """A quota counts from when its controller has counted."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        quota = pods.core.read_namespaced_resource_quota("slices", pods.namespace)
        if name in (quota.status.used or {}):
            return
        time.sleep(0.2)
    raise AssertionError("the quota is not counted")
