"""What a node says and does for the other systems' dialects beside its own work.

A container that asks in a dialect gets that system's variables as well; its pod's annotations say
when it has its cards; and a node carries the number of its cards where a dialect has a resource for
that. None of it decides anything: what cannot be written is tried again, then left.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from device_plugin.edits import Edits, env_edits, join
from device_plugin.kube import ApiError, Kube
from gpushare.cards import Card
from gpushare.dialects import speech
from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement
from gpushare.pods import PodRef, annotation, pod_ref
from gpushare.request import parse_request
from gpushare.units import Unit

log = logging.getLogger(__name__)

_WAITING = 500
_TRIES = 5
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 30.0
# The pod is gone or another, or it may not be written: trying again changes nothing.
_FINAL = frozenset({400, 403, 404, 409, 422})


class Foreign:
    """The dialects' part in a container's start, and their marks on pods and on the node."""

    def __init__(
        self,
        kube: Kube,
        node: str,
        names: Names,
        unit: Unit,
        cards: Callable[[], Mapping[str, Card]],
        placement: Callable[[Mapping[str, Any]], Placement],
    ) -> None:
        self._kube, self._node, self._names, self._unit = kube, node, names, unit
        self._cards, self._placement = cards, placement
        self._marks: OrderedDict[str, tuple[PodRef, Mapping[str, str]]] = OrderedDict()
        self._some = asyncio.Event()

    def edits(self, pod: Mapping[str, Any], container: ContainerPlacement, more: Edits) -> Edits:
        """``more`` and the variables of the container's dialect. Remembers to mark its pod.

        What the container is given otherwise beats the dialect.
        """
        if not self._names.spoken:
            return more
        request = parse_request(pod, self._names, self._unit)
        if not request.names:
            return more
        placement = self._placement(pod)
        ref = pod_ref(pod)
        digest = hashlib.sha256(f"{ref.uid}/{container.name}".encode()).hexdigest()
        env = speech.environment(
            self._names, request, placement, self._cards(), container.name, digest
        )
        marks = speech.at_start(self._names, request, container.name)
        if marks and any(annotation(pod, key) != value for key, value in marks.items()):
            self._mark(ref, marks)
        return join([env_edits(env), more]) if env else more

    def counts(self, cards: Collection[object]) -> dict[str, str]:
        """The node's resources that hold how many cards it has."""
        return {d.count: str(len(cards)) for d in self._names.spoken if d.count}

    async def run(self) -> None:
        """Write marks for ever."""
        delay = _FIRST_RETRY
        tries: dict[str, int] = {}
        while True:
            await self._some.wait()
            uid, (ref, marks) = next(iter(self._marks.items()))
            done = await self._write(ref, marks)
            tries[uid] = tries.get(uid, 0) + 1
            if done or tries[uid] >= _TRIES:
                del self._marks[uid]
                tries.pop(uid)
                delay = _FIRST_RETRY
            else:
                self._marks.move_to_end(uid)
                await asyncio.sleep(delay)
                delay = min(_LONGEST_RETRY, delay * 2)
            if not self._marks:
                self._some.clear()

    def _mark(self, ref: PodRef, marks: Mapping[str, str]) -> None:
        self._marks[ref.uid] = (ref, marks)
        if len(self._marks) > _WAITING:
            self._marks.popitem(last=False)
        self._some.set()

    async def _write(self, ref: PodRef, marks: Mapping[str, str]) -> bool:
        """Whether it is done with. The status subresource: this program may not write pods."""
        path = f"/api/v1/namespaces/{ref.namespace}/pods/{ref.name}/status"
        body = {"metadata": {"uid": ref.uid, "annotations": dict(marks)}}
        try:
            await self._kube.patch(path, body)
        except ApiError as error:
            log.info("pod %s is not marked as started: %s", ref, error)
            return error.status in _FINAL
        return True


def missing_counts(node: Mapping[str, Any], counts: Mapping[str, str]) -> dict[str, Any]:
    """The merge patch of nodes/status that makes ``counts`` the node's; empty if they are."""
    status = node.get("status") or {}
    patch = {}
    for part in ("capacity", "allocatable"):
        have = status.get(part) or {}
        differs = {key: value for key, value in counts.items() if have.get(key) != value}
        if differs:
            patch[part] = differs
    return {"status": patch} if patch else {}
