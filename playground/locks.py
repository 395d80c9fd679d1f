"""One at a time, among all processes of this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock called ``path``; the file is there only as long as somebody holds it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_same(file.fileno(), path):
                continue  # its holder removed it while we waited: wait for the new one
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
