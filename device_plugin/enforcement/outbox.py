"""What is told to the API server: Events about pods, and evictions.

An eviction here is what the kubelet's own would look like: a DisruptionTarget condition on the pod,
with the reason (KEP-3329; a Job's podFailurePolicy reads it), then the pod's deletion with its own
grace period. Not the Eviction API: that asks disruption budgets, which are not meant to let a pod
keep its neighbours' memory, and a right to it cannot be bound to the pods of one node.

Nothing waits for it. While the server is away the newest of what there is to say is kept and said
later; what happens on the node goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Protocol

from device_plugin.enforcement.messages import Message
from gpushare.names import Names
from gpushare.pods import PodRef

log = logging.getLogger(__name__)

_KEPT = 200
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 30.0
_GONE = frozenset({404, 409})  # 409: another pod has its name
# Answers that trying again will not change.
_FINAL = frozenset({400, 403, 422}) | _GONE


class Server(Protocol):
    """The calls that are made. They raise an exception with a ``status`` (0: no answer)."""

    async def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]: ...
    async def patch_list(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A strategic merge patch: it adds to lists of conditions in place of replacing them."""
        ...

    async def delete(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]: ...


class _Kind(Enum):
    EVENT = "an event about"
    CONDITION = "the reason on"
    DELETION = "the deletion of"


@dataclass(frozen=True, slots=True)
class _Letter:
    pod: PodRef
    path: str
    body: Mapping[str, Any]
    kind: _Kind = _Kind.EVENT


class Outbox:
    """Sends in order, one at a time."""

    def __init__(
        self,
        server: Server,
        node: str,
        names: Names,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._server, self._node, self._names, self._clock = server, node, names, clock
        self._letters: deque[_Letter] = deque(maxlen=_KEPT)
        self._evicting: set[str] = set()
        self._some = asyncio.Event()
        self.problem = ""

    def event(self, pod: PodRef, message: Message) -> None:
        """Write a Kubernetes Event about the pod."""
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{pod.name[:200]}.{uuid.uuid4().hex[:16]}",
                "namespace": pod.namespace,
            },
            "involvedObject": {**about, "name": pod.name, "uid": pod.uid},
            "reason": message.reason.value,
            "message": message.text[:1000],
            "type": message.event_type,
            "source": {"component": self._names.event_source, "host": self._node},
            "reportingComponent": self._names.event_source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._put(_Letter(pod, f"/api/v1/namespaces/{pod.namespace}/events", body))

    def evict(self, pod: PodRef, message: Message) -> None:
        """Evict exactly this pod; harmless when it is under way."""
        if pod.uid in self._evicting:
            return
        self._evicting.add(pod.uid)
        self.event(pod, message)
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": message.reason.value,
            "message": message.text[:1000],
            "lastTransitionTime": self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        status = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        self._put(_Letter(pod, f"{path}/status", status, _Kind.CONDITION))
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": pod.uid},
        }
        self._put(_Letter(pod, path, options, _Kind.DELETION))

    async def run(self) -> None:
        """Send for ever."""
        delay = _FIRST_RETRY
        while True:
            await self._some.wait()
            letter = self._letters.popleft()
            try:
                done = await self._send(letter)
            except Exception:
                log.exception("%s %s failed by a fault of ours", letter.kind.value, letter.pod)
                done = True
            if done:
                delay, self.problem = _FIRST_RETRY, ""
            else:
                self._letters.appendleft(letter)
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311
                delay = min(_LONGEST_RETRY, delay * 2)
            if not self._letters:
                self._some.clear()

    async def _send(self, letter: _Letter) -> bool:
        """Whether it is done with."""
        call = {
            _Kind.EVENT: self._server.post,
            _Kind.CONDITION: self._server.patch_list,
            _Kind.DELETION: self._server.delete,
        }[letter.kind]
        try:
            await call(letter.path, letter.body)
        except Exception as error:
            status = getattr(error, "status", None)
            if status is None:
                raise
            return self._failed(letter, int(status), str(error))
        if letter.kind is _Kind.DELETION:
            log.warning("%s: evicted for its use of GPU memory", letter.pod)
            self._evicting.discard(letter.pod.uid)
        return True

    def _failed(self, letter: _Letter, status: int, said: str) -> bool:
        if status in _FINAL:
            # The watchdog asks again if the pod is still over; meanwhile others are not held up.
            if status not in _GONE:
                log.warning("%s %s was refused: %s", letter.kind.value, letter.pod, said)
            if letter.kind is _Kind.DELETION:
                self._evicting.discard(letter.pod.uid)
            return True
        if said != self.problem:
            log.warning("%s %s has to wait: %s", letter.kind.value, letter.pod, said)
        self.problem = said
        return False

    def _put(self, letter: _Letter) -> None:
        if len(self._letters) == _KEPT and self._letters[0].kind is _Kind.DELETION:
            self._evicting.discard(self._letters[0].pod.uid)
        self._letters.append(letter)
        self._some.set()
