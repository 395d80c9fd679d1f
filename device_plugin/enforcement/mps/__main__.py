"""python -m device_plugin.enforcement.mps: runs MPS's control daemons for the plugin beside it.

It needs what the daemons need: root, the host's pid namespace, the driver's programs and libraries.
When it is ended, its daemons are ended too and the cards' compute modes restored.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path

from device_plugin.enforcement.mps.host import LocalHost
from device_plugin.enforcement.mps.modes import NvmlModes
from device_plugin.enforcement.mps.wire import HostServer
from device_plugin.logs import set_up


def main() -> None:
    parser = argparse.ArgumentParser(prog="device_plugin.enforcement.mps", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/run/gpushare/mps"))
    parser.add_argument("--shm", type=Path, default=Path("/dev/shm/gpushare-mps"))  # noqa: S108
    parser.add_argument("--control", default="nvidia-cuda-mps-control")
    parser.add_argument(
        "--shared-shm", action="store_true", help="all daemons use /dev/shm as it is"
    )
    parser.add_argument("--log-lines", default="plain", choices=["plain", "json"])
    options = parser.parse_args()
    set_up(options.log_lines, logging.INFO)
    host = LocalHost(
        options.control, options.folder, options.shm, NvmlModes(), own_shm=not options.shared_shm
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(host, options.folder))


async def _serve(host: LocalHost, folder: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = asyncio.create_task(HostServer(host, folder / "host.sock").run())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([server, stopped], return_when=asyncio.FIRST_COMPLETED)
    server.cancel()
    for card in await asyncio.to_thread(_cards, folder):
        await host.stop(card)
    if server.done() and not server.cancelled():
        server.result()


def _cards(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if (folder / name / "pipe").is_dir()]


if __name__ == "__main__":
    main()
