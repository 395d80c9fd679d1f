"""What playgrounds change on the host itself, noted before it is changed and taken back by the last.

It is little: folders that nodes mount over, the settings that every kubelet writes when it starts,
and one limit that several nodes on one machine need higher. Several playgrounds share them, so they
belong to none.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from playground.folders import state_home
from playground.locks import exclusive

# What a kubelet writes (its container manager, setupKernelTunables).
KUBELET_SETTINGS: Mapping[str, str] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
# Watches of files, for all processes of root together: the default (128) is used up by a few
# kubelets and container runtimes, which then end with "too many open files".
RAISED: Mapping[str, int] = {"fs/inotify/max_user_instances": 1024}


class Host:
    """The host's side. The roots are there so that tests can put it elsewhere."""

    def __init__(self, home: Path | None = None, settings: Path = Path("/proc/sys")) -> None:
        self.home = home or state_home()
        self._settings = settings
        self._note = self.home / "host.json"
        self._lock = self.home / ".host.lock"

    def prepare(self, folders: Sequence[str]) -> None:
        """Note the settings, raise those that are too low, make the folders that are not there."""
        with exclusive(self._lock):
            note = self._read_note() or {"folders": _missing(folders), "settings": {}}
            settings = self._read_settings()
            note["settings"] = {**settings, **note["settings"]}
            self._note.write_text(json.dumps(note, indent=1))
            for name, needed in RAISED.items():
                if int(settings.get(name, needed)) < needed:
                    (self._settings / name).write_text(str(needed))
            for folder in folders:
                Path(folder).mkdir(parents=True, exist_ok=True)

    def restore(self) -> None:
        """Take everything back if no playground is left, unless somebody has changed it since."""
        with exclusive(self._lock):
            note = self._read_note()
            if note and not self._playgrounds():
                written = {**KUBELET_SETTINGS, **{n: str(value) for n, value in RAISED.items()}}
                for name, before in note["settings"].items():
                    file = self._settings / name
                    if file.read_text().strip() == written[name] != before:
                        file.write_text(before)
                for folder in reversed(note["folders"]):
                    with contextlib.suppress(OSError):  # gone, or somebody keeps something there
                        Path(folder).rmdir()
                self._note.unlink()

    def tidy(self) -> None:
        """Remove the folders above the playgrounds' state when they are empty."""
        for folder in (self.home, self.home.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _playgrounds(self) -> list[Path]:
        return [path for path in self.home.iterdir() if path.is_dir()]

    def _read_settings(self) -> dict[str, str]:
        files = {name: self._settings / name for name in (*KUBELET_SETTINGS, *RAISED)}
        return {name: f.read_text().strip() for name, f in files.items() if f.exists()}

    def _read_note(self) -> dict[str, Any] | None:
        if not self._note.exists():
            return None
        note: dict[str, Any] = json.loads(self._note.read_text())
        return note


def _missing(folders: Sequence[str]) -> list[str]:
    return [folder for folder in folders if not Path(folder).exists()]
