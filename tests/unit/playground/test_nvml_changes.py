"""What the stand-in shows while its state changes: visibility, lost cards, events, faults."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from playground.simulated_cards import SimulatedCards

from .nvml_client import NvmlClient, Refused
from .test_nvml import code

Client = Callable[..., NvmlClient]
UUIDS = "[nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(i)) for i in range(nvmlDeviceGetCount())]"


def test_only_cards_with_a_device_node_are_seen_and_count_from_zero(
    client: Client, cards: SimulatedCards, devices: Path
) -> None:
    (devices / "nvidia0").unlink()
    nvml = client(init=False)
    nvml("nvmlInit()")
    hidden, seen = cards.read().cards
    assert nvml(UUIDS) == [seen.uuid]
    assert nvml("nvmlDeviceGetMinorNumber(nvmlDeviceGetHandleByIndex(0))") == 1
    assert nvml("nvmlDeviceGetIndex(nvmlDeviceGetHandleByIndex(0))") == 0
    assert code(nvml, f"nvmlDeviceGetHandleByUUID({hidden.uuid.encode()!r})") == 6
    assert code(nvml, f"nvmlDeviceGetHandleByPciBusId({hidden.pci_address.encode()!r})") == 6


def test_no_control_node_is_no_driver(client: Client, devices: Path) -> None:
    (devices / "nvidiactl").unlink()
    assert code(client(init=False), "nvmlInit()") == 9


def test_no_state_file_is_no_driver(client: Client, cards: SimulatedCards) -> None:
    nvml = client(init=False)
    text = cards.read()
    cards.path.unlink()
    assert code(nvml, "nvmlInit()") == 9
    cards.write(text)
    nvml("nvmlInit()")
    assert nvml("nvmlDeviceGetCount()") == 2


def test_driver_root_layout_needs_no_environment(
    nvml_library: Path, cards: SimulatedCards, tmp_path: Path
) -> None:
    """The state lies beside the library, the devices in the same root's dev."""
    folder = tmp_path / "root" / "usr" / "lib" / "any-linux-gnu"
    folder.mkdir(parents=True)
    shutil.copy(nvml_library, folder)
    (tmp_path / "root" / "dev").mkdir()
    for name in ("nvidiactl", "nvidia1"):
        (tmp_path / "root" / "dev" / name).touch()
    beside = SimulatedCards(folder / "gpushare-nvml" / "state")
    beside.write(replace(cards.read(), devices=""))
    nvml = NvmlClient(folder / nvml_library.name)
    nvml("nvmlInit()")
    assert nvml(UUIDS) == [beside.read().cards[1].uuid]
    nvml.close()


def test_cards_are_in_order_of_their_pci_addresses(client: Client, cards: SimulatedCards) -> None:
    with cards.edit() as edit:
        edit.change_card(0, pci_domain=1)
    first, second = cards.read().cards
    assert client()(UUIDS) == [second.uuid, first.uuid]


def test_a_new_card_needs_a_new_init(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    new = replace(cards.read().cards[0], uuid="GPU-new", minor=3, pci_bus=0xF0)
    with cards.edit() as edit:
        edit.add_card(new)
    assert nvml("nvmlDeviceGetCount()") == 2
    nvml("nvmlShutdown()")
    nvml("nvmlInit()")
    assert nvml(UUIDS)[-1] == "GPU-new"


def test_changes_are_seen_at_the_next_call(client: Client, cards: SimulatedCards) -> None:
    """Also when two replacements fall into one tick of the file system's clock."""
    nvml = client()
    for degrees in range(40, 90):
        with cards.edit() as edit:
            edit.change_card(0, temperature=degrees)
        assert nvml("nvmlDeviceGetTemperature(h, 0)") == degrees


def test_a_lost_card_and_its_return(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    with cards.edit() as edit:
        edit.add_process(0, 99, 100, follow=False)
        edit.lose_card(0)
    for call in (
        "nvmlDeviceGetUUID(h)",
        "nvmlDeviceGetMemoryInfo(h)",
        "nvmlDeviceGetComputeRunningProcesses(h)",
        "nvmlDeviceGetHandleByIndex(0)",
        f"nvmlDeviceGetHandleByUUID({cards.read().cards[0].uuid.encode()!r})",
    ):
        assert code(nvml, call) == 15
    assert nvml("nvmlDeviceGetCount()") == 2
    assert nvml("nvmlDeviceGetIndex(h1)") == 1
    with cards.edit() as edit:
        edit.restore_card(0)
    assert nvml("nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2)")["used"] == 0


def test_a_card_that_is_pulled_out(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    with cards.edit() as edit:
        edit.remove_card(0)
    assert code(nvml, "nvmlDeviceGetName(h)") == 15
    nvml("nvmlShutdown()")
    nvml("nvmlInit()")
    assert nvml("nvmlDeviceGetCount()") == 1
    assert code(nvml, "nvmlDeviceGetName(h)") == 2  # a handle of the init before


def test_a_process_that_ends_lets_go_of_the_card(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with cards.edit() as edit:
            edit.add_process(0, process.pid, 512, sm=50)
        processes = nvml("nvmlDeviceGetComputeRunningProcesses(h)")
        assert [p["pid"] for p in processes] == [process.pid]
        assert nvml("nvmlDeviceGetUtilizationRates(h)")["gpu"] == 50
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert nvml("nvmlDeviceGetComputeRunningProcesses(h)") == []  # a zombie holds no memory
    assert nvml("nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2)")["used"] == 0
    assert nvml("nvmlDeviceGetUtilizationRates(h)")["gpu"] == 0


def test_a_later_process_with_the_same_number_is_not_it(
    client: Client, cards: SimulatedCards
) -> None:
    with cards.edit() as edit:
        edit.add_process(0, os.getpid(), 512)
        edit.change_process(os.getpid(), start=1)
    assert client()("nvmlDeviceGetComputeRunningProcesses(h)") == []


def test_another_pid_namespace_is_told_of_no_process(client: Client, cards: SimulatedCards) -> None:
    with cards.edit() as edit:
        edit.add_process(0, os.getpid(), 512, sm=10)
        edit.state = replace(edit.state, pidns=os.stat("/proc/self/ns/pid").st_ino)
    own = client()
    assert len(own("nvmlDeviceGetComputeRunningProcesses(h)")) == 1
    with cards.edit() as edit:
        edit.state = replace(edit.state, pidns=1)
    assert own("nvmlDeviceGetComputeRunningProcesses(h)") == []
    assert code(own, "nvmlDeviceGetProcessUtilization(h, 0)") == 6
    used = own("nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2)")["used"]
    assert used == 512 << 20  # the card's own total is the same for everyone


# --- events


def watch(nvml: NvmlClient, *handles: str) -> None:
    nvml("s = nvmlEventSetCreate()")
    for handle in handles:
        nvml(f"nvmlDeviceRegisterEvents({handle}, nvmlDeviceGetSupportedEventTypes({handle}), s)")


def test_events_wake_the_waiter_at_once_and_in_order(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    with cards.edit() as edit:
        edit.raise_xid(0, 31)  # before the registration: nobody's news
    watch(nvml, "h", "h1")
    wait = "e = nvmlEventSetWait(s, 20000); nvmlDeviceGetIndex(e.device)"
    nvml.send("nvmlEventSetWait(s, 20000)")
    assert not nvml.answers_within(0.2)
    raised = time.monotonic()
    with cards.edit() as edit:
        edit.raise_xid(1, 48)
        edit.raise_xid(0, 63)
        edit.raise_ecc(0, corrected=False)
    assert nvml.receive() == {
        "eventType": 8,
        "eventData": 48,
        "gpuInstanceId": 0xFFFFFFFF,
        "computeInstanceId": 0xFFFFFFFF,
    }
    assert time.monotonic() - raised < 1
    nvml(wait.split(";")[0])
    assert nvml("(nvmlDeviceGetIndex(e.device), e.eventData)") == [0, 63]
    assert nvml("nvmlEventSetWait(s, 20000).eventType") == 2
    assert code(nvml, "nvmlEventSetWait(s, 0)") == 10


def test_the_timeout_is_kept(client: Client) -> None:
    nvml = client()
    watch(nvml, "h")
    began = time.monotonic()
    assert code(nvml, "nvmlEventSetWait(s, 600)") == 10
    assert 0.5 < time.monotonic() - began < 3


def test_only_registered_types_and_cards(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    nvml("s = nvmlEventSetCreate()")
    nvml("nvmlDeviceRegisterEvents(h, nvmlEventTypeXidCriticalError, s)")
    with cards.edit() as edit:
        edit.raise_ecc(0, corrected=True)
        edit.raise_xid(1, 79)
        edit.raise_xid(0, 13)
    assert nvml("nvmlEventSetWait(s, 0).eventData") == 13
    assert code(nvml, "nvmlEventSetWait(s, 0)") == 10
    assert code(nvml, "nvmlDeviceRegisterEvents(h, 1 << 40, s)") == 3


def test_each_set_has_its_own_copy(client: Client, cards: SimulatedCards) -> None:
    one, two = client(), client()
    for nvml in (one, two):
        watch(nvml, "h")
    with cards.edit() as edit:
        edit.raise_xid(0, 13)
    assert [nvml("nvmlEventSetWait(s, 5000).eventData") for nvml in (one, two)] == [13, 13]


def test_a_lost_card_ends_the_wait_after_its_last_event(
    client: Client, cards: SimulatedCards
) -> None:
    nvml = client()
    watch(nvml, "h", "h1")
    nvml.send("nvmlEventSetWait(s, 20000)")
    with cards.edit() as edit:
        edit.lose_card(0)
    assert nvml.receive()["eventData"] == 79
    assert code(nvml, "nvmlEventSetWait(s, 20000)") == 15


def test_a_freed_set_is_refused(client: Client) -> None:
    nvml = client()
    watch(nvml, "h")
    nvml("nvmlEventSetFree(s)")
    assert code(nvml, "nvmlEventSetFree(s)") == 2
    assert code(nvml, "nvmlEventSetWait(s, 0)") == 2


# --- faults


def test_init_fails_with_the_code_asked_for(client: Client, cards: SimulatedCards) -> None:
    with cards.edit() as edit:
        edit.fail("nvmlInit", 999)
    nvml = client(init=False)
    assert code(nvml, "nvmlInit()") == 999
    with cards.edit() as edit:
        edit.clear_faults()
    nvml("nvmlInit()")
    assert nvml("nvmlDeviceGetCount()") == 2


def test_one_call_of_one_card_fails(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    with cards.edit() as edit:
        edit.fail("nvmlDeviceGetMemoryInfo", 3, card=1)
    assert code(nvml, "nvmlDeviceGetMemoryInfo(h1)") == 3
    assert code(nvml, "nvmlDeviceGetMemoryInfo(h1, nvmlMemory_v2)") == 3
    assert nvml("nvmlDeviceGetMemoryInfo(h)")["total"] > 0
    with cards.edit() as edit:
        edit.fail("*", 999)
    assert code(nvml, "nvmlDeviceGetCount()") == 999


def test_a_hanging_call_goes_on_when_the_fault_is_cleared(
    client: Client, cards: SimulatedCards
) -> None:
    nvml = client()
    with cards.edit() as edit:
        edit.hang("nvmlDeviceGetTemperature", 60)
    nvml.send("nvmlDeviceGetTemperature(h, 0)")
    assert not nvml.answers_within(0.5)
    with cards.edit() as edit:
        edit.clear_faults()
    assert nvml.answers_within(2)
    assert nvml.receive() == 34


def test_a_hang_ends_by_itself_and_then_fails(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    with cards.edit() as edit:
        edit.hang("nvmlDeviceGetTemperature", 0.4, result=999)
    began = time.monotonic()
    assert code(nvml, "nvmlDeviceGetTemperature(h, 0)") == 999
    assert 0.3 < time.monotonic() - began < 5


def test_a_hanging_call_blocks_no_other_thread(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    with cards.edit() as edit:
        edit.hang("nvmlDeviceGetTemperature", 30)
    nvml("import threading")
    nvml("t = threading.Thread(target=nvmlDeviceGetTemperature, args=(h, 0), daemon=True)")
    nvml("t.start()")
    nvml.send("nvmlDeviceGetName(h)")
    assert nvml.answers_within(5)
    assert nvml.receive() == "Tesla T4"
    with cards.edit() as edit:
        edit.clear_faults()


def test_readers_and_a_busy_writer(client: Client, cards: SimulatedCards) -> None:
    """No reader ever sees half a state: total memory is there in each one."""
    nvml = client()
    stop = threading.Event()

    def write() -> None:
        pid = 0
        while not stop.is_set():
            pid += 1
            with cards.edit() as edit:
                edit.add_process(0, pid % 50 + 1, 1, follow=False)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        totals = nvml("{nvmlDeviceGetMemoryInfo(h).total for _ in range(2000)}.__len__()")
        assert totals == 1
    except Refused as refused:
        pytest.fail(f"a reader was refused: {refused}")
    finally:
        stop.set()
        writer.join()
