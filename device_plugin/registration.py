"""Being known to the kubelet: our sockets in its folder, registered, and again when it restarts.

A kubelet that starts empties the folder of all sockets, ours too, and makes its own anew. A plugin
that does not notice is never called again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import grpc
import grpc.aio

from device_plugin.api.deviceplugin_pb2 import RegisterRequest
from device_plugin.api.deviceplugin_pb2_grpc import (
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from device_plugin.folder_watch import FolderWatch
from device_plugin.patience import wait_at_most
from device_plugin.service import VERSION, Service, options

log = logging.getLogger(__name__)

KUBELET_SOCKET = "kubelet.sock"
_LOOK_EVERY = 10.0
_REGISTER_LIMIT = 12.0  # the kubelet dials back, for at most 10 s, before it answers
_STREAM_LIMIT = 5.0
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 10.0


class _Endpoint:
    """One service on its socket. A fresh name each time: gRPC unlinks a socket that it closes."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        stem = service.resource.replace("/", "-")[:40]
        self.path = folder / f"{stem}-{secrets.token_hex(3)}.sock"
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_DevicePluginServicer_to_server(service, self._server)

    async def start(self) -> None:
        self._server.add_insecure_port(f"unix://{self.path}")
        await self._server.start()

    async def stop(self, grace: float) -> None:
        await self._server.stop(grace)
        self.path.unlink(missing_ok=True)


class Registration:
    """Keeps the services registered while ``run`` runs."""

    def __init__(
        self,
        folder: Path,
        services: Sequence[Service],
        of_others: Callable[[], Awaitable[frozenset[str]]] | None = None,
    ) -> None:
        self._folder, self._all, self._of_others = folder, services, of_others
        self.taken: frozenset[str] = frozenset()
        self._endpoints: list[_Endpoint] = []
        self._inode: tuple[int, int] | None = None
        self.registered = False
        self.count = 0

    async def run(self) -> None:
        """Register, and whenever the kubelet has lost us, again."""
        self._remove_leftovers()
        said, delay = "", _FIRST_RETRY
        try:
            with FolderWatch(self._folder) as folder:
                while True:
                    lost = self._lost()
                    problem = await self._register(lost) if lost else ""
                    if problem and problem != said:
                        log.warning("not registered with the kubelet: %s", problem)
                    said = problem
                    if problem:
                        # Our own sockets come and go in the folder: only the kubelet's counts here.
                        await self._new_kubelet(folder, delay)
                        delay = min(_LONGEST_RETRY, delay * 2)
                    else:
                        delay = _FIRST_RETRY
                        await self._wait(folder, _LOOK_EVERY)
        finally:
            self.registered = False
            await self._stop(grace=1.0)

    @property
    def _services(self) -> list[Service]:
        """Those that we register: what another plugin offers on this node stays that one's."""
        return [service for service in self._all if service.resource not in self.taken]

    def _lost(self) -> str:
        if not self._endpoints:
            return "start"
        if self._socket_inode() != self._inode:
            return "the kubelet has a new socket"
        if not all(endpoint.path.exists() for endpoint in self._endpoints):
            return "the kubelet removed our sockets"
        if not all(service.streams for service in self._services):
            return "the kubelet does not listen to us"
        return ""

    async def _register(self, why: str) -> str:
        self.registered = False
        self._inode = self._socket_inode()
        await self._stop(grace=0.2)
        if self._inode is None:
            where = self._folder / KUBELET_SOCKET
            return f"there is no {where}: does the kubelet run, and is its folder mounted?"
        await self._leave_to_others()
        try:
            for service in self._services:
                endpoint = _Endpoint(service, self._folder)
                await endpoint.start()
                self._endpoints.append(endpoint)
            await self._announce()
        except grpc.aio.AioRpcError as error:
            await self._stop(grace=0.2)
            return f"{error.code().name}: {error.details()}"
        except (OSError, RuntimeError):  # gRPC raises RuntimeError where it cannot bind
            await self._stop(grace=0.2)
            return (
                f"our sockets cannot be made in {self._folder}: it must be writable, and the path of "
                "a socket in it must not be longer than 107 characters (DevicePlugin.kubelet_dir)"
            )
        if not await self._listened_to():
            await self._stop(grace=0.2)
            return "the kubelet registered us and does not listen"
        self.registered = True
        self.count += 1
        names = ", ".join(service.resource for service in self._services)
        log.info("registered with the kubelet (%s): %s", why, names)
        return ""

    async def _leave_to_others(self) -> None:
        taken = await self._of_others() if self._of_others else frozenset()
        for resource in taken - self.taken:
            log.warning(
                "%s: another device plugin offers it on this node, so this one does not", resource
            )
        self.taken = taken

    async def _announce(self) -> None:
        channel = grpc.aio.insecure_channel(
            f"unix://{self._folder / KUBELET_SOCKET}",
            options=[("grpc.default_authority", "localhost")],
        )
        async with channel:
            stub = RegistrationStub(channel)
            for endpoint in self._endpoints:
                request = RegisterRequest(
                    version=VERSION,
                    endpoint=endpoint.path.name,
                    resource_name=endpoint.service.resource,
                    options=options(),
                )
                await stub.Register(request, timeout=_REGISTER_LIMIT)

    async def _listened_to(self) -> bool:
        deadline = time.monotonic() + _STREAM_LIMIT
        for service in self._services:
            while not service.streams and (left := deadline - time.monotonic()) > 0:
                service.streams_changed.clear()
                await wait_at_most(service.streams_changed, left)
        return all(service.streams for service in self._services)

    async def _new_kubelet(self, folder: FolderWatch, seconds: float) -> None:
        """Until the kubelet makes a new socket, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            await folder.wait(left)
            if self._socket_inode() not in (None, self._inode):
                return

    async def _wait(self, folder: FolderWatch, seconds: float) -> None:
        """Until the folder or a stream changes."""
        waits = [asyncio.create_task(folder.wait(seconds))]
        for service in self._services:
            service.streams_changed.clear()
            waits.append(asyncio.create_task(_until_changed(service)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _stop(self, grace: float) -> None:
        endpoints, self._endpoints = self._endpoints, []
        await asyncio.gather(*(endpoint.stop(grace) for endpoint in endpoints))

    def _socket_inode(self) -> tuple[int, int] | None:
        try:
            stat = (self._folder / KUBELET_SOCKET).stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_ctime_ns

    def _remove_leftovers(self) -> None:
        # Of a run of ours that was killed. There is one of us on a node.
        for service in self._services:
            stem = service.resource.replace("/", "-")[:40]
            for path in self._folder.glob(f"{stem}-??????.sock"):
                with contextlib.suppress(OSError):
                    path.unlink()


async def _until_changed(service: Service) -> None:
    await service.streams_changed.wait()
