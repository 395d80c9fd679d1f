"""The catalogue as a file that may change while the Hub runs."""

from __future__ import annotations

import logging
from pathlib import Path

from gpushare.names import Names
from gpushare.units import Unit
from profiles.catalogue import Catalogue
from profiles.reader import CatalogueError, load


class CatalogueFile:
    """Reads the file again when it has changed; keeps to the last good one when it is broken."""

    def __init__(self, path: Path, unit: Unit, names: Names, log: logging.Logger) -> None:
        self.path = path
        self.unit = unit
        self.names = names
        self.log = log
        self._seen: tuple[int, int, int] | None = None
        self._catalogue: Catalogue | None = None
        self._problem: CatalogueError | None = None

    def current(self) -> Catalogue:
        """The catalogue. Raises CatalogueError if there never was a good one."""
        stamp = self._stamp()
        if stamp != self._seen or (self._catalogue is None and self._problem is None):
            self._seen = stamp
            self._read()
        if self._catalogue is None:
            assert self._problem is not None
            raise self._problem
        return self._catalogue

    def _read(self) -> None:
        try:
            self._catalogue = load(self.path, unit=self.unit, names=self.names)
            self._problem = None
        except CatalogueError as error:
            self._problem = error
            kept = "the one read before stays in use" if self._catalogue else "nobody can start"
            self.log.error("The catalogue is not valid, %s:\n%s", kept, error)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
