"""Takes a card out of service and back: the node annotation that an operator would write.

It is done with the Kubernetes account that the service runs with, which may need nothing but ``get``
and ``patch`` on nodes; the dashboard checks that the person may do it. Without that right the page
shows the command to type instead of the button.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from gpushare.names import Names

_ATTEMPTS = 5


class CordonFailed(Exception):
    """The card's state was not changed; the text says why."""


def changed(text: str, uuid: str, index: int, out: bool) -> str:
    """The annotation's new text. Takes away both names of the card, and adds its uuid."""
    listed = [part.strip() for part in text.split(",") if part.strip()]
    others = [part for part in listed if part not in (uuid, str(index))]
    return ",".join(_once([*others, uuid] if out else others))


def _once(parts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(parts))


class Cordons:
    """One cluster. ``core`` is kubernetes_asyncio's CoreV1Api, or None without a cluster."""

    def __init__(self, core: Any, names: Names, log: logging.Logger) -> None:
        self._core = core
        self._names = names
        self._log = log
        self.allowed = False

    async def connect(self) -> None:
        """By the pod's service account or a kubeconfig; without either, cards can't be cordoned."""
        # A large package, loaded beside the loop.
        client = await asyncio.to_thread(import_module, "kubernetes_asyncio.client")
        config = await asyncio.to_thread(import_module, "kubernetes_asyncio.config")
        try:
            try:
                config.load_incluster_config()
            except config.ConfigException:
                await config.load_kube_config()
        except (config.ConfigException, OSError):
            return
        self._core = client.CoreV1Api()
        await self.ask_rights()

    async def ask_rights(self) -> None:
        """Find out whether the service's account may write to nodes."""
        if self._core is None:
            return
        from kubernetes_asyncio.client import AuthorizationV1Api

        review: Any = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "patch", "resource": "nodes"}},
        }
        try:
            api = AuthorizationV1Api(self._core.api_client)
            answer = await asyncio.wait_for(api.create_self_subject_access_review(review), 10)
            self.allowed = bool(answer.status.allowed)
        except Exception as error:  # every client has errors of its own; none may end the service
            self._log.warning("It is not known whether cards can be cordoned here: %s", error)
        if not self.allowed:
            self._log.info(
                "Cards are not cordoned from the dashboard: its account may not patch nodes "
                "(chart value dashboard.serviceAccounts)"
            )

    async def set(self, node: str, uuid: str, index: int, out: bool) -> None:
        """Cordon (``out``) or uncordon a card. Raises CordonFailed."""
        if not self.allowed:
            raise CordonFailed("The dashboard's account may not patch nodes.")
        from kubernetes_asyncio.client import ApiException

        key = self._names.cordon
        for _ in range(_ATTEMPTS):
            try:
                found = await asyncio.wait_for(self._core.read_node(node), 10)
                text = (found.metadata.annotations or {}).get(key, "")
                # With the version that was read: two operators at once must not undo each other.
                patch = {
                    "metadata": {
                        "resourceVersion": found.metadata.resource_version,
                        "annotations": {key: changed(text, uuid, index, out) or None},
                    }
                }
                await asyncio.wait_for(
                    self._core.patch_node(
                        node, patch, _content_type="application/merge-patch+json"
                    ),
                    10,
                )
            except ApiException as error:
                if error.status == 409:
                    continue
                raise CordonFailed(f"Kubernetes refuses: {_reason(error)}") from None
            except (TimeoutError, OSError) as error:
                raise CordonFailed(f"Kubernetes does not answer: {error}") from None
            return
        raise CordonFailed("Others write to this node at the moment; try again.")


def _reason(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
