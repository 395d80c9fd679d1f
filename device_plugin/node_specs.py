"""The node's own CDI specs of its cards, as nvidia-ctk or the gpu-operator write them.

They say what a container needs for a card: device nodes, the driver's libraries, hooks. We take
that word for word, so that a slice's container gets what a container with the whole card gets.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from device_plugin.edits import Edits
from gpushare.cards import Card

log = logging.getLogger(__name__)

_CARD_NODE = re.compile(r"/dev/nvidia(\d+)")
_LARGEST = 8 * 1024 * 1024
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NoEdits(Exception):
    """The node's specs do not say how to give this card to a container."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One spec file: edits for any of its devices, and edits for each device."""

    path: str
    version: str
    common: Edits
    devices: Mapping[str, Edits]


@dataclass(frozen=True, slots=True)
class CardEdits:
    """What one card needs, and the spec that says so."""

    spec: NodeSpec
    device: Edits


def card_edits(specs: Sequence[NodeSpec], card: Card) -> CardEdits:
    """The edits for ``card``. Raises NoEdits with the fix.

    A device is looked for by uuid, then by what it is: the one whose only card node is the card's.
    Later specs are of later folders, which CDI lets win.
    """
    for spec in reversed(specs):
        edits = spec.devices.get(card.uuid)
        if edits is not None:
            return CardEdits(spec, _checked(edits, card, spec))
    for spec in reversed(specs):
        for edits in spec.devices.values():
            if _minors(edits) == {card.minor}:
                return CardEdits(spec, edits)
    have = ", ".join(spec.path for spec in specs) or "no file"
    raise NoEdits(
        f"the node's CDI specs ({have}) have no device for it; run 'nvidia-ctk cdi generate' on the "
        "node, or restart the gpu-operator's toolkit there"
    )


def _checked(edits: Edits, card: Card, spec: NodeSpec) -> Edits:
    minors = _minors(edits)
    if minors and minors != {card.minor}:
        # The cards were renumbered since the spec was made. It would give away another card.
        raise NoEdits(
            f"{spec.path} gives /dev/nvidia{min(minors)} for {card.uuid}, which is "
            f"/dev/nvidia{card.minor} now; run 'nvidia-ctk cdi generate' again"
        )
    return edits


def _minors(edits: Edits) -> set[int]:
    nodes = edits.get("deviceNodes") or []
    paths = (str(node.get("path", "")) for node in nodes if isinstance(node, Mapping))
    return {int(match[1]) for path in paths if (match := _CARD_NODE.fullmatch(path))}


def parse(path: str, text: str, kind: str) -> NodeSpec | None:
    """The spec in ``text``; None for another kind. Raises ValueError for what is no CDI spec."""
    try:
        data = json.loads(text) if path.endswith(".json") else yaml.load(text, _Loader)  # noqa: S506
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it cannot be parsed: {error}") from None
    if not isinstance(data, Mapping):
        raise ValueError("it is not an object")
    if data.get("kind") != kind:
        return None
    devices: dict[str, Edits] = {}
    for device in data.get("devices") or []:
        if isinstance(device, Mapping) and isinstance(device.get("containerEdits"), Mapping):
            devices[str(device.get("name"))] = device["containerEdits"]
    common = data.get("containerEdits")
    return NodeSpec(
        path,
        str(data.get("cdiVersion", "")),
        common if isinstance(common, Mapping) else {},
        devices,
    )


class NodeSpecs:
    """The specs of one kind in the CDI folders, read again when a file changes."""

    def __init__(self, folders: Iterable[Path], kind: str) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._kind = kind
        self._read: dict[str, tuple[object, NodeSpec | None]] = {}

    def specs(self) -> list[NodeSpec]:
        """All readable specs, in order of folders and then of names."""
        seen: dict[str, tuple[object, NodeSpec | None]] = {}
        for path in self._paths():
            try:
                stat = path.stat()
                state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                known = self._read.get(str(path))
                fresh = known is None or known[0] != state
                seen[str(path)] = (state, self._parse(path)) if fresh else known  # type: ignore[assignment]
            except OSError:
                continue  # gone while we looked
        self._read = seen
        return [spec for _, spec in seen.values() if spec is not None]

    def _paths(self) -> Iterable[Path]:
        ours = re.compile(r".*-slice-[0-9a-f]+\.json")
        for folder in self._folders:
            try:
                names = sorted(os.listdir(folder))
            except OSError:
                continue
            for name in names:
                if name.endswith((".json", ".yaml")) and not ours.fullmatch(name):
                    yield folder / name

    def _parse(self, path: Path) -> NodeSpec | None:
        try:
            if path.stat().st_size > _LARGEST:
                raise ValueError(f"it is larger than {_LARGEST} bytes")
            return parse(str(path), path.read_text(), self._kind)
        except (OSError, ValueError) as error:
            log.warning("CDI spec %s is not used: %s", path, error)
            return None
