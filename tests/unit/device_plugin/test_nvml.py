"""The real nvidia-ml-py over the playground's stand-in for the driver's library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from device_plugin.nvml import Nvml, find_library
from device_plugin.physical_card import DriverReplaced, NoDriver, XidEvent
from playground.simulated_cards import SimulatedCards


@pytest.fixture
def nvml(cards: SimulatedCards, driver_root: Path) -> Iterator[Nvml]:
    nvml = Nvml(str(driver_root))
    yield nvml
    with cards.edit() as edit:
        edit.clear_faults()  # or the library would refuse to be shut down, for all later tests
    nvml.close()


def uuids(cards: SimulatedCards) -> list[str]:
    return [card.uuid for card in cards.read().cards]


def test_all_that_is_known_of_a_card(nvml: Nvml, cards: SimulatedCards) -> None:
    driver = nvml.open()
    assert (driver.version, driver.cuda) == ("570.172.08", "12.8")
    t4, a10 = nvml.cards()
    assert [t4.uuid, a10.uuid] == uuids(cards)
    assert (t4.index, t4.minor, t4.model, t4.memory) == (0, 0, "Tesla T4", 15360)
    assert (a10.index, a10.minor, a10.model, a10.memory) == (1, 1, "NVIDIA A10", 23028)
    assert (t4.capability, a10.capability) == ("7.5", "8.6")
    assert t4.pci == "00000000:3B:00.0"
    assert (t4.problem, a10.problem) == ("", "")


def test_a_lost_card_is_missing(nvml: Nvml, cards: SimulatedCards) -> None:
    nvml.open()
    with cards.edit() as edit:
        edit.lose_card(0)
    assert [card.minor for card in nvml.cards()] == [1]


def test_memory_errors_show(nvml: Nvml, cards: SimulatedCards) -> None:
    nvml.open()
    with cards.edit() as edit:
        edit.raise_ecc(0, corrected=True, count=5)
        edit.raise_ecc(1, corrected=False, count=2)
    t4, a10 = nvml.cards()
    assert t4.problem == ""
    assert "2 uncorrectable ECC" in a10.problem


def test_xid_events_arrive_with_their_card(nvml: Nvml, cards: SimulatedCards) -> None:
    nvml.open()
    assert nvml.watch(uuids(cards)) == []
    assert nvml.wait(0.01) is None
    with cards.edit() as edit:
        edit.raise_xid(1, 79)
    assert nvml.wait(2.0) == XidEvent(uuids(cards)[1], 79)
    assert nvml.wait(0.01) is None


def test_a_missing_driver_is_named_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(NoDriver, match=r"DevicePlugin\.driver_root"):
        Nvml(str(tmp_path)).open()


@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_a_failing_driver_is_a_reason_not_a_crash(
    nvml: Nvml, cards: SimulatedCards, call: str
) -> None:
    with cards.edit() as edit:
        edit.fail(call, pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(NoDriver, match="Unknown Error"):
        _ = (nvml.open(), nvml.cards())
    with cards.edit() as edit:
        edit.clear_faults()
    nvml.close()
    nvml.open()
    assert len(nvml.cards()) == 2


def test_a_driver_replaced_under_us_needs_a_new_process(nvml: Nvml, cards: SimulatedCards) -> None:
    mismatch = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    with cards.edit() as edit:
        edit.fail("nvmlInitWithFlags", mismatch)
    with pytest.raises(NoDriver) as before_any_success:
        nvml.open()
    assert not isinstance(before_any_success.value, DriverReplaced)
    with cards.edit() as edit:
        edit.clear_faults()
    nvml.open()
    with cards.edit() as edit:
        edit.fail("*", mismatch)
    with pytest.raises(DriverReplaced):
        nvml.cards()


def test_cards_that_come_are_counted_after_reopening(
    nvml: Nvml, cards: SimulatedCards, tmp_path: Path
) -> None:
    with cards.edit() as edit:
        left = edit.card(1)
        edit.remove_card(1)
    nvml.open()
    assert len(nvml.cards()) == 1
    with cards.edit() as edit:
        edit.add_card(left)
    assert len(nvml.cards()) == 1
    nvml.close()
    nvml.open()
    assert len(nvml.cards()) == 2


@pytest.mark.parametrize(
    "folder", ["usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib/wsl/lib", "opt/nvidia/lib64"]
)
def test_the_library_is_found_where_others_put_it(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "libnvidia-ml.so.1"
    assert find_library(str(tmp_path)) is None
    path.parent.mkdir(parents=True)
    path.touch()
    assert find_library(str(tmp_path)) == path
