"""The command line at a real cluster, also as kubectl's plugin: why, top, cordon and drain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kubernetes import client

from playground import binaries
from tests.cluster.inspection import gpushare, inspect
from tests.cluster.pods import NAMES, Pods, container, pod


def test_a_card_is_drained_and_comes_back(api: client.ApiClient, pods: Pods) -> None:
    pods.create(pod("stays", container("main", mem=3)))
    pods.await_running("stays")
    pods.create(pod("leaves", container("main", percent=100)))
    leaving = pods.await_running("leaves")
    node, (card,) = leaving.spec.node_name, pods.placement("leaves").footprint()
    index = next(c["index"] for n in inspect()["nodes"] for c in n["cards"] if c["uuid"] == card)

    dry = gpushare("drain", f"{node}/{index}", "--dry-run")
    assert f"{pods.namespace}/leaves" in dry
    assert "1 of 1 pods evicted" in dry
    assert pods.read("leaves").metadata.deletion_timestamp is None

    told = gpushare("drain", card, "--yes", timeout=120)
    assert "is empty and takes nothing new" in told
    try:
        assert pods.read("stays").status.phase == "Running"
        found = client.CoreV1Api(api).read_node(node).metadata.annotations
        assert found[NAMES.cordon] == card
        # It can only be that card, and that takes nothing.
        manifest = pod("waits", container("main", mem=1), annotations={NAMES.card_uuid: card})
        pods.create(manifest)
        pods.await_event("waits", "wants")
    finally:
        assert "takes pods again" in gpushare("uncordon", f"{node}/{index}")
    pods.await_running("waits")


def test_why_and_top_tell_of_real_pods(pods: Pods) -> None:
    pods.create(pod("has", container("main", mem=3)))
    pods.await_running("has")
    assert gpushare("why", "has").startswith("has its slice: ")
    pods.create(pod("waits", container("main", mem=2000)))
    pods.await_event("waits", "wants")
    told = gpushare("why", "pod/waits")
    assert "2000 GiB" in told
    assert "NODE" in gpushare("top")
    usage = json.loads(gpushare("top", "-o", "json"))
    assert usage["nodes"]


def test_kubectl_finds_the_plugin(api: client.ApiClient, tmp_path: Path) -> None:
    kubectl = binaries.path("kubectl")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = subprocess.run(
        [str(kubectl), "gpushare", "inspect", "-o", "json"],
        env={**os.environ, "PATH": path, "KUBECACHEDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(told.stdout)["nodes"]
