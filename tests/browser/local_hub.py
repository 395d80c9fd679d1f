"""A real JupyterHub with its proxy on this machine, without a cluster.

Servers are either real single-user servers with JupyterLab or, where a test needs none, a process that
only answers. The extender and the culler are doubles that keep to their contracts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests

from playground.hub_proxy import ensure_proxy
from playground.hub_user import HubUser
from playground.packages import PackagesMissing
from playground.progress import StepFailed

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("local_hub_config.py")
PASSWORD = "pass"
_PATIENCE = 120


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LocalHub:
    """``given`` is what the configuration reads: see local_hub_config.py."""

    def __init__(self, folder: Path, **given: Any) -> None:
        try:
            proxy = ensure_proxy(lambda _: None)
        except (PackagesMissing, StepFailed) as error:
            pytest.skip(f"no proxy for the Hub: {error}")
        self.folder = folder
        # Another environment's JupyterHub, to see that 5.5 and 6 are served alike.
        self.python = os.environ.get("GPUSHARE_TEST_HUB_PYTHON") or sys.executable
        self.port, hub_port, api_port = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "hub.log"
        self.given = {
            "port": self.port,
            "hub_port": hub_port,
            "proxy_api_port": api_port,
            "proxy": list(proxy),
            "dashboard_port": free_port(),
            "folder": str(folder),
            **given,
        }

    def __enter__(self) -> LocalHub:
        share = self.folder / "share" / "labextensions" / "jupyterhub-gpushare"
        share.parent.mkdir(parents=True, exist_ok=True)
        if not share.exists():
            shutil.copytree(ROOT / "hub_integration" / "lab" / "labextension", share)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LOCAL_HUB": json.dumps(self.given),
            "KUBECONFIG": str(self.folder / "none"),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.python, "-m", "jupyterhub", "-f", str(CONFIG)],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._await(f"{self.url}/hub/health")
        return self

    def await_service(self, name: str) -> None:
        """Until a service answers through the proxy."""
        self._await(f"{self.url}/services/{name}/health")

    def _await(self, url: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            try:
                if requests.get(url, timeout=5, allow_redirects=False).status_code == 200:
                    return
            except requests.RequestException:
                pass
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        # Servers outlive their Hub on purpose; those of a test must not outlive the test.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def user(self, name: str) -> HubUser:
        return HubUser(self.url, name, PASSWORD)

    def log_in(self, page: Any, name: str, to: str) -> None:
        """As a person does, ending at the path ``to``."""
        page.goto(f"{self.url}/hub/login?next={quote(to, safe='')}")
        page.fill("#username_input", name)
        page.fill("#password_input", PASSWORD)
        page.click("#login_submit")
        page.wait_for_url(f"{self.url}{to}")
