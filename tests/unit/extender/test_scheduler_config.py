"""The configurations that are shipped: complete, the same everywhere, and of kube-scheduler's form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.scheduler_config import WAYS, Asking, Link, configuration, example, policy
from gpushare.names import SCHEDULER_NAME, Names
from playground import host_scheduler
from tests.unit.extender.command import run

# The fields of an extender in kubescheduler.config.k8s.io/v1 and in the legacy Policy, with their types.
FIELDS: dict[str, Any] = {
    "urlPrefix": str, "filterVerb": str, "preemptVerb": str, "prioritizeVerb": str, "weight": int,
    "bindVerb": str, "enableHTTPS": bool, "tlsConfig": dict, "httpTimeout": str,
    "nodeCacheCapable": bool, "managedResources": list, "ignorable": bool,
}  # fmt: skip
LEGACY = {**FIELDS, "enableHttps": bool, "httpTimeout": int}
del LEGACY["enableHTTPS"]
TLS = {"insecure", "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData"}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_has_all_verbs_and_only_fields_that_there_are(way: str) -> None:
    shown = example(way, Asking())
    (entry,) = shown["extenders"]
    fields = LEGACY if way == "policy" else FIELDS
    assert all(type(value) is fields[key] for key, value in entry.items())
    assert set(fields) - set(entry) <= {"enableHTTPS", "tlsConfig"}
    assert set(entry.get("tlsConfig", {})) <= TLS
    assert (way == "loopback") == ("tlsConfig" not in entry)
    assert [r["name"] for r in entry["managedResources"]] == list(Names().resources)
    if way == "policy":
        assert entry["httpTimeout"] == 10_000_000_000
        assert (shown["kind"], shown["apiVersion"]) == ("Policy", "v1")
    else:
        assert shown["percentageOfNodesToScore"] == 100
        own = shown["profiles"][0]["schedulerName"] == SCHEDULER_NAME
        assert own == (way == "loopback")


def test_the_playground_uses_the_configuration_that_is_shipped() -> None:
    there = host_scheduler.scheduler_configuration(Path("/kubeconfig"), "1.2.3.4:5")
    ours = configuration(Link("http://1.2.3.4:5/scheduler"), Asking(), kubeconfig="/kubeconfig")
    there.pop("leaderElection")
    assert there == ours


@pytest.mark.parametrize("way", WAYS)
def test_the_command_prints_them(way: str) -> None:
    done = run(f"--print-scheduler-config={way}", "--Extender.prefix=gpu.example.org")
    assert done.returncode == 0
    asking = Asking(Names("gpu.example.org").resources)
    shown = json.loads(done.stdout) if way == "policy" else yaml.safe_load(done.stdout)
    assert shown == example(way, asking)


def test_the_manual_shows_what_is_printed() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "scheduler.md").read_text()
    shown = [
        json.loads(block) if block.startswith('{\n  "kind"') else yaml.safe_load(block)
        for block in re.findall(r"```(?:yaml|json)\n(.*?)```", manual, re.DOTALL)
        if "extenders" in block
    ]
    assert shown == [example(way, Asking()) for way in WAYS]


def test_what_is_asked_of_the_scheduler_is_written() -> None:
    asking = Asking(["a/b"], weight=7, timeout=3, ignored=False)
    (entry,) = policy(Link("http://x/scheduler"), asking)["extenders"]
    assert (entry["weight"], entry["httpTimeout"]) == (7, 3 * 10**9)
    assert entry["managedResources"] == [{"name": "a/b", "ignoredByScheduler": False}]
