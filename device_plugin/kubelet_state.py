"""Asking the kubelet who holds which ids: its pod resources API, and its checkpoint beside it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio

from device_plugin.api.podresources_pb2 import (
    AllocatableResourcesRequest,
    ListPodResourcesRequest,
)
from device_plugin.api.podresources_pb2_grpc import PodResourcesListerStub
from device_plugin.holders import (
    Holder,
    claims,
    from_checkpoint,
    from_pod_resources,
    offered_by_others,
)

log = logging.getLogger(__name__)

CHECKPOINT = "kubelet_internal_checkpoint"
_LARGEST_ANSWER = 64 * 1024 * 1024
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """Both answers of one moment; None for the one that failed, with the reason in ``problem``."""

    listed: Sequence[Holder] | None
    checkpointed: Sequence[Holder] | None
    problem: str = ""

    @property
    def blind(self) -> bool:
        """Whether the kubelet said nothing at all."""
        return self.listed is None and self.checkpointed is None

    def held(self, alive: frozenset[str] | None) -> list[Holder]:
        """Every container that holds ids, or may: what is not certain counts as held.

        The list says what active pods hold, but not their plain init containers. The checkpoint
        has those, and pods that have ended since it was last written. ``alive`` tells them apart:
        the uids of the node's pods, None where they are not known.
        """
        checkpointed: Sequence[Holder] = self.checkpointed or ()
        if self.listed is not None and alive is not None:
            checkpointed = [holder for holder in checkpointed if holder.uid in alive]
        return [*(self.listed or ()), *checkpointed]

    def find(self, resource: str, ids: frozenset[str]) -> list[Holder]:
        """The containers that hold exactly these ids, each as fully named as the two can say."""
        listed = [h for h in self.listed or () if h.holds(resource, ids)]
        found = [h for h in self.checkpointed or () if h.holds(resource, ids)]
        if len(listed) == 1:
            # The checkpoint's uid and the list's name are of one pod: ids have one pod at a time.
            pod = listed[0]
            found = [replace(h, namespace=pod.namespace, name=pod.name) for h in found]
        return found + [h for h in listed if h.container not in {f.container for f in found}]


class KubeletState:
    """The kubelet's answers. Calls that come while one is under way share the next one.

    The kubelet serves 100 calls a second with bursts of 10 and refuses more, so a node full of
    starting pods must not ask once for each.
    """

    def __init__(
        self, socket: Path, checkpoint: Path, resources: Iterable[str], timeout: float = 2.0
    ) -> None:
        self._checkpoint, self._timeout = checkpoint, timeout
        self._resources = tuple(resources)
        self._channel = grpc.aio.insecure_channel(
            f"unix://{socket}",
            options=[
                ("grpc.max_receive_message_length", _LARGEST_ANSWER),
                # A kubelet that comes back is found at once, not after gRPC's minutes of backoff.
                ("grpc.max_reconnect_backoff_ms", 1000),
                ("grpc.initial_reconnect_backoff_ms", 100),
                # Go's gRPC server refuses the name that grpc makes of a socket's path.
                ("grpc.default_authority", "localhost"),
            ],
        )
        self._stub = PodResourcesListerStub(self._channel)
        self._known: tuple[object, Sequence[Holder]] | None = None
        self._running: asyncio.Task[Seen] | None = None
        self._next: asyncio.Task[Seen] | None = None

    async def close(self) -> None:
        """Let go of the kubelet."""
        await self._channel.close()

    async def claims(self, cards: Iterable[str]) -> dict[str, str] | None:
        """Which of ``cards`` other plugins offer too, and as what; None if the kubelet is silent."""
        try:
            answer = await self._stub.GetAllocatableResources(
                AllocatableResourcesRequest(), timeout=self._timeout
            )
        except grpc.aio.AioRpcError:
            return None
        return claims(answer.devices, cards, self._resources)

    async def of_others(self, resources: Collection[str]) -> frozenset[str]:
        """Which of ``resources`` another plugin offers: with ids that are none of ours."""
        try:
            answer = await self._stub.GetAllocatableResources(
                AllocatableResourcesRequest(), timeout=self._timeout
            )
        except grpc.aio.AioRpcError:
            return frozenset()
        return offered_by_others(answer.devices, resources)

    async def see(self) -> Seen:
        """What the kubelet says, asked after this call began."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
        return await asyncio.shield(self._next)

    async def _after(self, running: asyncio.Task[Seen] | None) -> Seen:
        if running is not None and not running.done():
            await asyncio.wait([running])
        # From here on the answer may be older than a new call: that one gets a task of its own.
        self._running, self._next = self._next, None
        return await self._ask()

    async def _ask(self) -> Seen:
        problems = []
        listed = checkpointed = None
        try:
            listed = await self._list()
        except grpc.aio.AioRpcError as error:
            problems.append(f"pod resources: {error.code().name}, {error.details()}")
        try:
            checkpointed = self._read_checkpoint()
        except (OSError, ValueError) as error:
            problems.append(f"checkpoint: {error}")
        return Seen(listed, checkpointed, "; ".join(problems))

    def _read_checkpoint(self) -> Sequence[Holder]:
        # The kubelet replaces the whole file (it writes another one and renames it), and of an open
        # file the state is what is read.
        with self._checkpoint.open("rb") as file:
            stat = os.fstat(file.fileno())
            state = (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
            if self._known is None or self._known[0] != state:
                self._known = (state, from_checkpoint(file.read(), self._resources))
        return self._known[1]

    async def _list(self) -> list[Holder]:
        for attempt in range(_TRIES):
            try:
                answer = await self._stub.List(ListPodResourcesRequest(), timeout=self._timeout)
                return from_pod_resources(answer.pod_resources, self._resources)
            except grpc.aio.AioRpcError as error:
                refused = error.code() in (
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    grpc.StatusCode.UNAVAILABLE,
                )
                if not refused or attempt == _TRIES - 1:
                    raise
            await asyncio.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable")
