"""Fixtures on the playground's real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client

from tests.cluster.pods import Pods
from tests.cluster.processes import Processes
from tests.cluster.session import await_empty, scratch_namespace, session, why_not

POLICY_SUFFIX = "placement"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    if reason is not None:
        for item in items:
            if "cluster" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def api() -> Iterator[client.ApiClient]:
    """The cluster with the product in it."""
    with session() as api:
        yield api


@pytest.fixture(scope="session")
def namespace(api: client.ApiClient) -> Iterator[str]:
    with scratch_namespace(api, "test") as name:
        yield name


@pytest.fixture
def pods(api: client.ApiClient, namespace: str) -> Iterator[Pods]:
    """Pods of one test; all are gone when the next one starts."""
    yield Pods(api, namespace)
    core = client.CoreV1Api(api)
    core.delete_collection_namespaced_pod(namespace, grace_period_seconds=1)
    await_empty(core, namespace)


@pytest.fixture
def processes(api: client.ApiClient) -> Processes:
    return Processes(api)


@pytest.fixture
def no_admission_policy(api: client.ApiClient, pods: Pods) -> Iterator[None]:
    """Without the policy that keeps the placement annotation for our service account."""
    admission = client.AdmissionregistrationV1Api(api)
    bindings = [
        binding
        for binding in admission.list_validating_admission_policy_binding().items
        if binding.metadata.name.endswith(POLICY_SUFFIX)
    ]
    assert bindings, "the chart installs no binding for the placement policy"
    for binding in bindings:
        admission.delete_validating_admission_policy_binding(binding.metadata.name)
    pods.await_forgery(allowed=True)
    yield
    for binding in bindings:
        binding.metadata = client.V1ObjectMeta(
            name=binding.metadata.name,
            labels=binding.metadata.labels,
            annotations=binding.metadata.annotations,
        )
        admission.create_validating_admission_policy_binding(binding)
    pods.await_forgery(allowed=False)
