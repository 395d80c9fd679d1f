"""Clients that act in somebody else's name."""

from __future__ import annotations

import copy

from kubernetes import client


def acting_as(admin: client.ApiClient, user: str, *groups: str) -> client.ApiClient:
    """A client that the API server takes for ``user``."""
    api = client.ApiClient(admin.configuration)
    api.set_default_header("Impersonate-User", user)
    if groups:
        # One header: the client keeps a single value for each, and so far one group was enough.
        (group,) = groups
        api.set_default_header("Impersonate-Group", group)
    return api


def with_token(admin: client.ApiClient, token: str) -> client.ApiClient:
    """A client that presents ``token`` and nothing else."""
    configuration = copy.copy(admin.configuration)
    configuration.cert_file = configuration.key_file = None
    configuration.api_key = {"authorization": f"Bearer {token}"}
    configuration.api_key_prefix = {}
    configuration.refresh_api_key_hook = None
    return client.ApiClient(configuration)


def service_account(namespace: str, name: str) -> str:
    """The account's user name."""
    return f"system:serviceaccount:{namespace}:{name}"


def pod_token(admin: client.ApiClient, namespace: str, pod: client.V1Pod) -> str:
    """A token like the one that the kubelet mounts into ``pod``: it names the pod and its node."""
    request = {
        "spec": {
            "audiences": [],
            "expirationSeconds": 600,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
            },
        }
    }
    answer = client.CoreV1Api(admin).create_namespaced_service_account_token(
        pod.spec.service_account_name, namespace, request
    )
    return str(answer.status.token)
