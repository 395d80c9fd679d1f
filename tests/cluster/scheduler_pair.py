"""The extender and a kube-scheduler of its own as processes of this machine, against any cluster.

For tests and measurements of the scheduling half: a simulated playground is cluster enough, and
nothing needs root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpushare.names import Names
from playground import host_scheduler

NAMES = Names()


def scheduler_configuration(kubeconfig: Path, verbs: str, extender: bool = True) -> dict[str, Any]:
    """The playground's configuration, with a client that measurements do not wait for."""
    configuration = host_scheduler.scheduler_configuration(kubeconfig, verbs, extender)
    configuration["clientConnection"] |= {"qps": 1000, "burst": 2000}
    return configuration


class Process:
    """A program with a log file."""

    def __init__(
        self, arguments: list[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.arguments = arguments
        self.log = log
        self.env = {**os.environ, **(env or {})}
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.arguments, stdout=log, stderr=log, env=self.env, start_new_session=True
            )

    def stop(self, number: int = signal.SIGTERM) -> float:
        """End it; how long that took, in seconds."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(timeout=30)
        return time.monotonic() - began


class Pair:
    """Both programs."""

    def __init__(
        self,
        kubeconfig: Path,
        scheduler: Path,
        folder: Path,
        *,
        extender: bool = True,
        changes: Mapping[str, Any] | None = None,
        entry: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        tls: bool = False,
    ):
        """``changes`` are made to the scheduler's configuration, ``entry`` to what it is told of the
        extender; ``arguments`` are the extender's, and ``tls`` says that they give it a certificate."""
        self.tls = tls
        self.folder = folder
        self.verbs = f"127.0.0.1:{free_port()}"
        self.state = f"127.0.0.1:{free_port()}"
        configuration = folder / "scheduler.yaml"
        told = scheduler_configuration(kubeconfig, self.verbs, extender) | dict(changes or {})
        for each in told.get("extenders", ()):
            each |= entry or {}
        configuration.write_text(yaml.safe_dump(told))
        self.extender = None
        if extender:
            self.extender = Process(
                [
                    sys.executable,
                    "-m",
                    "extender.app",
                    f"--kubeconfig={kubeconfig}",
                    f"--verbs={self.verbs}",
                    f"--state={self.state}",
                    *arguments,
                ],
                folder / "extender.log",
            )
            self.await_ready()
        self.scheduler = Process(
            [str(scheduler), f"--config={configuration}", "--secure-port=0", "--v=2"],
            folder / "scheduler.log",
        )

    def await_ready(self, seconds: float = 60) -> float:
        """Wait until the extender has read the cluster; how long that took, in seconds."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            url = f"{'https' if self.tls else 'http'}://{self.state}/readyz"
            context = ssl._create_unverified_context() if self.tls else None
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(url, timeout=5, context=context) as answer,
            ):
                if answer.status == 200:
                    return time.monotonic() - began
            time.sleep(0.02)
        raise AssertionError(f"not ready:\n{(self.folder / 'extender.log').read_text()[-4000:]}")

    def stop(self) -> None:
        self.scheduler.stop()
        if self.extender is not None:
            self.extender.stop()


@contextlib.contextmanager
def pair(
    kubeconfig: Path, scheduler: Path, folder: Path, *, extender: bool = True, **more: Any
) -> Iterator[Pair]:
    running = Pair(kubeconfig, scheduler, folder, extender=extender, **more)
    try:
        yield running
    finally:
        running.stop()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
