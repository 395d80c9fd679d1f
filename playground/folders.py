"""Where one playground keeps its state. `down` removes all of it; what is built lies in the cache."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from playground.addresses import DEFAULT_NAME

NAME_VARIABLE = "GPUSHARE_PLAYGROUND_NAME"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


def chosen_name(name: str | None = None) -> str:
    """``name``, or the environment's, or the default. Raises ValueError for one that is no label."""
    chosen = name or os.environ.get(NAME_VARIABLE) or DEFAULT_NAME
    if not _NAME.fullmatch(chosen):
        raise ValueError(
            f"playground name {chosen!r}: use up to 32 lower-case letters, digits and '-' "
            f"(--name or {NAME_VARIABLE})"
        )
    return chosen


def state_home() -> Path:
    """The folder that holds the state of every playground of this user."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home, "gpushare", "playground")


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders and files of one playground's state."""

    root: Path

    @classmethod
    def of(cls, name: str) -> Folders:
        return cls(state_home() / name)

    @property
    def lock(self) -> Path:
        """Beside the state, so that it can be held while the state is removed."""
        return self.root.parent / f".{self.root.name}.lock"

    @property
    def certificates(self) -> Path:
        return self.root / "certificates"

    @property
    def configuration(self) -> Path:
        return self.root / "configuration"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def processes(self) -> Path:
        return self.root / "processes"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def namespaces(self) -> Path:
        """Files that hold the nodes' namespaces open; a mount of its own, kept from the nodes."""
        return self.root / "namespaces"

    @property
    def description(self) -> Path:
        """What this playground is: its mode, its nodes, the machine's boot, what it changed."""
        return self.root / "playground.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.kubeconfig_of("admin")

    def kubeconfig_of(self, identity: str) -> Path:
        return self.configuration / f"{identity}.kubeconfig"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name
