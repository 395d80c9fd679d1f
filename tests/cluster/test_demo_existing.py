"""The demo on a cluster that the user has: here the playground's, named by its kubeconfig."""

from __future__ import annotations

import os
import subprocess
import sys

from kubernetes import client, watch

from playground.existing_demo import NAMESPACE
from tests.cluster.pods import IMAGE


def test_pods_of_the_demo_see_their_cards_and_leave_nothing(api: client.ApiClient) -> None:
    command = [sys.executable, "-m", "gpushare.cli.main", "demo", "--image", IMAGE]
    done = subprocess.run(
        [*command, "--kubeconfig", os.environ["KUBECONFIG"]],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every pod sees the card that it was placed on, and no other" in done.stdout
    assert "its slice is free again" in done.stdout
    _await_gone(client.CoreV1Api(api))


def _await_gone(core: client.CoreV1Api) -> None:
    listed = core.list_namespace(field_selector=f"metadata.name={NAMESPACE}")
    if not listed.items:
        return
    stream = watch.Watch().stream(
        core.list_namespace,
        field_selector=f"metadata.name={NAMESPACE}",
        resource_version=listed.metadata.resource_version,
        timeout_seconds=120,
    )
    assert any(event["type"] == "DELETED" for event in stream), f"{NAMESPACE} is still there"
