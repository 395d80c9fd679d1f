"""The CDI spec files that we write: one for each set of ids that a started container holds.

They are the node's own record of what it gave away: each carries, in the variable that the
container sees as well, whose it is and what its pod holds of each card. So what is on a card is
known after a restart of this program, and without the API server.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device_plugin.edits import read_env

log = logging.getLogger(__name__)

VARIABLE = "GPUSHARE_GRANT"


@dataclass(frozen=True, slots=True)
class Record:
    """Whose a spec is. ``footprint``: (MiB, per cent) that the whole pod holds of each card."""

    uid: str
    namespace: str
    pod: str
    container: str
    cards: tuple[str, ...]
    footprint: Mapping[str, tuple[int, int]]

    def encode(self) -> str:
        """The variable's value."""
        data = {
            "v": 1,
            "uid": self.uid,
            "namespace": self.namespace,
            "pod": self.pod,
            "container": self.container,
            "cards": list(self.cards),
            "podHolds": {card: list(amounts) for card, amounts in self.footprint.items()},
        }
        return json.dumps(data, separators=(",", ":"))


def decode_record(text: str) -> Record:
    """Read the variable back. Raises ValueError for what ``Record.encode`` did not write."""
    try:
        data = json.loads(text)
        if data["v"] != 1:
            raise ValueError("not v=1")
        held = {str(card): (int(mib), int(pct)) for card, (mib, pct) in data["podHolds"].items()}
        return Record(
            uid=str(data["uid"]),
            namespace=str(data["namespace"]),
            pod=str(data["pod"]),
            container=str(data["container"]),
            cards=tuple(map(str, data["cards"])),
            footprint=held,
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a slice: {error!r}") from None


def held_by_others(records: Iterable[Record], uid: str) -> dict[str, tuple[int, int]]:
    """What pods other than ``uid`` hold of each card."""
    pods = {record.uid: record for record in records if record.uid != uid}
    held: dict[str, tuple[int, int]] = {}
    for record in pods.values():
        for card, (mib, percent) in record.footprint.items():
            have_mib, have_percent = held.get(card, (0, 0))
            held[card] = (have_mib + mib, have_percent + percent)
    return held


class SliceSpecs:
    """The files, and what is in them. Only this program writes them."""

    def __init__(
        self, folder: Path, prefix: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder = folder
        self._prefix = f"{prefix.replace('/', '-')}-slice-"
        self._clock = clock
        self._written: dict[str, float] = {}
        self.records: dict[str, Record] = {}

    def load(self) -> None:
        """Read what an earlier run left. Files that are not readable are removed."""
        pattern = re.compile(re.escape(self._prefix) + r"([0-9a-f]+)\.json(\.new)?")
        for name in _listed(self.folder):
            match = pattern.fullmatch(name)
            if match is None:
                continue
            path = self.folder / name
            try:
                if match[2]:
                    raise ValueError("it was not finished")
                self.records[match[1]] = _read_record(path)
            except (OSError, ValueError) as error:
                log.warning("slice spec %s is removed: %s", path, error)
                path.unlink(missing_ok=True)

    def write(self, digest: str, spec: Mapping[str, Any], record: Record) -> Path:
        """Write the spec, whole or not at all; the container runtime may read at any moment.

        Not synced to the disk: the folder is on a tmpfs, and each container start writes anew.
        Raises OSError.
        """
        path = self._path(digest)
        fresh = path.with_suffix(".json.new")
        fresh.write_text(json.dumps(spec, separators=(",", ":")))
        fresh.chmod(0o644)
        os.replace(fresh, path)
        self.records[digest] = record
        self._written[digest] = self._clock()
        return path

    def read(self, digest: str) -> str:
        """The spec's text; '' where it is not there."""
        try:
            return self._path(digest).read_text()
        except OSError:
            return ""

    def remove_unused(self, used: frozenset[str], since: float) -> list[Record]:
        """Remove all but ``used`` and those written after ``since`` (of ``clock``).

        ``since`` is a moment before ``used`` was asked for, so that a container that started
        meanwhile keeps its file.
        """
        gone = [
            digest
            for digest in self.records
            if digest not in used and self._written.get(digest, -1.0) < since
        ]
        removed = []
        for digest in gone:
            try:
                self._path(digest).unlink(missing_ok=True)
            except OSError as error:
                log.warning("slice spec %s stays: %s", self._path(digest), error)
                continue
            removed.append(self.records.pop(digest))
            self._written.pop(digest, None)
        return removed

    def now(self) -> float:
        """The clock that ``since`` is measured with."""
        return self._clock()

    def _path(self, digest: str) -> Path:
        return self.folder / f"{self._prefix}{digest}.json"


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _read_record(path: Path) -> Record:
    data = json.loads(path.read_text())
    try:
        text = read_env(data["devices"][0]["containerEdits"], VARIABLE)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not one of ours: {error!r}") from None
    if text is None:
        raise ValueError(f"it has no {VARIABLE}")
    return decode_record(text)
