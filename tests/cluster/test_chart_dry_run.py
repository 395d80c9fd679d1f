"""Every combination of values, given to the real API server as a dry run.

The API server checks what no template can: field names and types, CEL expressions, references
within an object, and what admission says.
"""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from gpushare.names import Names
from playground import binaries
from playground.cluster import Cluster
from playground.install import RELEASE, VALUES, helm
from tests.unit.chart.combinations import COMBINATIONS, OUR_FILES
from tests.unit.chart.rendering import Chart, Manifest

# Beside the product that is installed: the API server would merge equal names with what is there.
BESIDE: dict[str, Any] = {"nameOverride": "dry-run"}
NAMESPACE = "default"

# Kinds of other projects that a cluster may lack; the playground has none of them.
FOREIGN = {
    "cert-manager": {"Certificate", "Issuer"},
    "everything on": {"PodMonitor", "ServiceMonitor"},
}


@pytest.fixture(scope="module")
def chart(api: client.ApiClient) -> Chart:
    return Chart(binaries.path("helm"))


def served_groups(api: client.ApiClient) -> set[str]:
    return {group.name for group in client.ApisApi(api).get_api_versions().groups}


def dry_run(manifests: Iterable[Manifest]) -> subprocess.CompletedProcess[str]:
    """Server-side apply without storing anything; unknown and double fields are errors."""
    command = [
        str(binaries.path("kubectl")), "--kubeconfig", str(Cluster().kubeconfig()), "apply",
        "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
        "--filename=-",
    ]  # fmt: skip
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    return subprocess.run(
        command, input=json.dumps(items), capture_output=True, text=True, check=False
    )


def assert_accepted(
    api: client.ApiClient, manifests: Iterable[Manifest], foreign: Set[str] = frozenset()
) -> None:
    groups = served_groups(api) | {"v1"}
    ours = []
    for manifest in manifests:
        if manifest["apiVersion"].split("/")[0] in groups:
            ours.append(manifest)
        else:
            assert manifest["kind"] in foreign, f"no server for {manifest['kind']}"
    done = dry_run(ours)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert done.stdout.count("serverside-applied") == len(ours)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_combination_is_accepted(api: client.ApiClient, chart: Chart, name: str) -> None:
    release = chart.render({**BESIDE, **COMBINATIONS[name]}, namespace=NAMESPACE)
    assert_accepted(api, release.manifests, FOREIGN.get(name, set()))


@pytest.mark.parametrize("file", [*OUR_FILES, VALUES], ids=lambda path: path.name)
def test_values_file_is_accepted(api: client.ApiClient, chart: Chart, file: Path) -> None:
    assert_accepted(
        api, chart.render(BESIDE, file, namespace=NAMESPACE, least=file != VALUES).manifests
    )


@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        ("Deployment", {"spec": {"replica": 2}}, "unknown field"),
        ("Service", {"spec": {"type": "Nonsense"}}, "Unsupported value"),
    ],
)
def test_dry_run_finds_mistakes(
    api: client.ApiClient, chart: Chart, kind: str, change: Mapping[str, Any], complaint: str
) -> None:
    """The check above is worth something only if it fails for what is wrong."""
    manifest = chart.render(BESIDE, namespace=NAMESPACE).all(kind)[0]
    broken = {**manifest, "spec": {**manifest["spec"], **change["spec"]}}
    done = dry_run([broken])
    assert done.returncode != 0
    assert complaint in done.stderr


def test_example_in_the_notes_is_accepted(api: client.ApiClient) -> None:
    """What helm prints after an installation is what people try first."""
    notes = helm(Cluster().kubeconfig(), "get", "notes", RELEASE).stdout
    example = textwrap.dedent(notes.split("<<END\n")[1].split("     END\n")[0])
    pod = yaml.safe_load(example)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {Names().gpu_mem: 3}
    done = dry_run([{**pod, "metadata": {**pod["metadata"], "namespace": NAMESPACE}}])
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, "the policy for stray pods has something to say"


def test_policies_have_no_type_warnings(api: client.ApiClient) -> None:
    """The API server checks the policies' expressions against the types they are about."""
    policies = client.AdmissionregistrationV1Api(api).list_validating_admission_policy().items
    ours = [p for p in policies if p.metadata.name.startswith("gpushare-")]
    assert len(ours) == 4
    for policy in ours:
        checking = policy.status.type_checking if policy.status else None
        warnings = checking.expression_warnings if checking else None
        assert not warnings, f"{policy.metadata.name}: {warnings}"
