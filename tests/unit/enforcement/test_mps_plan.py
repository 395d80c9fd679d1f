"""Which limits a server gets, who is refused, what logs say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.mps.layout import client_edits, daemon_environment, folders
from device_plugin.enforcement.mps.logs import Fault, LogReader, ServerEnded, ServerFailed
from device_plugin.enforcement.mps.plan import (
    MOST_CLIENTS,
    Limits,
    Wanted,
    card_refusal,
    held_by,
    limits,
    shares_card,
    slice_refusal,
)
from device_plugin.enforcement.mps.tail import Tail, rotate

from .making import CARD, OTHER_CARD, pod_slice, uid

wishes = st.lists(st.builds(Wanted, st.integers(1, 24000), st.integers(1, 100)), max_size=10)


@given(wishes)
def test_nobody_is_cut_below_its_slice_and_the_server_gives_no_more_than_the_largest(
    all_of_them: list[Wanted],
) -> None:
    server = limits(all_of_them)
    if server is None:
        assert not all_of_them
        return
    assert server.mib == max(w.mib for w in all_of_them)
    for one in all_of_them:
        assert one.mib <= server.mib
        assert one.percent <= server.percent
        memory, _ = held_by(one, server)
        # The server's word is exact only where it is the slice's own.
        assert (memory == "mps-server") == (one.mib == server.mib)


def test_equal_slices_are_held_by_the_server() -> None:
    server = limits([Wanted(3072, 25), Wanted(3072, 25)])
    assert server == Limits(3072, 25)
    assert held_by(Wanted(3072, 25), server) == ("mps-server", "mps-server")


def test_unequal_ones_say_who_is_held_by_what() -> None:
    server = limits([Wanted(3072, 100), Wanted(7168, 50)])
    assert held_by(Wanted(3072, 100), server) == ("mps-client", "best-effort")
    assert held_by(Wanted(7168, 50), server) == ("mps-server", "mps-client")
    assert held_by(Wanted(3072, 25), None) == ("watchdog", "best-effort")


def test_whole_cards_have_no_need_of_it() -> None:
    assert shares_card(pod_slice(1, percent=50), CARD)
    assert shares_card(pod_slice(1), CARD)
    assert not shares_card(pod_slice(1, percent=100), CARD)
    assert not shares_card(pod_slice(1), OTHER_CARD)


def test_a_program_can_use_the_daemon_of_one_card_only() -> None:
    assert "one card" in slice_refusal(pod_slice(1), [CARD, OTHER_CARD], {}, None)


def test_a_full_server() -> None:
    others = {uid(n): pod_slice(n) for n in range(2, MOST_CLIENTS + 2)}
    assert "48 clients" in slice_refusal(pod_slice(1), [CARD], others, None)
    others.popitem()
    assert slice_refusal(pod_slice(1), [CARD], others, None) == ""


@pytest.mark.parametrize(
    ("user", "refused"), [(1000, False), (1001, True), (0, True), (None, True)]
)
def test_a_client_of_another_user_would_hold_up_everybody(user: int | None, refused: bool) -> None:
    problem = slice_refusal(pod_slice(1, user=user), [CARD], {}, only_user=1000)
    assert bool(problem) == refused
    assert not refused or "runAsUser: 1000" in problem
    assert slice_refusal(pod_slice(1, user=user), [CARD], {}, only_user=None) == ""


@pytest.mark.parametrize(
    ("capability", "refused"),
    [("3.7", True), ("6.1", True), ("7.0", False), ("7.5", False), ("8.6", False), ("", False)],
)
def test_cards_before_volta_have_no_limits(capability: str, refused: bool) -> None:
    assert bool(card_refusal(capability, "Tesla P4")) == refused


def test_each_card_has_its_own_folders(tmp_path: object) -> None:
    from pathlib import Path

    one, other = (folders(Path("/mps"), Path("/shm"), card) for card in (CARD, OTHER_CARD))
    assert len({one.pipes, one.logs, one.shm, other.pipes, other.logs, other.shm}) == 6
    env = daemon_environment(one, CARD)
    assert env["CUDA_VISIBLE_DEVICES"] == CARD
    edits = client_edits(one, 3072, 25)
    assert edits["env"] == [
        "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=3072M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
    ]
    assert {m["containerPath"]: m["hostPath"] for m in edits["mounts"]} == {
        "/tmp/nvidia-mps": str(one.pipes),
        "/dev/shm": str(one.shm),
    }
    assert len(client_edits(one, 3072, 0)["env"]) == 2


# The example of NVIDIA's guide, appendix "MPS Logging Format".
FAULT = """
[2022-04-28 15:56:07.410 Other 11570] Volta MPS: status of client {11661, 1} is ACTIVE
[2022-04-28 15:56:08.906 Other 11570] Volta MPS: Server is handling a fatal GPU error.
[2022-04-28 15:56:08.906 Other 11570] Volta MPS: status of client {11641, 1} is INACTIVE
[2022-04-28 15:56:08.906 Other 11570] Volta MPS: status of client {11643, 1} is INACTIVE
[2022-04-28 15:56:08.906 Other 11570] Volta MPS: status of client {11643, 2} is INACTIVE
[2022-04-28 15:56:08.906 Other 11570] Volta MPS: The following devices
[2022-04-28 15:56:08.906 Other 11570] 0
[2022-04-28 15:56:08.907 Other 11570] 1
[2022-04-28 15:56:08.907 Other 11570] Volta MPS: The following clients have a sticky error set:
[2022-04-28 15:56:08.907 Other 11570] 11641
[2022-04-28 15:56:08.907 Other 11570] 11643
[2022-04-28 15:56:09.200 Other 11570] Client {11641, 1} exit
[2022-04-28 15:56:09.244 Other 11570] Client {11643, 1} exit
[2022-04-28 15:56:09.245 Other 11570] Volta MPS: Destroy server context on device 0
""".strip().splitlines()


@pytest.mark.parametrize("cut", range(len(FAULT) + 1))
def test_a_fault_is_told_once_however_the_log_comes_in(cut: int) -> None:
    reader = LogReader()
    events = reader.read(FAULT[:cut]) + reader.read(FAULT[cut:]) + reader.settle()
    assert events == [Fault(frozenset({11641, 11643}))]


def test_servers_that_end_or_fail() -> None:
    reader = LogReader()
    assert reader.read(
        [
            "[2013-08-05 13:02:26.226 Control 13894] Server 13929 exited with status 0",
            "[2013-08-05 13:02:26.226 Control 13894] Server 13930 exited with status 1",
            "[2013-08-06 10:51:31.706 Server 29489] MPS server failed to start",
            "noise",
            "",
        ]
    ) == [ServerEnded(13930, 1), ServerFailed()]


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_log_can_be_read(lines: list[str]) -> None:
    reader = LogReader()
    reader.read(lines)
    reader.settle()


@pytest.mark.parametrize("appends", [True, False])
def test_a_long_log_is_cut_and_no_line_of_it_is_lost(tmp_path, appends: bool) -> None:
    path = tmp_path / "server.log"
    with path.open("a" if appends else "w") as daemon:
        tail = Tail(path)
        seen = []
        for round_ in range(5):
            daemon.write(f"{round_} " + "x" * 5000 + "\n")
            daemon.flush()
            seen += [line.split()[0] for line in tail.lines()]
            rotate(path, most=8192)
            if round_ % 2:
                seen += [line.split()[0] for line in tail.lines()]
    assert seen == ["0", "1", "2", "3", "4"]
    assert path.stat().st_blocks * 512 <= 8192 + 4096
    assert (tmp_path / "server.log.1").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["server.log", "server.log.1"]


def test_the_tail_of_a_file(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    tail = Tail(path)
    assert tail.lines() == []
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert tail.lines() == ["one"]
        file.write("o\n")
        file.flush()
        assert tail.lines() == ["two"]
    path.write_text("anew\n")
    assert tail.lines() == ["anew"]
    path.unlink()
    assert tail.lines() == []
