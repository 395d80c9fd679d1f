"""Changes in one folder, by the kernel's inotify (man 7 inotify), as an asyncio event."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
from pathlib import Path

from device_plugin.patience import wait_at_most

log = logging.getLogger(__name__)

_CREATE, _DELETE, _MOVED_TO, _MOVED_FROM = 0x100, 0x200, 0x80, 0x40
_DELETE_SELF = 0x400
_MASK = _CREATE | _DELETE | _MOVED_TO | _MOVED_FROM | _DELETE_SELF
_LOOK_EVERY = 1.0
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000


class FolderWatch:
    """Something in the folder was made or removed: ``changed`` is set. Use as a context manager.

    It only says "look again": what is there, the caller looks up itself, as events can be lost.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1
        self.changed = asyncio.Event()

    def __enter__(self) -> FolderWatch:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        if descriptor < 0:
            self._cannot(ctypes.get_errno())
            return self
        if libc.inotify_add_watch(descriptor, os.fsencode(self._folder), _MASK) < 0:
            number = ctypes.get_errno()
            os.close(descriptor)
            self._cannot(number)
            return self
        self._descriptor = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    async def wait(self, seconds: float) -> None:
        """Until something changed, at most ``seconds``; without inotify, at most a second."""
        if self._descriptor < 0:
            seconds = min(seconds, _LOOK_EVERY)
        await wait_at_most(self.changed, seconds)
        self.changed.clear()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 65536)
        self.changed.set()

    def _cannot(self, number: int) -> None:
        # EMFILE: the node's programs have used up fs.inotify.max_user_instances. Not worth ending
        # for: the caller looks at two files every second instead.
        name = errno.errorcode.get(number, str(number))
        log.info("no inotify for %s (%s): it is looked at every second", self._folder, name)
