"""The node's cards in the node's annotation, where the scheduler side reads them; and its labels.

The annotation is the plugin's word alone: it is written when it differs, also when somebody else
changed it. Nothing is written that did not change.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from device_plugin.feature_labels import PREFIX, to_write
from device_plugin.foreign import missing_counts
from device_plugin.kube import ApiError, Kube
from device_plugin.physical_card import Driver
from device_plugin.watch import Watch
from gpushare.cards import NodeCards, encode
from gpushare.names import Names

log = logging.getLogger(__name__)

_FIRST_RETRY, _LONGEST_RETRY = 0.5, 30.0
_UNKNOWN = Driver()
_LABEL_VALUE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Publication:
    """What is to be known of a node: its cards, why they cannot be shared, and their driver."""

    cards: NodeCards
    problem: str = ""
    driver: Driver = _UNKNOWN
    in_force: str = ""
    features: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, str] = field(default_factory=dict)


Wanted = Callable[[], Publication | None]  # None while it is not known


@dataclass(frozen=True, slots=True)
class Marks:
    """What a node should carry. None as a value: it should not have that key."""

    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None]

    def missing(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """The merge patch that makes ``node`` (a v1.Node) so; empty if it is."""
        metadata = node.get("metadata") or {}
        patch = {}
        for part, wanted in (("annotations", self.annotations), ("labels", self.labels)):
            have = metadata.get(part) or {}
            differs = {key: value for key, value in wanted.items() if have.get(key) != value}
            if differs:
                patch[part] = differs
        return {"metadata": patch} if patch else {}


def marks(
    names: Names, wanted: Publication, labels: Collection[str] = (), annotation: str = ""
) -> Marks:
    """The marks of a node. ``labels`` are those it has now: stale ones go.

    ``annotation`` is that in which we keep which of NVIDIA's labels are ours.
    """
    cards = wanted.cards
    said: dict[str, str | None] = {key: None for key in labels if key.startswith(names.model_label)}
    said[names.shared] = "true" if cards.cards else None
    said[names.driver] = _label(wanted.driver.version) or None
    said[names.cuda] = _label(wanted.driver.cuda) or None
    for model, count in Counter(_label(c.short_model) for c in cards.cards).items():
        said[f"{names.model_label}{model}"] = str(count)
    features, ours = to_write(wanted.features, labels, [k for k in annotation.split(",") if k])
    said |= features
    annotations = {
        names.feature_labels: ",".join(ours) or None,
        names.cards: encode(cards),
        names.node_problem: wanted.problem or None,
        names.in_force: wanted.in_force or None,
    }
    return Marks(annotations, said)


def encode_in_force(said: Mapping[str, Any]) -> str:
    """The annotation's text. Deterministic, so that an unchanged node is never patched."""
    return json.dumps(said, separators=(",", ":"), sort_keys=True)


def _label(text: str) -> str:
    return _LABEL_VALUE.sub("-", text)[:40].strip("-._")


def essence_of_node(node: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Name, uid, versions, and what is ours of its annotations, labels and resources."""
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    info = status.get("nodeInfo") or {}
    counts = {dialect.count for dialect in names.spoken if dialect.count}
    return {
        "metadata": {
            "name": metadata.get("name", ""),
            "uid": metadata.get("uid", ""),
            **{
                part: {
                    key: value
                    for key, value in (metadata.get(part) or {}).items()
                    if key.startswith((f"{names.prefix}/", PREFIX))
                }
                for part in ("annotations", "labels")
            },
        },
        "status": {
            "nodeInfo": {
                key: info.get(key, "") for key in ("containerRuntimeVersion", "kubeletVersion")
            },
            **{
                part: {k: v for k, v in (status.get(part) or {}).items() if k in counts}
                for part in ("capacity", "allocatable")
            },
        },
    }


class NodePublisher:
    """Writes what is ``wanted`` to the node, and hands over the operator's cordon."""

    def __init__(
        self,
        kube: Kube,
        node: str,
        names: Names,
        wanted: Wanted,
        on_cordon: Callable[[Iterable[str]], None],
    ) -> None:
        self._kube, self._node, self._names = kube, node, names
        self._wanted, self._on_cordon = wanted, on_cordon
        self._dirty = asyncio.Event()
        self._last: Publication | None = None
        self.problem = "not published yet"
        self.watch = Watch(
            kube,
            "/api/v1/nodes",
            {"fieldSelector": f"metadata.name={node}"},
            lambda item: essence_of_node(item, names),
            lambda uid: self._look(uid),
        )

    def changed(self) -> None:
        """What is wanted may have changed."""
        self._dirty.set()

    async def run(self) -> None:
        """Publish for ever."""
        delay = _FIRST_RETRY
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                undone = await self.publish() and self._is_undone()
                self.problem = ""
            except ApiError as error:
                fix = "; set DevicePlugin.node_name or $NODE_NAME" if error.status == 404 else ""
                self._say(f"node {self._node} cannot be annotated: {error}{fix}")
                self._dirty.set()
                undone = True
            # Two that want different things must not write in turns as fast as they can.
            delay = min(_LONGEST_RETRY, delay * 2) if undone else _FIRST_RETRY
            if undone:
                await asyncio.sleep(delay)

    def _is_undone(self) -> bool:
        """Whether what was just written had been written before, and somebody changed it since."""
        wanted, self._last = self._last, self._wanted()
        undone = wanted is not None and wanted == self._last
        if undone:
            log.warning(
                "node %s: somebody else changes what we publish of its cards; is there another "
                "device plugin of this kind on the node?",
                self._node,
            )
        return undone

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem

    async def publish(self) -> bool:
        """Make the node so, if it is not; whether there was anything to write. Raises ApiError."""
        wanted = self._wanted()
        if wanted is None:
            return False
        path = f"/api/v1/nodes/{self._node}"
        node = await self._kube.get(path)
        patch = self._marks(wanted, node.get("metadata") or {}).missing(node)
        if patch:
            await self._kube.patch(path, patch)
            log.info("node %s: its cards are published", self._node)
        counts = missing_counts(node, wanted.counts)
        if counts:
            await self._kube.patch(f"{path}/status", counts)
        return bool(patch or counts)

    def _marks(self, wanted: Publication, metadata: Mapping[str, Any]) -> Marks:
        ours = (metadata.get("annotations") or {}).get(self._names.feature_labels, "")
        return marks(self._names, wanted, metadata.get("labels") or {}, str(ours))

    def uid(self) -> str:
        """The node's uid, '' while it is not known."""
        return next(iter(self.watch.objects), "")

    def node_info(self) -> Mapping[str, Any]:
        """The node's status.nodeInfo, as far as it is kept; empty while it is not known."""
        node = next(iter(self.watch.objects.values()), {})
        info: Mapping[str, Any] = node.get("status", {}).get("nodeInfo", {})
        return info

    def _look(self, uid: str) -> None:
        node = self.watch.objects.get(uid)
        if node is None:
            return
        metadata = node["metadata"]
        cordon = str(metadata["annotations"].get(self._names.cordon, ""))
        self._on_cordon(part.strip() for part in cordon.split(",") if part.strip())
        wanted = self._wanted()
        if wanted and (
            self._marks(wanted, metadata).missing(node) or missing_counts(node, wanted.counts)
        ):
            self._dirty.set()
