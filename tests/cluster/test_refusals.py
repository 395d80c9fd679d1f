"""Pods that try to get round the scheduler: their containers never start, and the reason is readable."""

from __future__ import annotations

import json

import pytest
from kubernetes import client

from gpushare.names import Names
from tests.cluster.pods import Pods, container, pod

NAMES = Names()
FORGED = json.dumps(
    {
        "v": 1,
        "uid": "00000000-0000-0000-0000-000000000000",
        "node": "t4-1",
        "containers": {"main": [{"card": "GPU-forged", "mib": 1024, "percent": 0}]},
    }
)


def assert_refused_on_the_node(pods: Pods, name: str, text: str) -> None:
    """The container does not start, and an Event about the pod says why."""
    pods.await_event(name, text)
    status = pods.read(name).status
    assert not any(s.state.running or s.state.terminated for s in status.container_statuses or [])


def test_pod_with_a_node_name_set_by_hand(pods: Pods) -> None:
    pods.create(pod("by-hand", container("main", mem=3), nodeName="t4-1"))
    assert_refused_on_the_node(pods, "by-hand", "not placed by the gpushare scheduler")


def test_pod_created_with_a_placement_is_denied(pods: Pods) -> None:
    forged = pod("forged", container("main", mem=1), annotations={NAMES.placement: FORGED})
    with pytest.raises(client.ApiException) as refused:
        pods.create(forged)
    assert refused.value.status in (403, 422)
    assert NAMES.placement in refused.value.body


def test_placement_cannot_be_changed_afterwards(pods: Pods) -> None:
    pods.create(pod("honest", container("main", mem=3)))
    pods.await_running("honest")
    with pytest.raises(client.ApiException) as refused:
        pods.core.patch_namespaced_pod(
            "honest", pods.namespace, {"metadata": {"annotations": {NAMES.placement: FORGED}}}
        )
    assert refused.value.status in (403, 422)


def test_forged_placement_is_refused_by_the_node_itself(
    pods: Pods, no_admission_policy: None
) -> None:
    """Without the admission policy the node is the last line, and it holds."""
    forged = pod(
        "forged", container("main", mem=1), annotations={NAMES.placement: FORGED}, nodeName="t4-1"
    )
    pods.create(forged)
    assert_refused_on_the_node(pods, "forged", "placement")


def test_request_that_can_never_be_met_says_what_would(pods: Pods) -> None:
    pods.create(pod("odd", container("main", percent=150)))
    assert "100" in pods.await_event("odd", "not a number of whole cards")
