"""A notice board for each slice: a small folder on the node, seen in its containers at /run/gpushare.

In it is one file, slice.json: what the slice is, what of it is used and by which process, and what
its user has to know. JupyterLab, a terminal or a program reads it without network, token or NVML;
nobody in the container can write it. It names nothing outside of the pod.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

FILE = "slice.json"
IN_CONTAINER = "/run/gpushare"
KEPT = 20
PAUSE = 10.0  # seconds between two writes of one board that has no news


class NoticeBoards:
    """The boards of all slices of the node, by pod uid."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, str] = {}
        self._written_at: dict[str, float] = {}
        self._notices: dict[str, list[dict[str, Any]]] = {}
        self._numbers: dict[str, int] = {}
        self._said = ""

    def edits(self, uid: str) -> dict[str, Any]:
        """The CDI edits that hang the board into a container. Raises OSError."""
        self._written_at.pop(uid, None)
        folder = self._folder / uid
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        mount = {
            "hostPath": str(folder),
            "containerPath": IN_CONTAINER,
            "options": ["ro", "nosuid", "nodev", "noexec", "bind"],
        }
        return {"mounts": [mount]}

    def post(self, uid: str, kind: str, text: str, now: float) -> None:
        """Put up a notice; it is seen with the next ``show``."""
        self._numbers[uid] = number = self._numbers.get(uid, 0) + 1
        notice = {"id": number, "time": round(now, 1), "kind": kind, "text": text}
        self._notices[uid] = [*self._notices.get(uid, []), notice][-KEPT:]

    def due(self, uid: str, now: float) -> bool:
        """Whether a board without news is to be written again. They take turns, and cost little."""
        if uid not in self._written_at:
            return (self._folder / uid).is_dir()  # else no container of it was started by us
        return now - self._written_at[uid] >= PAUSE

    def show(self, uid: str, content: Mapping[str, Any], now: float) -> None:
        """Write the board if anything but the time differs."""
        self._written_at[uid] = now
        body = {**content, "notices": self._notices.get(uid, [])}
        text = json.dumps(body, separators=(",", ":"))
        if self._written.get(uid) == text:
            return
        stamped = json.dumps({"v": 1, "updated": round(now, 1), **body}, separators=(",", ":"))
        try:
            fresh = self._folder / uid / f".{FILE}"
            fresh.write_text(stamped)
            fresh.chmod(0o644)
            os.replace(fresh, self._folder / uid / FILE)
        except OSError as error:
            self._say(f"notice boards cannot be written in {self._folder}: {error.strerror}")
            return
        self._written[uid] = text

    def remove_all_but(self, uids: Collection[str]) -> None:
        """Take down the boards of slices that are gone."""
        try:
            there = os.listdir(self._folder)
        except OSError:
            return
        for uid in there:
            if uid not in uids:
                shutil.rmtree(self._folder / uid, ignore_errors=True)
        for uid in (self._written_at.keys() | self._notices.keys()) - frozenset(uids):
            self._written.pop(uid, None)
            self._written_at.pop(uid, None)
            self._notices.pop(uid, None)
            self._numbers.pop(uid, None)

    def _say(self, problem: str) -> None:
        if problem != self._said:
            self._said = problem
            log.warning("%s; check that the folder is mounted writable into the plugin", problem)
