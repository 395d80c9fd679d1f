"""Waking pods: a condition in the status of a waiting pod makes kube-scheduler try it again at once."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from extender.api import ApiError, KubeApi, NoAnswer
from extender.waiting import Waiter
from gpushare.pods import PodRef

log = logging.getLogger(__name__)

CONDITION = "SliceFreed"


class Waker:
    """Touches pods through the API."""

    def __init__(self, api: KubeApi, prefix: str) -> None:
        self._api = api
        self._type = f"{prefix}/{CONDITION}"
        self.woken = 0

    async def __call__(self, waiter: Waiter, node: str) -> None:
        path = f"/api/v1/namespaces/{waiter.ref.namespace}/pods/{waiter.ref.name}/status"
        try:
            await self._api.strategic_patch(path, self._body(waiter.ref, node))
            self.woken += 1
        except ApiError as error:
            if error.status not in (404, 409):
                log.warning("pod %s cannot be woken: %s", waiter.ref, error)
        except NoAnswer as error:
            log.warning("pod %s cannot be woken: %s", waiter.ref, error)

    def _body(self, ref: PodRef, node: str) -> dict[str, Any]:
        now = datetime.now(UTC)
        condition = {
            "type": self._type,
            "status": "True",
            "reason": "SliceFreed",
            "message": f"a slice of this size became free on node {node}",
            "lastProbeTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return {"metadata": {"uid": ref.uid}, "status": {"conditions": [condition]}}
