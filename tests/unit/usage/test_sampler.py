"""What a look at the cards brings home, by the real nvidia-ml-py from the stand-in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from playground.simulated_cards import SimulatedCards

Look = Any
NOT_SUPPORTED, GPU_IS_LOST, UNKNOWN = 3, 15, 999


@pytest.fixture
def uuids(cards: SimulatedCards) -> list[str]:
    return [card.uuid for card in cards.read().cards]


@pytest.fixture
def running() -> Iterator[list[int]]:
    """Pids of processes that live."""
    code = "import signal; signal.pause()"
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    yield [p.pid for p in processes]
    for process in processes:
        process.kill()
        process.wait()


def test_memory_of_each_card(sampler: Look, uuids: list[str]) -> None:
    (t4, a10), activity = sampler(*uuids)
    assert t4 == [uuids[0], 15360, 399, 399, [], ""]
    assert a10 == [uuids[1], 23028, 495, 495, [], ""]
    assert activity == []


def test_processes_of_all_kinds_once_each(
    sampler: Look, cards: SimulatedCards, uuids: list[str], running: list[int]
) -> None:
    with cards.edit() as edit:
        edit.add_process(0, running[0], 1000)
        edit.add_process(0, running[1], 20, kind="graphics")
        edit.add_process(0, running[2], 300, kind="mps")
        edit.add_process(1, running[0], 7)
    (t4, a10), _ = sampler(*uuids)
    assert t4[4] == sorted([[running[0], 1000], [running[1], 20], [running[2], 300]])
    assert (t4[2], a10[4]) == (399 + 1320, [[running[0], 7]])


def test_a_process_that_ended_is_gone(
    sampler: Look, cards: SimulatedCards, uuids: list[str]
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with cards.edit() as edit:
        edit.add_process(0, child.pid, 1000)
    assert len(sampler(uuids[0])[0][0][4]) == 1
    child.communicate(b"\n")
    assert sampler(uuids[0])[0][0][4] == []


def test_more_processes_than_there_was_room_for(
    sampler: Look, cards: SimulatedCards, uuids: list[str]
) -> None:
    with cards.edit() as edit:
        for pid in range(100_000, 101_000):
            edit.add_process(0, pid, 1, follow=False, sm=1)
    (t4,), ((_, _, busy),) = sampler(uuids[0], busy=True)
    assert len(t4[4]) == 1000
    assert len(busy) == 1000


def test_who_computed(
    sampler: Look, cards: SimulatedCards, uuids: list[str], running: list[int]
) -> None:
    with cards.edit() as edit:
        edit.add_process(0, running[0], 1000, sm=40)
        edit.add_process(0, running[1], 1000)
    _, ((card, percent, busy),) = sampler(uuids[0], busy=True)
    assert (card, busy) == (uuids[0], [[running[0], 40]])
    assert percent >= 40


def test_where_processes_are_not_told_apart_the_card_still_is(
    sampler: Look, cards: SimulatedCards, uuids: list[str]
) -> None:
    with cards.edit() as edit:
        edit.fail("nvmlDeviceGetProcessUtilization", NOT_SUPPORTED)
        edit.set_utilisation(0, 70)
    _, ((_, percent, busy),) = sampler(uuids[0], busy=True)
    assert (percent, busy) == (70, None)


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMemoryInfo_v2"]
)
def test_an_older_driver_is_asked_the_older_way(
    sampler: Look, cards: SimulatedCards, uuids: list[str], running: list[int], call: str
) -> None:
    with cards.edit() as edit:
        edit.add_process(0, running[0], 1000)
    sampler.lack(call)
    (t4,), _ = sampler(uuids[0])
    assert t4[4] == [[running[0], 1000]]
    assert (t4[1], t4[2], t4[5]) == (15360, 1399, "")


def test_a_lost_card_says_so_and_the_other_is_seen(
    sampler: Look, cards: SimulatedCards, uuids: list[str]
) -> None:
    with cards.edit() as edit:
        edit.lose_card(0)
    (lost, well), activity = sampler(*uuids, busy=True)
    assert lost[5].startswith("NVML:")
    assert well[1] == 23028
    assert [entry[0] for entry in activity] == [uuids[1]]


def test_a_card_that_fails_in_the_middle_is_said_once(
    sampler: Look, cards: SimulatedCards, uuids: list[str]
) -> None:
    with cards.edit() as edit:
        edit.fail("nvmlDeviceGetMPSComputeRunningProcesses", UNKNOWN, card=0)
    samples, _ = sampler(*uuids, busy=True)
    assert [bool(s[5]) for s in samples] == [True, False]


def test_a_driver_that_comes_back(sampler: Look, cards: SimulatedCards, uuids: list[str]) -> None:
    with cards.edit() as edit:
        edit.fail("nvmlInit", UNKNOWN)
    (t4,), _ = sampler(uuids[0])
    assert t4[5].startswith("NVML:")
    with cards.edit() as edit:
        edit.clear_faults()
    (t4,), _ = sampler(uuids[0])
    assert (t4[1], t4[5]) == (15360, "")


def test_an_unknown_card(sampler: Look, uuids: list[str]) -> None:
    (unknown, known), _ = sampler("GPU-00000000-0000-0000-0000-000000000000", uuids[0])
    assert unknown[5]
    assert not known[5]
