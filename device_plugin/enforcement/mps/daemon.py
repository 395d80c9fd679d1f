"""One card's MPS daemon: brought up until a server says that it serves, given limits, asked how it is.

Readiness and health are the daemon's own answers. What an older driver does not know is not asked
again; then an answering daemon with a server counts as ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path

from device_plugin.enforcement.mps.host import Host, HostError, lives
from device_plugin.enforcement.mps.plan import Limits

log = logging.getLogger(__name__)

_READY_SECONDS, _POLL = 15.0, 0.2
MULTIUSER = "-multiuser-server"
_UNKNOWN = ("unrecognized", "unknown command", "invalid command")


class Users(StrEnum):
    """For whom a node's servers run."""

    AUTO = "auto"  # many where the driver can, else one
    ONE = "one"
    MANY = "many"


class CardDaemon:
    """Of one card. Calls must not overlap: its keeper holds a lock."""

    def __init__(
        self,
        host: Host,
        card: str,
        users: Users,
        uid: int,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._host, self.card, self._users, self._uid = host, card, users, uid
        self._pause = pause
        self.many_users = users is Users.MANY
        self.pid = 0
        self.servers: tuple[int, ...] = ()
        self.limits: Limits | None = None
        self._lacks_status = False

    @property
    def running(self) -> bool:
        """Whether it was up when last asked."""
        return bool(self.pid)

    async def adopt(self) -> bool:
        """Take over a daemon that runs already; False: there is none. Raises HostError."""
        self.pid = await self._host.alive(self.card)
        if not self.pid:
            return False
        self.many_users = MULTIUSER in _arguments(self.pid)
        self.servers = await self._server_list()
        log.info("card %s: MPS control daemon %d runs already and is used on", self.card, self.pid)
        return True

    async def ensure(self, limits: Limits) -> None:
        """Have it up, a server ready, and these limits in force for new clients. Raises HostError."""
        if not self.pid:
            await self.adopt()
        if not await self._host.alive(self.card):
            self.pid, self.servers, self.limits = 0, (), None
            self.pid = await self._start()
        await self._default_limits(limits)
        self.servers = await self._server_list()
        if not self.servers:
            await self._command(f"start_server -uid {0 if self.many_users else self._uid}")
        await self._await_ready()
        await self._server_limits(limits)
        self.limits = limits

    async def check(self, thoroughly: bool = True) -> str:
        """What is wrong with it; '': it serves. Raises nothing.

        ``thoroughly`` asks the daemon, which costs a process; else only whether all of it lives.
        """
        try:
            if not await self._host.alive(self.card):
                self.pid, self.servers = 0, ()
                return "its MPS control daemon has ended"
            if not thoroughly and self.servers and all(map(lives, self.servers)):
                return ""
            self.servers = await self._server_list()
            states = [await self._status(server) for server in self.servers]
        except HostError as error:
            return str(error)
        if not self.servers:
            return "its MPS server has ended"
        if "FAULT" in states:
            return "its MPS server is blocked by a fault of a program, until that program has ended"
        return ""

    async def clients(self) -> frozenset[int]:
        """The pids of all clients. Raises HostError."""
        found: set[int] = set()
        for server in self.servers:
            found |= _numbers(await self._command(f"get_client_list {server}"))
        return frozenset(found)

    async def terminate(self, pid: int) -> bool:
        """End the contexts of one client, so that it can die without hurting others."""
        for server in self.servers:
            said = await self._host.command(self.card, f"terminate_client {server} {pid}")
            if "CUDA_SUCCESS" in said:
                return True
        return False

    async def restart_servers(self) -> None:
        """End all servers; the next client, or ``ensure``, starts one."""
        for server in self.servers:
            await self._command(f"shutdown_server {server} -f")
        self.servers = ()

    async def stop(self) -> None:
        """End it, and let the card be used as before."""
        await self._host.stop(self.card)
        self.pid, self.servers, self.limits = 0, (), None

    async def _start(self) -> int:
        if self._users is Users.ONE:
            return await self._host.start(self.card)
        try:
            pid = await self._host.start(self.card, [MULTIUSER])
        except HostError as error:
            if self._users is Users.MANY:
                raise HostError(
                    f"{error}; this driver may lack the multi-user server: set "
                    "Enforcement.mps_users to 'one' and Enforcement.mps_uid to the pods' user"
                ) from None
            log.info(
                "card %s: no multi-user MPS server (%s): one for user %d",
                self.card,
                error,
                self._uid,
            )
            self.many_users = False
            return await self._host.start(self.card)
        self.many_users = True
        return pid

    async def _default_limits(self, limits: Limits) -> None:
        await self._command(f"set_default_device_pinned_mem_limit 0 {limits.mib}M")
        await self._command(f"set_default_active_thread_percentage {limits.percent}")

    async def _server_limits(self, limits: Limits) -> None:
        # The defaults are for servers to come; those that run keep theirs until told.
        for server in self.servers:
            await self._command(f"set_device_pinned_mem_limit {server} 0 {limits.mib}M")
            await self._command(f"set_active_thread_percentage {server} {limits.percent}")

    async def _await_ready(self) -> None:
        waited = 0.0
        while True:
            self.servers = await self._server_list()
            if self.servers and all([await self._status(s) == "ACTIVE" for s in self.servers]):
                return
            if waited >= _READY_SECONDS:
                raise HostError(
                    f"no MPS server of card {self.card} became ready in {_READY_SECONDS:g} s; its log "
                    f"is {self._host.where(self.card).logs / 'server.log'}"
                )
            await self._pause(_POLL)
            waited += _POLL

    async def _server_list(self) -> tuple[int, ...]:
        return tuple(sorted(_numbers(await self._command("get_server_list"))))

    async def _status(self, server: int) -> str:
        if self._lacks_status:
            return "ACTIVE"
        said = await self._host.command(self.card, f"get_server_status {server}")
        if _not_known(said):
            self._lacks_status = True
            return "ACTIVE"
        return said.strip().upper()

    async def _command(self, text: str) -> str:
        said = await self._host.command(self.card, text)
        if _not_known(said) or said.lower().startswith(("invalid", "error", "failed")):
            raise HostError(f"MPS refused {text.split()[0]!r}: {said.strip()}")
        return said


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _numbers(text: str) -> set[int]:
    return {int(line) for line in text.split() if line.isdigit()}


def _not_known(answer: str) -> bool:
    return any(word in answer.lower() for word in _UNKNOWN)
