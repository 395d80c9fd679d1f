"""What this node knows of pods with slices, on its own disk.

A container of a pod that is placed already must be able to start again while the API server is
away, also if this program was restarted meanwhile. Only the essence of a pod is kept, for as long
as the pod holds anything here; a placement never changes, so it does not grow old.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gpushare.pods import pod_ref

log = logging.getLogger(__name__)

_UID = re.compile(r"[A-Za-z0-9-]{1,64}")


class PodStore:
    """One small file for each pod. A store that cannot be written is said so once, and is empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._problem = ""

    def put(self, pod: Mapping[str, Any]) -> None:
        """Keep the pod's essence."""
        uid = pod_ref(pod).uid
        if not _UID.fullmatch(uid):
            return
        path, text = self._path(uid), json.dumps(pod, separators=(",", ":"))
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_suffix(".new")
            fresh.touch(mode=0o600)
            fresh.write_text(text)
            os.replace(fresh, path)
            self._problem = ""
        except OSError as error:
            self._say(f"{self.folder} cannot be written: {error.strerror or error}")

    def get(self, uid: str) -> dict[str, Any] | None:
        """The essence of the pod with this uid."""
        if not _UID.fullmatch(uid):
            return None
        try:
            pod = json.loads(self._path(uid).read_text())
            return pod if isinstance(pod, dict) and pod_ref(pod).uid == uid else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("what was kept of pod %s is not readable: %s", uid, error)
            return None

    def keep_only(self, uids: Collection[str]) -> None:
        """Forget all other pods."""
        try:
            for path in self.folder.glob("*.json"):
                if path.stem not in uids:
                    path.unlink(missing_ok=True)
        except OSError as error:
            self._say(f"{self.folder} cannot be cleaned: {error.strerror or error}")

    def _path(self, uid: str) -> Path:
        return self.folder / f"{uid}.json"

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("%s; containers cannot start again without the API server then", problem)
        self._problem = problem
