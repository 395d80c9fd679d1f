"""What XID errors said of cards, on the node's own disk, so that a restart of this program is no
recovery. The folder is on a tmpfs: a reboot, which loads the driver anew, ends all verdicts.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

log = logging.getLogger(__name__)

Verdicts = Mapping[str, tuple[int, datetime]]


class VerdictFile:
    """(XID, when) by card uuid. Nothing here raises: without it, verdicts end with this program."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: Verdicts = {}
        self._said = ""

    def load(self) -> dict[str, tuple[int, datetime]]:
        """What an earlier run kept."""
        try:
            data = json.loads(self._path.read_text())
            kept = {
                str(uuid): (int(xid), datetime.fromisoformat(at).astimezone(UTC))
                for uuid, (xid, at) in data.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            log.warning(
                "errors of cards before this start are not known, %s: %s", self._path, error
            )
            return {}
        self._kept = kept
        return kept

    def keep(self, verdicts: Verdicts) -> None:
        """Exactly these hold now."""
        if verdicts == self._kept:
            return
        text = json.dumps({uuid: [xid, at.isoformat()] for uuid, (xid, at) in verdicts.items()})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_text(text)
            os.replace(fresh, self._path)
            self._kept, self._said = dict(verdicts), ""
        except OSError as error:
            if str(error) != self._said:
                log.warning("errors of cards will not outlive a restart: %s", error)
            self._said = str(error)
