"""What holds of every rendering, whatever the values."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from playground.install import VALUES
from tests.unit.chart.combinations import COMBINATIONS, OUR_FILES
from tests.unit.chart.rendering import Chart, Manifest, Release

CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def identity(manifest: Manifest) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def assert_sound(release: Release, namespaces: set[str]) -> None:
    twice = [k for k, count in Counter(map(identity, release.manifests)).items() if count > 1]
    assert twice == []
    for manifest in release.manifests:
        kind, namespace, name = identity(manifest)
        assert (namespace == "") is (kind in CLUSTER_SCOPED), (kind, name)
        assert namespace == "" or namespace in namespaces
        assert manifest["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    selectors = [
        tuple(release.of(kind, name)["spec"]["selector"]["matchLabels"].items())
        for kind in ("Deployment", "DaemonSet")
        for name in release.names(kind)
    ]
    assert len(set(selectors)) == len(selectors), "two workloads would take each other's pods"


def accounts_and_roles(release: Release) -> tuple[set[Any], set[Any]]:
    """The accounts and roles that are used, and those that the release has."""
    used, have = set(), set()
    for kind in ("Deployment", "DaemonSet"):
        for name in release.names(kind):
            used.add(("ServiceAccount", release.pod_spec(kind, name)["serviceAccountName"]))
    for binding in [*release.all("ClusterRoleBinding"), *release.all("RoleBinding")]:
        role = binding["roleRef"]
        if not role["name"].startswith("system:"):
            used.add((role["kind"], role["name"]))
        for subject in binding["subjects"]:
            if subject.get("namespace") == "gpushare":
                used.add((subject["kind"], subject["name"]))
    for kind in ("ServiceAccount", "Role", "ClusterRole"):
        have |= {(kind, name) for name in release.names(kind)}
    return used, have


@pytest.mark.parametrize("name", COMBINATIONS)
def test_combination_is_sound(chart: Chart, name: str) -> None:
    release = chart.render(COMBINATIONS[name])
    assert_sound(release, {"gpushare", "default"})
    used, have = accounts_and_roles(release)
    assert used <= have, "something refers to what is not there"


@pytest.mark.parametrize("file", [*OUR_FILES, VALUES], ids=lambda path: path.name)
def test_values_file_is_sound(chart: Chart, file: Path) -> None:
    release = chart.render({}, file, least=file != VALUES)
    # Where the aliyun dialect is spoken, that system's list of sick cards is read there.
    assert_sound(release, {"gpushare", "kube-system"})
    used, have = accounts_and_roles(release)
    assert used <= have


def test_every_service_account_is_used(chart: Chart) -> None:
    used, have = accounts_and_roles(chart.render())
    assert have - used == {("Role", "gpushare-inspect")}, "rights that nobody needs"
