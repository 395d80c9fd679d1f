"""A host of MPS daemons in another process, over a socket: JSON lines, one call a connection.

Control daemons must outlive the plugin, and what ends a container ends all processes in it. So they
are started by a program of their own, in a container of its own that is seldom restarted:
``python -m device_plugin.enforcement.mps``. It has no opinion; only root can reach its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from device_plugin.enforcement.mps.host import Host, HostError
from device_plugin.enforcement.mps.layout import CardFolders, folders

log = logging.getLogger(__name__)

_MOST = 1 << 20
_PATIENCE = 40.0  # starting and stopping take seconds each
_CALLS = ("start", "alive", "command", "stop")


class HostServer:
    """Serves a host's calls at a socket."""

    def __init__(self, host: Host, path: Path) -> None:
        self._host, self._path = host, path

    async def run(self) -> None:
        """Serve until cancelled."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._serve, self._path, limit=_MOST)
        finally:
            os.umask(mask)
        log.info("MPS daemons are run for whoever asks at %s", self._path)
        async with server:
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(await reader.readline())
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError) as error:
            log.warning("a call could not be answered: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            call = json.loads(line)
            name, arguments = (
                call["call"],
                [str(a) if isinstance(a, str) else a for a in call["with"]],
            )
            if name not in _CALLS:
                raise ValueError(name)
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"not a call: {error!r}"}
        try:
            return {"result": await getattr(self._host, name)(*arguments)}
        except HostError as error:
            return {"error": str(error)}
        except Exception as error:
            log.exception("%s failed by a fault of ours", name)
            return {"error": f"the MPS host failed ({type(error).__name__}); its log says more"}


class RemoteHost:
    """The host behind a socket."""

    def __init__(self, path: Path, root: Path, shm_root: Path) -> None:
        self._path, self._root, self._shm_root = path, root, shm_root

    def where(self, card: str) -> CardFolders:
        return folders(self._root, self._shm_root, card)

    async def start(self, card: str, options: Sequence[str] = ()) -> int:
        return int(await self._call("start", card, list(options)))

    async def alive(self, card: str) -> int:
        return int(await self._call("alive", card))

    async def command(self, card: str, text: str) -> str:
        return str(await self._call("command", card, text))

    async def stop(self, card: str) -> None:
        await self._call("stop", card)

    async def _call(self, name: str, *arguments: object) -> Any:
        try:
            answer = await asyncio.wait_for(self._exchange(name, arguments), _PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            raise HostError(
                f"the MPS host does not answer at {self._path} ({error or 'no answer in time'}): is "
                "its DaemonSet there, and does it share that folder?"
            ) from None
        if "error" in answer:
            raise HostError(str(answer["error"]))
        return answer.get("result")

    async def _exchange(self, name: str, arguments: Sequence[object]) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=_MOST)
        try:
            writer.write(json.dumps({"call": name, "with": list(arguments)}).encode() + b"\n")
            await writer.drain()
            answer = json.loads(await reader.readline())
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        if not isinstance(answer, dict):
            raise ValueError("not an object")
        return answer
