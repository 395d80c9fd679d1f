"""Pods that the admission webhook looks at."""

from __future__ import annotations

import time
from typing import Any

from kubernetes import client

from gpushare.names import SCHEDULER_NAME
from tests.cluster.pods import Pods, container, pod


def await_webhook(pods: Pods, timeout: float = 60) -> None:
    """The API server trusts the extender's certificate a moment after it was made; nobody is told."""
    deadline = time.monotonic() + timeout
    text = ""
    while time.monotonic() < deadline:
        try:
            if created(pods, plain("probe"), dry_run=True).spec.scheduler_name == SCHEDULER_NAME:
                return
        except client.ApiException as error:
            text = str(error.body)
        time.sleep(0.3)
    raise AssertionError(f"the webhook does not answer: {text}")


def plain(name: str, **wants: Any) -> dict[str, Any]:
    """A pod by somebody who knows nothing but the limits."""
    return pod(name, container("main", **(wants or {"mem": 3})), scheduler="default-scheduler")


def created(pods: Pods, manifest: dict[str, Any], *, dry_run: bool = False) -> client.V1Pod:
    more = {"dry_run": "All"} if dry_run else {}
    return pods.core.create_namespaced_pod(pods.namespace, manifest, **more)
