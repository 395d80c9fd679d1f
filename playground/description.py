"""What a playground is: written down before anything is made, so that a later command can go on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from playground.nodes import Node


@dataclass(frozen=True, slots=True)
class Description:
    """One playground as it was made. After ``boot`` is over, nothing but files is left of it."""

    simulated: bool
    boot: str
    nodes: tuple[Node, ...]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self), indent=1))
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Description | None:
        """None when there is none, or none that can be read."""
        try:
            data: dict[str, Any] = json.loads(path.read_text())
            nodes = tuple(Node(**node) for node in data["nodes"])
            return cls(bool(data["simulated"]), str(data["boot"]), nodes)
        except (OSError, ValueError, KeyError, TypeError):
            return None
