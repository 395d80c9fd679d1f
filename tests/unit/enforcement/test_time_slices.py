"""The length of turns, over a program that answers as nvidia-smi does."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_plugin.enforcement.limiter import NoLimiter
from device_plugin.enforcement.time_slices import TimeSlices

from .making import CARD, OTHER_CARD, pod_slice

_PROGRAM = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in *{refused}*) echo "Compute policy is not supported on this device"; exit 3;; esac
echo "Successfully set timeslice for GPU"
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "nvidia-smi"
    path.write_text(_PROGRAM.format(calls=tmp_path / "calls", refused=OTHER_CARD))
    path.chmod(0o755)
    return path


async def test_it_is_set_where_the_card_can_and_said_where_not(
    program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = TimeSlices("short", lambda: (CARD, OTHER_CARD), str(program))
    told = []
    turns.listen(lambda: told.append(turns.compute(CARD)))
    assert turns.compute(CARD) == "best-effort"
    await turns.look()
    await turns.look()
    assert told == ["time-slicing"]
    assert turns.compute(OTHER_CARD) == "best-effort"
    assert "not supported on this device" in turns.problem
    assert caplog.text.count("stays best effort") == 1
    first = (tmp_path / "calls").read_text().splitlines()[0]
    assert first == f"compute-policy -i {CARD} --set-timeslice=1"
    words = NoLimiter("watchdog", turns.compute)
    assert words.held_by(pod_slice(1), CARD) == ("watchdog", "time-slicing")
    assert words.in_force(OTHER_CARD) == ("watchdog", "best-effort")


async def test_it_is_left_alone_unless_it_is_wanted(program: Path, tmp_path: Path) -> None:
    turns = TimeSlices("", lambda: (CARD,), str(program))
    await turns.look()
    assert turns.compute(CARD) == "best-effort"
    assert not (tmp_path / "calls").exists()


async def test_without_the_program_the_setting_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    turns = TimeSlices("long", lambda: (CARD,), driver_root=str(tmp_path))
    await turns.look()
    assert "Enforcement.nvidia_smi" in turns.problem
