"""A built image as a file: a docker-archive tar and what is known about it."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """An image in a tar that `ctr images import` and `docker load` read.

    ``digest`` is the image's id: equal ids are equal content; every build has a new one. ``size`` is
    that of its unpacked layers, in bytes.
    """

    name: str
    path: Path
    reference: str
    digest: str
    size: int


def read(name: str, path: Path, reference: str) -> ImageArchive:
    """The archive at ``path``, described from its own manifest."""
    with tarfile.open(path) as tar:
        found = tar.extractfile("manifest.json")
        if found is None:
            raise ValueError(f"{path} has no manifest.json: not a docker-archive")
        [manifest] = json.load(found)
        layers = [tar.getmember(layer) for layer in manifest["Layers"]]
        # Layers may be links to equal ones stored once.
        size = sum(tar.getmember(m.linkname).size if m.islnk() else m.size for m in layers)
    digest = "sha256:" + manifest["Config"].removesuffix(".json")
    return ImageArchive(name, path, reference, digest, size)
