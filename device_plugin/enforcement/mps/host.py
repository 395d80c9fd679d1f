"""Running MPS's control daemons: their processes, commands and the cards' compute mode.

No decisions here. A daemon that runs already is found by its pid file and used on: starting is
idempotent, so a restart of the plugin disturbs nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from device_plugin.enforcement.mps.layout import CardFolders, daemon_environment, folders

log = logging.getLogger(__name__)

_START_SECONDS, _ANSWER_SECONDS, _QUIT_SECONDS = 15.0, 5.0, 10.0
# What the kernel calls the daemon: its program's name, cut to 15 characters.
_COMM = "nvidia-cuda-mps"


class HostError(Exception):
    """MPS could not be run or asked, and this says why."""


class Modes(Protocol):
    """Compute modes of cards (NVML: nvmlDeviceGetComputeMode, nvmlDeviceSetComputeMode)."""

    async def get(self, card: str) -> int: ...
    async def set(self, card: str, mode: int) -> None:
        """Raises HostError."""
        ...


EXCLUSIVE_PROCESS, DEFAULT = 3, 0


class Host(Protocol):
    """Where daemons run: here, or in a container of their own. All methods raise HostError."""

    def where(self, card: str) -> CardFolders: ...
    async def start(self, card: str, options: Sequence[str] = ()) -> int:
        """Start the card's daemon if there is none; its pid."""
        ...

    async def alive(self, card: str) -> int:
        """The pid of the card's daemon; 0: there is none."""
        ...

    async def command(self, card: str, text: str) -> str:
        """Give the daemon a command; its answer."""
        ...

    async def stop(self, card: str) -> None:
        """End the card's daemon and its servers, and restore the card's compute mode."""
        ...


class LocalHost:
    """Daemons as processes of this machine. ``program`` is nvidia-cuda-mps-control."""

    def __init__(
        self,
        program: str,
        root: Path,
        shm_root: Path,
        modes: Modes,
        own_shm: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._program, self._root, self._shm_root = program, root, shm_root
        self._modes, self._own_shm = modes, own_shm
        self._environment = dict(environment or {})

    def where(self, card: str) -> CardFolders:
        return folders(self._root, self._shm_root, card)

    async def start(self, card: str, options: Sequence[str] = ()) -> int:
        pid = await self.alive(card)
        if pid:
            return pid
        where = self.where(card)
        try:
            for folder, mode in ((where.pipes, 0o755), (where.logs, 0o755), (where.shm, 0o1777)):
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(mode)
            for stale in (where.pid_file, where.pipes / "control"):
                stale.unlink(missing_ok=True)
        except OSError as error:
            raise HostError(f"MPS's folders cannot be made: {error}") from None
        await self._make_exclusive(card, where)
        said, pid = "", 0
        try:
            command = self._in_own_shm([self._program, "-d", *options], where)
            said = await self._run(command, card, "", _START_SECONDS)
            pid = await self.alive(card)
        finally:
            if not pid:
                await self._restore_mode(card, where)
        if not pid:
            raise HostError(
                f"{self._program} -d did not start: {said.strip() or 'it said nothing'}"
            )
        log.info("card %s: MPS control daemon %d is started", card, pid)
        return pid

    async def alive(self, card: str) -> int:
        return _daemon(self.where(card))

    async def command(self, card: str, text: str) -> str:
        if not await self.alive(card):
            raise HostError("the MPS control daemon is not running")
        return await self._run([self._program], card, text + "\n", _ANSWER_SECONDS)

    async def stop(self, card: str) -> None:
        where = self.where(card)
        pid = await self.alive(card)
        if pid:
            with contextlib.suppress(HostError):
                await self._run([self._program], card, "quit -t 5\n", _QUIT_SECONDS)
            if not await _ended(pid, _QUIT_SECONDS):
                log.warning("card %s: MPS control daemon %d did not quit and is killed", card, pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                await _ended(pid, _QUIT_SECONDS)
            log.info("card %s: MPS control daemon %d is stopped", card, pid)
        await self._restore_mode(card, where)

    async def _make_exclusive(self, card: str, where: CardFolders) -> None:
        # So that the card takes nobody but the MPS server: a program that goes past the pipes
        # finds the card busy.
        before = await self._modes.get(card)
        if before != EXCLUSIVE_PROCESS:
            where.mode_file.write_text(str(before))
        await self._modes.set(card, EXCLUSIVE_PROCESS)

    async def _restore_mode(self, card: str, where: CardFolders) -> None:
        try:
            before = int(where.mode_file.read_text())
        except (OSError, ValueError):
            return
        await self._modes.set(card, before)
        where.mode_file.unlink(missing_ok=True)

    def _in_own_shm(self, command: list[str], where: CardFolders) -> list[str]:
        if not self._own_shm:
            return command
        # Server and clients meet in /dev/shm. A mount namespace gives each card's daemon its own.
        script = 'mount --bind "$0" /dev/shm && exec "$@"'
        unshared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        return [*unshared, str(where.shm), *command]

    async def _run(self, command: list[str], card: str, text: str, limit: float) -> str:
        environment = {**os.environ, **self._environment}
        environment |= daemon_environment(self.where(card), card)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
            )
        except OSError as error:
            raise HostError(
                f"{command[0]} cannot be run ({error.strerror}): it comes with the NVIDIA driver; set "
                "Enforcement.mps_control to its path, or Enforcement.level to 'watchdog'"
            ) from None
        try:
            out, _ = await asyncio.wait_for(process.communicate(text.encode()), limit)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise HostError(
                f"MPS did not answer to {text.split()[:1] or command} in time"
            ) from None
        said = out.decode(errors="replace")
        if process.returncode and text:
            raise HostError(f"{said.strip().splitlines()[0] if said.strip() else 'no answer'}")
        return said


def lives(pid: int) -> bool:
    """Whether there is such a process; one that is dead and not yet buried does not count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] not in (["Z"], ["X"])


def _daemon(where: CardFolders) -> int:
    try:
        pid = int(where.pid_file.read_text())
        comm = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return 0
    return pid if comm == _COMM and lives(pid) else 0


async def _ended(pid: int, limit: float) -> bool:
    """Wait for a process that is not our child to end."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (OSError, AttributeError):
        await asyncio.sleep(1.0)  # an older kernel: there is nothing to wait on
        return not lives(pid)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), limit)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return True
