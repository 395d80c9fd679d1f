"""Bringing image archives into a node's containerd. Nothing is ever pulled."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playground.commands import run
from playground.node_configuration import CONTAINERD_SOCKET

NAMESPACE = "k8s.io"  # where the kubelet's images are


@dataclass(frozen=True, slots=True)
class Archive:
    """An image archive: the references it brings, and a digest of all that is in it."""

    path: Path
    references: tuple[str, ...]
    digest: str


def read_archive(path: Path) -> Archive:
    """Read the index of a docker-archive (or OCI archive).

    Raises ValueError for a file that is neither.
    """
    try:
        with tarfile.open(path) as archive:
            names = archive.getnames()
            index = next((n for n in ("manifest.json", "index.json") if n in names), None)
            file = archive.extractfile(index) if index else None
            content = file.read() if file else b""
    except tarfile.TarError as error:
        raise ValueError(f"{path} is no image archive: {error}") from None
    if not content:
        raise ValueError(f"{path} is no image archive: it has no manifest.json and no index.json")
    # Both name configuration and layers by their digests, so they change with any of them.
    return Archive(path, _references(json.loads(content)), hashlib.sha256(content).hexdigest())


def _references(index: object) -> tuple[str, ...]:
    if isinstance(index, list):
        return tuple(r for image in index for r in image.get("RepoTags") or ())
    assert isinstance(index, dict)
    annotations = (m.get("annotations", {}) for m in index.get("manifests", ()))
    return tuple(a["io.containerd.image.name"] for a in annotations if a)


class NodeImages:
    """The images of one node. ``records`` is a folder that remembers what each name came from."""

    def __init__(self, ctr: Path, enter: Sequence[str], records: Path) -> None:
        self._ctr = [*enter, str(ctr), "--address", str(CONTAINERD_SOCKET), "-n", NAMESPACE]
        self._records = records

    def names(self) -> set[str]:
        return set(run([*self._ctr, "images", "list", "--quiet"]).split())

    def bring(self, archive: Archive) -> bool:
        """Import ``archive``; False when exactly that is there already."""
        if archive.references and self._has(archive):
            return False
        run([*self._ctr, "images", "import", "--local", str(archive.path.absolute())])
        self._records.mkdir(exist_ok=True)
        for reference in archive.references:
            self._record(reference).write_text(archive.digest)
        return True

    def _has(self, archive: Archive) -> bool:
        recorded = all(
            self._record(r).exists() and self._record(r).read_text() == archive.digest
            for r in archive.references
        )
        return recorded and self.names().issuperset(archive.references)

    def _record(self, reference: str) -> Path:
        return self._records / hashlib.sha256(reference.encode()).hexdigest()
