"""Waiting until processes have ended, by the kernel's word and not by asking again and again."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterable


def await_end(pids: Iterable[int], patience: float) -> bool:
    """Wait until all ``pids`` have ended; False when one has not after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(max(0, deadline - time.monotonic()) * 1000):
                return False
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # ours to collect if we started it
        finally:
            os.close(descriptor)
    return True
