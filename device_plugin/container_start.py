"""One container start: from the ids in the kubelet's call to the CDI spec that names its cards.

The kubelet calls before each start of a container, after it granted the ids and before the runtime
resolves the CDI device's name. What is written here is therefore what the container gets; where
anything is missing or contradicts itself, nothing is written and the container does not start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from device_plugin.delivery import Delivery, Start
from device_plugin.edits import Edits
from device_plugin.holders import Holder
from device_plugin.ids import slice_hash
from device_plugin.kube import ApiError
from device_plugin.kubelet_state import Seen
from device_plugin.pod import env_names
from device_plugin.refusal import Code, Refused
from device_plugin.slice_specs import Record, SliceSpecs, held_by_others
from device_plugin.turn import whose_turn
from device_plugin.verification import (
    Node,
    Verified,
    check_room,
    check_visible,
    placement_of,
    verify,
)
from gpushare.placement import ContainerPlacement
from gpushare.pods import pod_ref

log = logging.getLogger(__name__)

# How long a call waits for what the kubelet or the API server is about to say. The kubelet gives
# the whole call 30 s, and then tries again.
_PATIENCE = 5.0
_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_REMEMBERED = 1000


Pod = Mapping[str, Any]
# Called before the spec of a verified container is written: pod, container. It may wait; it answers
# with more edits, and raises Refused.
Hook = Callable[[Pod, ContainerPlacement], Awaitable[Edits]]


async def no_hook(pod: Pod, container: ContainerPlacement) -> Edits:
    """Nothing more is wanted."""
    return {}


class KubeletView(Protocol):
    """Who holds which ids, asked now."""

    async def see(self) -> Seen: ...


class PodMemory(Protocol):
    """Pods that hold something on this node, kept for when the API server is away."""

    def put(self, pod: Pod) -> None: ...

    def keep_only(self, uids: Collection[str]) -> None: ...


class PodView(Protocol):
    """The pods of this node."""

    async def find(self, holder: Holder) -> dict[str, Any] | None: ...

    def alive(self) -> frozenset[str] | None:
        """The uids of the node's pods; None while the API server is not being heard."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    holder: Holder
    pod: Pod


class ContainerStart:
    """Serves the kubelet's calls before container starts."""

    def __init__(
        self,
        node: Callable[[], Node],
        kubelet: KubeletView,
        pods: PodView,
        specs: SliceSpecs,
        delivery: Delivery,
        hook: Hook = no_hook,
        memory: PodMemory | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._node, self._kubelet, self._pods = node, kubelet, pods
        self._specs, self._delivery, self._pause = specs, delivery, pause
        self._hook, self._memory = hook, memory
        self._refused: dict[str, str] = {}

    async def prepare(self, resource: str, ids: frozenset[str]) -> Record:
        """Write the spec for the container that holds ``ids`` and starts now. Raises Refused."""
        began = time.perf_counter()
        digest = slice_hash(resource, ids)
        whose = "a container"
        try:
            candidate = await self._identify(resource, ids, digest)
            whose = f"{pod_ref(candidate.pod)} container {candidate.holder.container}"
            inert = self._is_inert(resource, candidate)
            more = (
                {}
                if inert
                else await self._hook(candidate.pod, self._verify(candidate, digest).container)
            )
            record = self._write(digest, candidate, more, inert)
        except Refused as refused:
            self._say_refused(digest, f"{whose} with {len(ids)} of {resource}", refused)
            raise
        self._refused.pop(digest, None)
        if self._memory is not None:
            self._memory.put(candidate.pod)
        took = (time.perf_counter() - began) * 1000
        cards = ", ".join(record.cards)
        log.info("%s: %d of %s -> %s, %.1f ms", whose, len(ids), resource, cards, took)
        return record

    def _say_refused(self, digest: str, whose: str, refused: Refused) -> None:
        # The kubelet tries again every few seconds; once is enough for the log.
        if self._refused.get(digest) != str(refused):
            log.warning("%s is refused: %s", whose, refused)
        if len(self._refused) > _REMEMBERED:
            self._refused.clear()
        self._refused[digest] = str(refused)

    async def _identify(self, resource: str, ids: frozenset[str], digest: str) -> _Candidate:
        deadline, pause = time.monotonic() + _PATIENCE, _PAUSE
        while True:
            try:
                return await self._try_identify(resource, ids, digest)
            except Refused as refused:
                passing = refused.code in (Code.NOT_FOUND, Code.UNDECIDED, Code.FULL_CARD)
                if not passing or time.monotonic() > deadline:
                    raise
            await self._pause(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.5)

    async def _try_identify(self, resource: str, ids: frozenset[str], digest: str) -> _Candidate:
        seen_at = self._specs.now()
        seen = await self._kubelet.see()
        if seen.blind:
            raise Refused(
                Code.NO_KUBELET, problem=seen.problem, socket="the kubelet's pod-resources"
            )
        self.forget_unused(seen, seen_at)
        found = []
        for holder in seen.find(resource, ids):
            try:
                pod = await self._pods.find(holder)
            except ApiError as error:
                raise Refused(Code.NO_API, problem=error) from None
            if pod is not None:
                found.append(_Candidate(holder, pod))
        if not found or len({pod_ref(c.pod).uid for c in found}) > 1:
            raise Refused(Code.NOT_FOUND, node=self._node().name, resource=resource)
        candidate = found[0] if len(found) == 1 else self._choose(found, digest)
        # The scheduler may know that a pod has ended a moment before the kubelet and we do, and has
        # given its place away.
        self._verify(candidate, digest)
        return candidate

    def _choose(self, candidates: Sequence[_Candidate], digest: str) -> _Candidate:
        pod = candidates[0].pod
        placement = placement_of(pod, self._node())
        placed = {c.name: c for c in placement.containers}
        by_name = {c.holder.container: c for c in candidates if c.holder.container in placed}
        record = self._specs.records.get(digest)
        started = record.container if record and record.uid == placement.uid else None
        in_order = [c for name, c in placed.items() if name in by_name]
        chosen = whose_turn(in_order, pod, started) if in_order else None
        if chosen is None:
            names = ", ".join(c.holder.container for c in candidates)
            raise Refused(Code.UNDECIDED, containers=names, pod=pod_ref(pod))
        return by_name[chosen.name]

    def _is_inert(self, resource: str, candidate: _Candidate) -> bool:
        # A container with several resources gets everything with the first, nothing with the others.
        first = next(r for r in self._node().names.all_resources if r in candidate.holder.ids)
        return resource != first

    def _verify(self, candidate: _Candidate, digest: str) -> Verified:
        node, holder, pod = self._node(), candidate.holder, candidate.pod
        granted = {name: len(ids) for name, ids in holder.ids.items()}
        verified = verify(pod, holder.container, granted, node)
        check_visible(pod, verified.container, node)
        # The kubelet may give the very ids of a pod that has just ended, and then what is recorded
        # under them is that pod's no more.
        others = (record for known, record in self._specs.records.items() if known != digest)
        held = held_by_others(others, pod_ref(pod).uid)
        check_room(verified, held, node.cards)
        return verified

    def _write(self, digest: str, candidate: _Candidate, more: Edits, inert: bool) -> Record:
        # From the check of the cards' room to the written record nothing is awaited: two
        # containers that start at once must not both find the same room.
        node, holder, pod = self._node(), candidate.holder, candidate.pod
        verified, ref = self._verify(candidate, digest), pod_ref(pod)
        shares = verified.container.shares
        record = Record(
            uid=ref.uid,
            namespace=ref.namespace,
            pod=ref.name,
            container=holder.container,
            cards=tuple(share.card for share in shares),
            footprint=verified.footprint,
        )
        start = Start(record, shares, node.cards, env_names(pod, holder.container), more)
        give = self._delivery.inert if inert else self._delivery.full
        try:
            self._specs.write(digest, give(digest, start), record)
        except OSError as error:
            raise Refused(
                Code.NOT_WRITTEN, folder=self._specs.folder, problem=error.strerror or error
            ) from None
        return record

    def forget_unused(self, seen: Seen, seen_at: float) -> list[Record]:
        """Remove the specs of ids that nobody holds any more; the answer is whose they were."""
        used = in_use(seen, self._specs.records, self._pods.alive())
        removed = self._specs.remove_unused(used, seen_at)
        for record in removed:
            log.info("%s/%s container %s: gone", record.namespace, record.pod, record.container)
        if removed and self._memory is not None:
            self._memory.keep_only({record.uid for record in self._specs.records.values()})
        return removed


def in_use(
    seen: Seen, records: Mapping[str, Record], alive: frozenset[str] | None
) -> frozenset[str]:
    """The hashes of all ids that are held, or may be.

    Without the checkpoint nobody tells of init containers: then what living pods were given counts.
    """
    if seen.blind:
        return frozenset(records)
    used = {
        slice_hash(resource, ids)
        for holder in seen.held(alive)
        for resource, ids in holder.ids.items()
    }
    if seen.checkpointed is None:
        used |= {digest for digest, r in records.items() if alive is None or r.uid in alive}
    return frozenset(used)
