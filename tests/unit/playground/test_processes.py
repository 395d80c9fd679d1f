from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from playground.processes import (
    Component,
    ComponentFailed,
    Processes,
    boot_id,
    parse_start_time,
    start_time,
)


@dataclass
class File:
    """Ready when the component has made its file."""

    path: Path

    def failure(self, pid: int) -> str | None:
        return None if self.path.exists() else f"{self.path.name} is not there"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path / "processes", tmp_path / "logs")
    yield processes
    processes.kill_all()


def component(tmp_path: Path, script: str, patience: float = 20) -> Component:
    ready = tmp_path / "ready"
    command = ("/bin/sh", "-c", script.format(ready=ready))
    return Component("server", command, File(ready), patience=patience)


def test_component_is_started_found_again_and_stopped(processes: Processes, tmp_path: Path) -> None:
    server = component(tmp_path, "echo hello; touch {ready}; exec sleep 600")
    pid = processes.start(server)
    processes.await_ready(server)
    again = Processes(processes.folder, processes.logs)
    assert again.names() == ["server"]
    assert again.pid("server") == pid
    assert again.tail("server") == ["hello"]
    seconds = again.seconds("server")
    assert seconds is not None
    assert 0 <= seconds < 20
    assert again.stop("server") is True
    assert again.pid("server") is None
    assert again.stop("server") is False


def test_component_that_ends_is_reported_at_once_with_its_log(
    processes: Processes, tmp_path: Path
) -> None:
    server = component(tmp_path, "echo no port left; exit 3", patience=600)
    processes.start(server)
    with pytest.raises(ComponentFailed, match=r"server has ended\n  no port left\nThe whole log: "):
        processes.await_ready(server)


def test_component_that_is_never_ready_is_reported_when_patience_is_over(
    processes: Processes, tmp_path: Path
) -> None:
    server = component(tmp_path, "exec sleep 600", patience=0.3)
    processes.start(server)
    with pytest.raises(ComponentFailed, match=r"not ready after 0.3 s: ready is not there"):
        processes.await_ready(server)


def test_component_that_ignores_sigterm_is_killed(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playground.processes._TERM_PATIENCE", 0.2)
    server = component(tmp_path, "trap '' TERM; touch {ready}; while :; do sleep 600; done")
    processes.start(server)
    processes.await_ready(server)
    assert processes.stop("server") is True
    assert processes.pid("server") is None


def test_reused_number_is_never_taken_for_ours(processes: Processes, tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        try:
            started = start_time(stranger.pid)
            assert started is not None
            _record(processes, stranger.pid, started - 1, boot_id())
            assert processes.pid("server") is None
            assert processes.stop("server") is False
            processes.kill_all()
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_record_from_before_a_reboot_is_not_alive(processes: Processes) -> None:
    started = start_time(os.getpid())
    assert started is not None
    _record(processes, os.getpid(), started, "another boot")
    assert processes.pid("server") is None
    _record(processes, os.getpid(), started, boot_id())
    assert processes.pid("server") == os.getpid()
    (processes.folder / "server.json").unlink()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_broken_record_is_no_record(processes: Processes, content: str) -> None:
    processes.folder.mkdir(parents=True)
    (processes.folder / "server.json").write_text(content)
    assert processes.recorded("server") is None
    assert processes.pid("server") is None


def test_caller_environment_stays_outside(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    server = component(tmp_path, "env; touch {ready}; exec sleep 600")
    processes.start(server)
    processes.await_ready(server)
    assert not [line for line in processes.tail("server", 100) if "PROXY" in line]


def test_start_time_is_read_behind_any_program_name() -> None:
    fields = " ".join(["S", *("0" for _ in range(18)), "4711", "0"])
    assert parse_start_time(f"12 (a) b) (c) {fields}") == 4711


def test_ended_process_has_no_start_time() -> None:
    fields = " ".join(["Z", *("0" for _ in range(18)), "4711", "0"])
    assert parse_start_time(f"12 (x) {fields}") is None
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert start_time(child.pid) is None


def _record(processes: Processes, pid: int, started: int, boot: str) -> None:
    processes.folder.mkdir(parents=True, exist_ok=True)
    record = {"pid": pid, "started": started, "boot": boot, "command": []}
    (processes.folder / "server.json").write_text(json.dumps(record))
