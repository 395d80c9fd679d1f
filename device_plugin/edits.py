"""CDI container edits: reading them from specs, joining them, and our own spec around them. Pure.

CDI is the CNCF's Container Device Interface: JSON or YAML files that tell the container runtime
what a device name stands for (device nodes, mounts, hooks, environment).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Edits = Mapping[str, Any]

# Device names that begin with a digit, and hostPath of device nodes, came with 0.5.0.
_LEAST_VERSION = (0, 5, 0)
# How to tell that two entries of a list are the same thing. Other entries must be equal.
_IDENTITY = {"deviceNodes": "path", "mounts": "containerPath"}


def join(parts: Iterable[Edits]) -> dict[str, Any]:
    """All of ``parts`` in one. Of two variables, nodes or mounts in one place the later one stands."""
    joined: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key == "env":
                joined[key] = _join_env(joined.get(key, []), value)
            elif isinstance(value, list):
                joined[key] = _join_list(joined.get(key, []), value, _IDENTITY.get(key))
            else:
                joined[key] = value
    return joined


def _join_env(have: list[str], more: Iterable[str]) -> list[str]:
    env = dict(entry.partition("=")[::2] for entry in have)
    env.update(entry.partition("=")[::2] for entry in more)
    return [f"{name}={value}" for name, value in env.items()]


def _join_list(have: list[Any], more: list[Any], identity: str | None) -> list[Any]:
    def same(entry: Any) -> str:
        named = identity is not None and isinstance(entry, Mapping) and identity in entry
        return str(entry[identity]) if named else json.dumps(entry, sort_keys=True)

    return list({same(entry): entry for entry in (*have, *more)}.values())


def env_edits(env: Mapping[str, str]) -> dict[str, Any]:
    """Edits that only set variables."""
    return {"env": [f"{name}={value}" for name, value in env.items()]}


def read_env(edits: Edits, name: str) -> str | None:
    """One variable's value in ``edits``."""
    for entry in edits.get("env") or []:
        key, _, value = str(entry).partition("=")
        if key == name:
            return value
    return None


def spec(kind: str, device: str, edits: Edits, versions: Iterable[str] = ()) -> dict[str, Any]:
    """A CDI spec with one device. ``versions`` are those of the specs that its edits come from."""
    newest = max([_LEAST_VERSION, *map(_version, versions)])
    return {
        "cdiVersion": ".".join(map(str, newest)),
        "kind": kind,
        "devices": [{"name": device, "containerEdits": edits}],
    }


def _version(text: str) -> tuple[int, ...]:
    parts = text.removeprefix("v").split(".")
    return tuple(int(part) for part in parts) if all(p.isdigit() for p in parts) else _LEAST_VERSION
