"""Binding a pod to a node: one API call that carries the placement.

The place is reserved in the ledger in one synchronous step before anything is sent, so that no two
binds can count on the same memory. What the API answers settles the reservation; where no answer
comes, the pod itself is read, because the bind may or may not have happened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from extender.api import ApiError, KubeApi, NoAnswer
from extender.ranking import Ranking
from extender.view import ClusterView
from gpushare import placement as placements
from gpushare.dialects.speech import at_bind
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.pods import PodRef, pod_ref
from gpushare.reasons import Code, Reason
from gpushare.request import PodRequest
from gpushare.visibility import visible_annotations

log = logging.getLogger(__name__)

# The API server is told to give up before we do, so that a bind without an answer is over, one way
# or the other, when the pod is read. Both in seconds, within kube-scheduler's 10.
_SERVER_SECONDS = 4
_OUR_SECONDS = 5.0
_READ_AGAIN = (0.2, 0.5, 1.0, 2.0, 5.0)


class BindFailed(Exception):
    """The pod is not bound by this call; the text is for the pod's events."""


@dataclass(slots=True)
class BindCounts:
    """Binds by result, for the metrics."""

    bound: int = 0
    repeated: int = 0
    refused: int = 0
    failed: int = 0
    unknown: int = 0


class Binder:
    """Binds pods, each uid once."""

    def __init__(
        self, api: KubeApi, view: ClusterView, names: Names, ranking: Ranking | None = None
    ) -> None:
        self.api = api
        self.view = view
        self.names = names
        self.ranking = ranking or Ranking(view.fleet, view.rules.policy)
        self.counts = BindCounts()
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}

    async def bind(self, ref: PodRef, node: str, request: PodRequest | None) -> None:
        """Bind the pod. Returns when it is bound to this node, raises BindFailed when it is not.

        ``request`` is what the filter saw, if it is still known.
        """
        while (running := self._in_flight.get(ref.uid)) is not None:
            # The same pod once more (the scheduler lost patience): one outcome serves both.
            await asyncio.wait([running])
        if self._is_bound(ref, node):
            self.counts.repeated += 1
            return
        task = asyncio.create_task(self._bind(ref, node, request))
        self._in_flight[ref.uid] = task
        task.add_done_callback(lambda _done: self._in_flight.pop(ref.uid, None))
        # Shielded: when the caller goes away the bind still has to be settled.
        await asyncio.shield(task)

    async def drain(self, seconds: float) -> None:
        """Wait for binds in flight."""
        tasks = {*self._in_flight.values(), *self._settling.values()}
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _is_bound(self, ref: PodRef, node: str) -> bool:
        """Whether the pod is on this node already. Raises BindFailed if it is on another."""
        held = self.view.slice_of(ref.uid)
        if held is None or (held.reserved and not self.view.is_bound(ref.uid)):
            return False
        if held.placement.node == node:
            return True
        raise BindFailed(Reason(Code.BOUND_ELSEWHERE, {"node": held.placement.node}).sentence())

    async def _bind(self, ref: PodRef, node: str, request: PodRequest | None) -> None:
        if request is None:
            request = await self._read_request(ref)
        if self.view.is_gone(ref.uid):
            raise BindFailed("the pod is gone")
        if ref.uid in self._settling:
            raise BindFailed("what became of an earlier bind of this pod is not known yet")
        cards = self.ranking.prefer(ref.uid, node, request, self.view.cpu_of(ref.uid))
        found = self.view.reserve(ref, node, request, cards)
        if isinstance(found, Reason):
            self.counts.refused += 1
            raise BindFailed(f"node {node}: {found.sentence()}")
        over = self.view.clock.now() + _SERVER_SECONDS + 0.5
        try:
            await self.api.post(
                f"/api/v1/namespaces/{ref.namespace}/pods/{ref.name}/binding",
                self._body(ref, node, request, found),
                {"timeout": f"{_SERVER_SECONDS}s"},
                within=_OUR_SECONDS,
            )
        except ApiError as error:
            if error.status < 500 and error.status != 409:
                self.view.drop_reservation(ref.uid)
                self.counts.failed += 1
                raise BindFailed(f"the API server did not bind it: {error.message}") from None
            # 409: it is bound already, perhaps by us. 5xx: it may have been written all the same.
            await self._learn(ref, found, over if error.status >= 500 else 0, error.message)
        except NoAnswer as error:
            self.counts.unknown += 1
            await self._learn(ref, found, over, str(error))
        self.view.bound(ref.uid)
        self.counts.bound += 1

    def _body(
        self, ref: PodRef, node: str, request: PodRequest, found: Placement
    ) -> dict[str, Any]:
        marks = at_bind(self.names, request, found, self.view.cards_of(node), time.time_ns())
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": ref.name,
                "namespace": ref.namespace,
                # A precondition: a new pod of the same name is never bound with this placement.
                "uid": ref.uid,
                "annotations": {
                    self.names.placement: placements.encode(found),
                    **visible_annotations(found, self.names),
                    **marks.annotations,
                },
                **({"labels": dict(marks.labels)} if marks.labels else {}),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }

    async def _learn(self, ref: PodRef, found: Placement, over: float, problem: str) -> None:
        """Read the pod to learn what became of the bind. Raises BindFailed if it did not happen.

        Before the moment ``over`` the server may still be at it, so 'not bound' means nothing yet.
        """
        outcome = await self._outcome(ref, found)
        if outcome is False and (wait := over - self.view.clock.now()) > 0:
            await asyncio.sleep(wait)
            outcome = await self._outcome(ref, found)
        if outcome is True:
            return
        self.counts.failed += 1
        if outcome is False:
            self.view.drop_reservation(ref.uid)
        else:
            # The place stays reserved until it is known.
            task = asyncio.create_task(self._settle(ref, found))
            self._settling[ref.uid] = task
            task.add_done_callback(lambda _done: self._settling.pop(ref.uid, None))
        raise BindFailed(f"the API server did not bind it: {problem}")

    async def _settle(self, ref: PodRef, found: Placement) -> None:
        turn = 0
        while (held := self.view.slice_of(ref.uid)) is not None and held.reserved:
            await asyncio.sleep(_READ_AGAIN[min(turn, len(_READ_AGAIN) - 1)])
            turn += 1
            outcome = await self._outcome(ref, found)
            if outcome is True:
                self.view.bound(ref.uid)
                return
            if outcome is False:
                self.view.drop_reservation(ref.uid)
                return

    async def _outcome(self, ref: PodRef, found: Placement) -> bool | None:
        """Whether the pod is bound as we asked; None if that can't be known now."""
        try:
            pod = await self.api.get(f"/api/v1/namespaces/{ref.namespace}/pods/{ref.name}")
            pod_ref(pod)
            fact = self.view.reader.pod(pod)
        except ApiError as error:
            return False if error.status == 404 else None
        except (NoAnswer, ValueError):
            return None
        if fact is None or fact.ref.uid != ref.uid or not fact.node:
            return False
        ours = fact.placement == found
        if not ours:
            self.view.drop_reservation(ref.uid)
        self.view.apply_pod(fact)
        return ours

    async def _read_request(self, ref: PodRef) -> PodRequest:
        try:
            pod = await self.api.get(f"/api/v1/namespaces/{ref.namespace}/pods/{ref.name}")
        except (ApiError, NoAnswer) as error:
            raise BindFailed(f"the pod cannot be read: {error}") from None
        if pod.get("metadata", {}).get("uid") != ref.uid:
            raise BindFailed("the pod was replaced by another of the same name")
        request, refusal = self.view.reader.request(pod)
        if refusal is not None:
            raise BindFailed(refusal.sentence())
        return request
