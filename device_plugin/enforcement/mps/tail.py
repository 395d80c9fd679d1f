"""The new lines of a file that grows, or is cut short; and cutting it short."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

_MOST = 1 << 20


class Tail:
    """Reads on where it left off. A file is read from its end on, at first."""

    def __init__(self, path: Path, from_start: bool = False) -> None:
        self.path = path
        self._place = 0 if from_start else _size(path)
        self._rest = b""

    def lines(self) -> list[str]:
        """What was written since the last call, whole lines only."""
        size = _size(self.path)
        if size < self._place:
            self._place, self._rest = 0, b""
        if size == self._place:
            return []
        if size - self._place > _MOST:
            self._place, self._rest = size - _MOST, b""
        try:
            with self.path.open("rb") as file:
                file.seek(self._place)
                new = file.read(_MOST)
        except OSError:
            return []
        self._place += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        # A writer that does not append leaves a hole where the file was cut short: it reads as NULs.
        return [line.lstrip(b"\0").decode(errors="replace") for line in lines]


def rotate(path: Path, most: int = _MOST) -> bool:
    """Cut a log of more than ``most`` bytes to nothing, its text moved to NAME.1; whether it was.

    Daemons hold their logs open for good, so the file stays and its content goes. What is written
    between the two steps is lost. Holes count for nothing.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_blocks * 512 <= most:
            return False
        fresh = path.with_name(path.name + ".1.new")
        shutil.copyfile(path, fresh)
        os.truncate(path, 0)
        os.replace(fresh, path.with_name(path.name + ".1"))
        return True
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
