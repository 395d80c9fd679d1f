"""What a real driver tells of real programs."""

from __future__ import annotations

import os
import subprocess

import pytest

from device_plugin.enforcement.processes import Processes
from device_plugin.usage.sampler import Sampler


def start(program: list[str], mib: int, **env: str) -> tuple[subprocess.Popen, str]:
    running = subprocess.Popen(
        [*program, str(mib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    assert running.stdout is not None
    return running, running.stdout.readline().strip()


def end(running: subprocess.Popen) -> None:
    running.communicate(timeout=30)


def test_a_programs_memory_and_its_context(card: str, program: list[str], record_property) -> None:
    running, said = start(program, 1024)
    try:
        assert said.startswith("ok"), said
        (sample,), _ = Sampler().look([card])
        assert sample.problem == ""
        held = sample.memory.get(running.pid)
        assert held is not None, "the driver names no process: is this the host's pid namespace?"
        record_property("context_mib", held - 1024)
        assert 1024 < held < 1024 + 1024
        assert Processes().look([running.pid])[running.pid].name
    finally:
        end(running)
    (sample,), _ = Sampler().look([card])
    assert running.pid not in sample.memory


def test_managed_memory(card: str, program: list[str], record_property) -> None:
    """How much of it NVML counts: docs/enforcement.md leaves that open."""
    if len(program) != 1:
        pytest.skip("nvcc is needed for a program with managed memory")
    running = subprocess.Popen(
        [*program, "1024", "managed"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("ok")
        (sample,), _ = Sampler().look([card])
        held = sample.memory.get(running.pid) or 0
        record_property("managed_mib_counted_of_1024", held)
        assert held >= 1024, f"NVML counts {held} MiB of 1024 MiB of managed memory"
    finally:
        end(running)


def test_two_programs_are_two_processes(card: str, program: list[str]) -> None:
    one, _ = start(program, 512)
    two, _ = start(program, 512)
    try:
        (sample,), _ = Sampler().look([card])
        assert {one.pid, two.pid} <= sample.memory.keys()
    finally:
        end(one)
        end(two)


def test_who_computes(card: str, program: list[str]) -> None:
    sampler = Sampler()
    sampler.look([card], busy=True)
    running, _ = start(program, 256)
    try:
        _, activity = sampler.look([card], busy=True)
        processes = activity[card].processes
        if processes is None:
            pytest.skip("this driver does not tell processes apart: the card's utilisation is used")
    finally:
        end(running)


def test_what_a_look_costs(card: str, record_property) -> None:
    import time

    sampler = Sampler()
    sampler.look([card], busy=True)
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(50):
        sampler.look([card])
    record_property("wall_ms_per_look_and_card", (time.perf_counter() - began) * 20)
    record_property("cpu_ms_per_look_and_card", (time.process_time() - cpu) * 20)
    assert (time.process_time() - cpu) * 20 < 1.25  # eight cards in 1 % of a core
