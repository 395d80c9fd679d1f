"""The node's half on a real card: what the driver says of it, and a container that computes on its
own card and on no other."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_plugin.delivery import Delivery, Start, Way
from device_plugin.enforcement.time_slices import CannotSet, TimeSlices, find_program
from device_plugin.ids import slice_hash
from device_plugin.node_specs import NodeSpecs
from device_plugin.nvml import Nvml
from device_plugin.physical_card import PhysicalCard
from device_plugin.slice_specs import Record, SliceSpecs
from gpushare.cards import Card
from gpushare.placement import Share

_CDI = Path("/var/run/cdi")
_IMAGE = os.environ.get("GPUSHARE_TEST_IMAGE", "docker.io/library/debian:12-slim")


@pytest.fixture
def nvml(card: str) -> Iterator[Nvml]:
    source = Nvml()
    source.open()
    yield source
    source.close()


@pytest.fixture
def cards(nvml: Nvml) -> list[PhysicalCard]:
    return nvml.cards()


def test_all_that_has_to_be_known_of_each_card(nvml: Nvml, cards: list[PhysicalCard]) -> None:
    driver = nvml.open()
    assert driver.version
    assert driver.cuda
    assert cards
    for one in cards:
        assert one.uuid.startswith("GPU-")
        assert one.memory > 1000
        assert one.pci
        assert one.capability
        assert Path(f"/dev/nvidia{one.minor}").exists(), "minor is not the device's number"
        assert one.problem == "", "this card is not well: choose another machine for the tests"


def test_errors_of_each_card_can_be_listened_to(nvml: Nvml, cards: list[PhysicalCard]) -> None:
    deaf = nvml.watch([one.uuid for one in cards])
    assert list(deaf) == [], "a card that reports no XID errors: probes must do"
    assert nvml.wait(0.5) is None


async def test_the_length_of_turns(card: str) -> None:
    try:
        find_program("", "/")
    except CannotSet as error:
        pytest.skip(str(error))
    if os.geteuid() != 0:
        pytest.skip("setting the length of turns needs root")
    turns = TimeSlices("short", lambda: [card])
    await turns.look()
    if turns.problem:
        pytest.skip(f"not with this card or driver: {turns.problem}")
    assert turns.compute(card) == "time-slicing"
    await TimeSlices("default", lambda: [card]).look()


@pytest.fixture
def podman() -> str:
    program = shutil.which("podman")
    if program is None:
        pytest.skip("podman is not in PATH: it is the plainest program that starts CDI containers")
    if os.geteuid() != 0:
        pytest.skip(f"{_CDI} can be written by root alone")
    if not NodeSpecs([Path("/etc/cdi"), _CDI], "nvidia.com/gpu").specs():
        pytest.skip(
            "no NVIDIA CDI spec: run 'nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml'"
        )
    return program


def test_a_container_computes_on_its_card_and_on_no_other(
    cards: list[PhysicalCard], podman: str, program: list[str]
) -> None:
    """With the product's own CDI spec. On a machine of one card, no other device is to be seen."""
    if len(program) != 1:
        pytest.skip("nvcc is needed for a program that runs in any image")
    shown = {c.uuid: Card(c.uuid, c.index, c.minor, c.model, c.memory) for c in cards}
    for one in cards:
        uuid = one.uuid
        digest = slice_hash("gpushare/gpu-mem", [f"test-{one.index}"])
        record = Record("uid", "test", f"card-{one.index}", "main", (uuid,), {uuid: (2048, 0)})
        delivery = Delivery(
            "gpushare/slice", Way.CDI, NodeSpecs([Path("/etc/cdi"), _CDI], "nvidia.com/gpu")
        )
        start = Start(record, (Share(uuid, 2048, 0),), shown)
        path = SliceSpecs(_CDI, "gpushare").write(digest, delivery.full(digest, start), record)
        try:
            look = "ls /dev | grep -E '^nvidia[0-9]+$'; echo | /hold 256"
            command = [podman, "run", "--rm", "--network=none", "--device"]
            command += [f"gpushare/slice={digest}", "-v", f"{program[0]}:/hold:ro", _IMAGE]
            done = subprocess.run(
                [*command, "sh", "-c", look], capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, done.stderr
            device, said = done.stdout.splitlines()[:2]
            assert device == f"nvidia{one.minor}"
            assert said.startswith("ok"), said
        finally:
            path.unlink()
