"""The new lines of a file that grows, or is cut short."""

from __future__ import annotations

from pathlib import Path

_MOST = 1 << 20


class Tail:
    """Reads on where it left off. A file is read from its end on, at first."""

    def __init__(self, path: Path, from_start: bool = False) -> None:
        self._path = path
        self._place = 0 if from_start else _size(path)
        self._rest = b""

    def lines(self) -> list[str]:
        """What was written since the last call, whole lines only."""
        size = _size(self._path)
        if size < self._place:
            self._place, self._rest = 0, b""
        if size == self._place:
            return []
        if size - self._place > _MOST:
            self._place, self._rest = size - _MOST, b""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                new = file.read(_MOST)
        except OSError:
            return []
        self._place += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
