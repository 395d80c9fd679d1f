"""Long commands: the time counts up while they run, and a failure shows how the log ends."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Say = Callable[[str], None]
_TAIL = 15  # lines of the log that a failure shows


class StepFailed(Exception):
    """A command failed; the text has the end of its log and where the rest is."""


def run_logged(
    title: str,
    command: Sequence[str],
    log: Path,
    say: Say = print,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> float:
    """Run ``command`` at low priority with its output in ``log`` (appended); seconds it took."""
    started = time.monotonic()
    with log.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        process = subprocess.Popen(
            ["nice", "-n", "10", *command],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            _show_time(process, title, started, say)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        lines = log.read_text(errors="replace").splitlines()[-_TAIL:]
        raise StepFailed(
            f"{title} failed (exit {process.returncode}):\n"
            + "\n".join(f"  {line}" for line in lines)
            + f"\nThe whole log: {log}"
        )
    return time.monotonic() - started


def _show_time(process: subprocess.Popen[bytes], title: str, started: float, say: Say) -> None:
    """Wait for ``process``; on a terminal the seconds count up in place."""
    live = say is print and sys.stdout.isatty()
    if not live:
        say(f"{title} …")
    while True:
        try:
            process.wait(timeout=1 if live else 30)
            break
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - started
            if live:
                print(f"\r{title} … {seconds:.0f} s", end="", flush=True)
            else:
                say(f"  … {seconds:.0f} s")
    seconds = time.monotonic() - started
    if live:
        print(f"\r{title} … {seconds:.0f} s", flush=True)
    elif not process.returncode:
        say(f"  done in {seconds:.0f} s")
