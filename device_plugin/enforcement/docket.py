"""The watchdog's cases on the node's disk, so that a restart of the plugin is no fresh grace.

Times in them are of CLOCK_MONOTONIC, which all processes of one boot share (man 2 clock_gettime);
the folder is on a tmpfs, so no file of an earlier boot is ever read.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from device_plugin.enforcement.watchdog import Case, Ending, Fault

log = logging.getLogger(__name__)

FILE = "cases.json"
_VERSION = 1
Cases = Mapping[tuple[str, str], Case]


def encode(cases: Cases) -> str:
    """The file's text."""
    entries = [
        {"uid": uid, "card": card, "case": asdict(case)} for (uid, card), case in cases.items()
    ]
    return json.dumps({"v": _VERSION, "cases": entries}, separators=(",", ":"))


def decode(text: str) -> dict[tuple[str, str], Case]:
    """Read it back. Raises ValueError for what ``encode`` did not write."""
    try:
        data = json.loads(text)
        if data["v"] != _VERSION:
            raise ValueError("another version")
        return {(str(e["uid"]), str(e["card"])): _case(e["case"]) for e in data["cases"]}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the watchdog's cases: {error!r}") from None


def _case(data: Mapping[str, Any]) -> Case:
    return Case(
        stepped=float(data["stepped"]),
        spent=min(1.0, max(0.0, float(data["spent"]))),
        over_since=_time(data["over_since"]),
        fault=Fault(data["fault"]),
        ending=_ending(data["ending"]),
        strikes=tuple(float(at) for at in data["strikes"]),
        evicting_since=_time(data["evicting_since"]),
    )


def _ending(data: Mapping[str, Any] | None) -> Ending | None:
    if data is None:
        return None
    return Ending(int(data["pid"]), int(data["start"]), float(data["since"]), bool(data["hard"]))


def _time(value: object) -> float | None:
    return None if value is None else float(str(value))


class Docket:
    """Where the cases are kept. Nothing here raises: without it a restart begins afresh."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._kept = ""
        self._said = ""

    def load(self) -> dict[tuple[str, str], Case]:
        """What an earlier run kept."""
        try:
            return decode(self._path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("graces begin anew, %s: %s", self._path, error)
            return {}

    def keep(self, cases: Cases) -> None:
        """Exactly these are open now. Called with each look; without news it does nothing."""
        text = encode(cases) if cases else ""
        if text == self._kept:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if text:
                fresh = self._path.with_suffix(".new")
                fresh.touch(mode=0o600)
                fresh.write_text(text)
                os.replace(fresh, self._path)
            else:
                self._path.unlink(missing_ok=True)
            self._kept, self._said = text, ""
        except OSError as error:
            if str(error) != self._said:
                log.warning("graces will begin anew with a restart: %s", error)
            self._said = str(error)
