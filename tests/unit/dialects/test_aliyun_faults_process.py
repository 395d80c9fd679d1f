"""One more fault of the aliyun pair: how its extender ended."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import yaml


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_fault_14_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """Fault 14: after SIGTERM it went on serving until it was killed, at each upgrade."""
    verbs, state = free_port(), free_port()
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [cluster],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": "none"}}],
            }
        )
    )
    process = subprocess.Popen(
        [
            sys.executable, "-m", "extender.app", f"--kubeconfig={kubeconfig}",
            f"--verbs=127.0.0.1:{verbs}", f"--state=127.0.0.1:{state}",
            "--Extender.dialects=aliyun",
        ],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        answer = first_answer(process, f"http://127.0.0.1:{verbs}/gpushare-scheduler/filter")
        assert "not read the cluster yet" in answer["Error"]
        with socket.create_connection(("127.0.0.1", verbs)):  # somebody who stays connected
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()


def first_answer(process: subprocess.Popen[bytes], url: str) -> dict[str, str]:
    """What it says once it listens."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, data=b"{}", timeout=10) as answer:
                found: dict[str, str] = json.load(answer)
                return found
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(f"it does not listen: {process.poll()}")
