"""Slices held to their size on a real kubelet, with real processes in real containers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest
from kubernetes import client

from gpushare.cards import decode
from gpushare.placement import ContainerPlacement
from gpushare.request import Role
from tests.cluster.binder import Binder, await_node
from tests.cluster.gpu_programs import Programs, alive, await_end, notebook
from tests.cluster.pods import NAMES, Pods, pod
from tests.cluster.processes import Processes

# A node holds a pod as strictly as the pod wants; so tests need not wait as people may.
QUICK = {NAMES.enforcement: json.dumps({"grace": 2, "allowanceMib": 300})}


@pytest.fixture
def binder(api: client.ApiClient, pods: Pods) -> Binder:
    return Binder(api, pods)


@pytest.fixture
def programs(pods: Pods) -> Iterator[Programs]:
    programs = Programs(pods)
    with programs.cleared():
        yield programs


class Notebooks:
    """Notebooks on card 0 of the node."""

    def __init__(self, binder: Binder, pods: Pods, programs: Programs) -> None:
        self.binder, self.pods, self.programs = binder, pods, programs

    def start(
        self, name: str, gib: int, kernels: int, annotations: dict[str, str] | None = None
    ) -> list[int]:
        """The pids of a notebook: first the server's, then its kernels'."""
        self.place(name, gib, kernels, QUICK if annotations is None else annotations)
        self.pods.await_running(name)
        return self.programs.pids(name, at_least=1 + kernels)

    def place(self, name: str, gib: int, kernels: int, annotations: dict[str, str]) -> None:
        placed = ContainerPlacement("notebook", Role.APP, (self.binder.share(0, gib),))
        manifest = pod(name, notebook("notebook", gib, kernels), annotations=annotations)
        self.binder.bind(manifest, placed)


@pytest.fixture
def notebooks(binder: Binder, pods: Pods, programs: Programs) -> Notebooks:
    return Notebooks(binder, pods, programs)


def test_four_kernels_cannot_take_four_slices(
    notebooks: Notebooks, programs: Programs, pods: Pods
) -> None:
    greedy = notebooks.start("greedy", 3, kernels=4)
    fair = notebooks.start("fair", 3, kernels=1)
    programs.hold(fair[1], 3000)
    programs.hold_all(greedy[1:], 1400)
    said = pods.await_event("greedy", "uses 5.5 GiB")
    assert "its slice is 3 GiB" in said
    assert "Free " in said
    pods.await_event("greedy", "within its slice again", timeout=90)
    assert sum(map(alive, greedy[1:])) == 2  # the last two fit with their contexts
    assert alive(greedy[0])
    assert all(map(alive, fair))
    assert _restarts(pods, "greedy") == _restarts(pods, "fair") == 0


def test_a_terminal_counts_as_the_notebook_it_is_in(
    notebooks: Notebooks, programs: Programs, pods: Pods
) -> None:
    first = notebooks.start("terminal", 3, kernels=1)
    programs.run("terminal", ["sh", "-c", "env -i setsid sleep 300 >/dev/null 2>&1 &"])
    (hidden,) = set(programs.pids("terminal", at_least=3)) - set(first)
    programs.hold(first[1], 1000)
    programs.hold(hidden, 4000)
    await_end(hidden)
    assert alive(first[1])


def test_the_containers_first_process_is_ended_only_when_it_is_alone(
    notebooks: Notebooks, programs: Programs, pods: Pods
) -> None:
    server, kernel = notebooks.start("first", 3, kernels=1)
    programs.hold(server, 5000)
    programs.hold(kernel, 100)
    await_end(kernel)
    pods.await_pod("first", "ended", lambda p: p.status.phase in ("Succeeded", "Failed"), 90)
    assert not alive(server)


def test_who_does_it_again_is_evicted_with_the_reason(
    notebooks: Notebooks, programs: Programs, pods: Pods
) -> None:
    strict = {NAMES.enforcement: json.dumps({"grace": 1, "evictAfter": 1})}
    kernels = notebooks.start("again", 3, kernels=2, annotations=strict)[1:]
    programs.hold(kernels[0], 6000)
    await_end(kernels[0])
    pods.await_event("again", "within its slice again")
    programs.hold(kernels[1], 6000)
    assert "1 GPU processes of the pod were ended" in pods.await_event("again", "evicted:", 90)
    pods.await_gone("again", 90)


def test_an_honest_neighbour_of_processes_without_a_slice(
    api: client.ApiClient, notebooks: Notebooks, programs: Programs, pods: Pods
) -> None:
    """A process of the host takes memory: it is told of, and offered to nobody."""
    notebooks.start("honest", 3, kernels=1)
    programs.hold(os.getpid(), 2000)
    node = await_node(api, "smaller by a stray", lambda n: _taken(n) == [2048, 0], timeout=90)
    assert decode(node.metadata.annotations[NAMES.cards]).cards[0].healthy
    with programs.cards.edit() as edit:
        edit.remove_process(os.getpid())
    await_node(api, "whole again", lambda n: _taken(n) == [0, 0], timeout=90)


def test_lent_memory_comes_back_before_a_newcomer_starts(
    notebooks: Notebooks, programs: Programs, pods: Pods
) -> None:
    lent = {NAMES.gpu_mem_limit: "12"}
    _, small, large = notebooks.start("borrower", 5, kernels=2, annotations=lent)
    programs.hold(small, 2000)
    programs.hold(large, 7500)
    notebooks.place("newcomer", 9, 1, {})
    assert "a new slice needs memory" in pods.await_event("borrower", "borrowed", 90)
    pods.await_running("newcomer", timeout=120)
    assert not alive(large)
    assert alive(small)


def test_the_notebook_sees_its_own_slice(
    notebooks: Notebooks, programs: Programs, pods: Pods
) -> None:
    _, kernel = notebooks.start("seeing", 3, kernels=1)
    notebooks.start("other", 3, kernels=1)
    programs.hold(kernel, 3500)
    pods.await_event("seeing", "its slice is 3 GiB")
    seen = json.loads(programs.run("seeing", ["cat", "/run/gpushare/slice.json"]))
    (card,) = seen["cards"]
    assert (card["model"], card["slice_mib"], card["used_mib"]) == ("T4", 3072, 3500)
    (process,) = card["processes"]
    assert process["pid"] < 100  # as the notebook counts
    assert process["container"] == "notebook"
    assert seen["notices"][0]["kind"] == "GPUMemoryExceeded"
    assert "other" not in json.dumps(seen)
    refused = programs.run("seeing", ["sh", "-c", "touch /run/gpushare/x 2>&1 || true"])
    assert "Read-only" in refused


def test_what_was_measured_outlives_the_plugin(
    notebooks: Notebooks, programs: Programs, pods: Pods, processes: Processes
) -> None:
    _, kernel = notebooks.start("measured", 3, kernels=1)
    programs.hold(kernel, 2500, sm=30)
    _await_board(
        programs, "measured", lambda card: card["last_kernel"] and card["used_mib"] == 2500
    )
    programs.hold(kernel, 100)
    _await_board(programs, "measured", lambda card: card["used_mib"] == 100)
    before = _board(programs, "measured")
    name = "gpushare-device-plugin"
    processes.kill_in_pod(name, name, how=signal.SIGTERM)
    _await_board(programs, "measured", lambda card: card["used_mib"] == 100)
    after = _board(programs, "measured")
    assert after["peak_mib"] == before["peak_mib"] == 2500
    assert after["last_kernel"] >= before["last_kernel"]


def _cards(programs: Programs, name: str) -> list[dict]:
    """The cards on the notebook's own board; none before the first look at them."""
    board = programs.run(name, ["sh", "-c", "cat /run/gpushare/slice.json 2>/dev/null || true"])
    return json.loads(board)["cards"] if board.strip() else []


def _board(programs: Programs, name: str) -> dict:
    (card,) = _cards(programs, name)
    return card


def _await_board(programs: Programs, name: str, holds, timeout: float = 90) -> None:
    deadline = time.monotonic() + timeout
    cards = _cards(programs, name)
    while not any(holds(card) for card in cards):
        assert time.monotonic() < deadline, f"{name}: its board says {cards}"
        time.sleep(0.5)
        cards = _cards(programs, name)


def _restarts(pods: Pods, name: str) -> int:
    return sum(s.restart_count for s in pods.read(name).status.container_statuses)


def _taken(node: client.V1Node) -> list[int]:
    return [card.taken for card in decode(node.metadata.annotations[NAMES.cards]).cards]
