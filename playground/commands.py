"""Running the machine's own small programs (ip, mount, nsenter …), with errors that can be read."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


class CommandFailed(Exception):
    """A program ended with an error; the text has its command line and what it wrote."""


def run(command: Sequence[str], given: str | None = None) -> str:
    """Run ``command`` to its end with ``given`` as its input; returns what it printed."""
    done = subprocess.run(
        list(command), input=given, capture_output=True, text=True, check=False, cwd="/"
    )
    if done.returncode:
        text = done.stderr.strip() or done.stdout.strip()
        raise CommandFailed(f"{' '.join(command)} failed (exit {done.returncode}): {text}")
    return done.stdout


def succeeds(command: Sequence[str]) -> bool:
    """Whether ``command`` exists and ends with 0."""
    try:
        return subprocess.run(list(command), capture_output=True, check=False).returncode == 0
    except OSError:
        return False
