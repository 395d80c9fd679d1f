"""The usage book on the node's disk, so that a restart of the plugin forgets nothing."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from device_plugin.usage.book import UsageBook

log = logging.getLogger(__name__)

FILE = "usage.json"


class Shelf:
    """Where the book stands. Nothing here raises: a book that is lost starts anew."""

    def __init__(self, folder: Path, book: UsageBook) -> None:
        self._path, self._book = folder / FILE, book
        self._said = ""

    def load(self) -> None:
        """Take over what an earlier run saved."""
        try:
            self._book.load(self._path.read_text())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("what was measured before is lost, %s: %s", self._path, error)

    def save(self) -> None:
        """Save it, whole or not at all."""
        fresh = self._path.with_suffix(".new")
        try:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.touch(mode=0o600)
            fresh.write_text(self._book.dump())
            os.replace(fresh, self._path)
        except OSError as error:
            if str(error) != self._said:
                self._said = str(error)
                log.warning("what is measured cannot be saved: %s", error)
