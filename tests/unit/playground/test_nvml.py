"""Each call of the stand-in, as nvidia-ml-py makes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from playground.simulated_cards import SimulatedCards

from .nvml_client import NvmlClient, Refused

Client = Callable[..., NvmlClient]
MIB = 1024 * 1024


def code(client: NvmlClient, expression: str) -> int:
    with pytest.raises(Refused) as refused:
        client(expression)
    return refused.value.code


def test_driver_and_versions(client: Client) -> None:
    nvml = client()
    assert nvml("nvmlSystemGetDriverVersion()") == "570.172.08"
    assert nvml("nvmlSystemGetNVMLVersion()") == "12.570.172.08"
    assert nvml("nvmlSystemGetCudaDriverVersion()") == 12080
    assert nvml("nvmlSystemGetCudaDriverVersion_v2()") == 12080


def test_identity_of_each_card(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    t4, a10 = cards.read().cards
    assert nvml("nvmlDeviceGetCount()") == 2
    assert nvml("nvmlDeviceGetUUID(h)") == t4.uuid
    assert nvml("nvmlDeviceGetUUID(h1)") == a10.uuid
    assert [nvml(f"nvmlDeviceGetName({h})") for h in ("h", "h1")] == ["Tesla T4", "NVIDIA A10"]
    assert [nvml(f"nvmlDeviceGetIndex({h})") for h in ("h", "h1")] == [0, 1]
    assert [nvml(f"nvmlDeviceGetMinorNumber({h})") for h in ("h", "h1")] == [0, 1]
    assert nvml("nvmlDeviceGetSerial(h)") == t4.serial
    capability = "nvmlDeviceGetCudaComputeCapability"
    assert [nvml(f"{capability}({h})") for h in ("h", "h1")] == [[7, 5], [8, 6]]
    assert nvml("nvmlDeviceGetArchitecture(h) == NVML_DEVICE_ARCH_TURING")
    assert nvml("nvmlDeviceGetArchitecture(h1) == NVML_DEVICE_ARCH_AMPERE")
    assert nvml("nvmlDeviceGetBrand(h) == NVML_BRAND_TESLA")
    assert nvml("nvmlDeviceGetBrand(h1) == NVML_BRAND_NVIDIA")


def test_pci_address(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    pci = nvml("nvmlDeviceGetPciInfo(h1)")
    assert pci == {
        "busId": "00000000:CA:00.0",
        "busIdLegacy": "0000:CA:00.0",
        "domain": 0,
        "bus": 0xCA,
        "device": 0,
        "pciDeviceId": 0x223610DE,
        "pciSubSystemId": 0x148210DE,
    }
    assert cards.read().cards[1].pci_address == pci["busId"]
    for address in ("00000000:CA:00.0", "0000:ca:00.0", "ca:00.0"):
        same = f"nvmlDeviceGetUUID(nvmlDeviceGetHandleByPciBusId({address.encode()!r}))"
        assert nvml(same) == cards.read().cards[1].uuid
    assert code(nvml, "nvmlDeviceGetHandleByPciBusId(b'0000:01:00.0')") == 6
    for nonsense in ("", "zz:00.0", "ca", "0000:ca"):
        assert code(nvml, f"nvmlDeviceGetHandleByPciBusId({nonsense.encode()!r})") == 2


def test_handles_by_uuid_and_index(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    uuid = cards.read().cards[1].uuid
    assert nvml(f"nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID({uuid.encode()!r}))") == 1
    assert code(nvml, "nvmlDeviceGetHandleByUUID(b'GPU-none')") == 6
    assert code(nvml, "nvmlDeviceGetHandleByIndex(2)") == 2
    assert code(nvml, "nvmlDeviceGetName(c_nvmlDevice_t())") == 2


def test_memory_in_both_layouts(client: Client, cards: SimulatedCards) -> None:
    with cards.edit() as edit:
        edit.add_process(0, 4001, 1000, follow=False)
        edit.add_process(0, 4002, 24, "graphics", follow=False)
        edit.add_process(1, 4003, 5000, follow=False)
    nvml = client()
    old = nvml("nvmlDeviceGetMemoryInfo(h)")
    new = nvml("nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2)")
    assert old["total"] == new["total"] == 15360 * MIB
    assert new["used"] == 1024 * MIB
    assert new["reserved"] == 399 * MIB
    assert old["used"] == new["used"] + new["reserved"]
    assert old["free"] == new["free"] == (15360 - 399 - 1024) * MIB
    assert nvml("nvmlDeviceGetMemoryInfo(h1, nvmlMemory_v2)")["used"] == 5000 * MIB
    assert code(nvml, "nvmlDeviceGetMemoryInfo(h, 0x03000028)") == 25


def test_memory_never_wraps_around(client: Client, cards: SimulatedCards) -> None:
    with cards.edit() as edit:
        edit.add_process(0, 4001, 99999, follow=False)
    nvml = client()
    assert nvml("nvmlDeviceGetMemoryInfo(h)")["free"] == 0
    assert nvml("nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2)")["free"] == 0


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("nvmlDeviceGetComputeRunningProcesses", "compute"),
        ("nvmlDeviceGetGraphicsRunningProcesses", "graphics"),
        ("nvmlDeviceGetMPSComputeRunningProcesses", "mps"),
    ],
)
def test_process_lists(
    client: Client, cards: SimulatedCards, call: str, kind: str, version: str
) -> None:
    nvml = client()
    wrapped = nvml(f"hasattr(pynvml, {call + version!r})")
    listing = f"{call}{version}(h)" if wrapped else f"raw({call + version!r})"
    if not wrapped:  # pynvml has no wrapper for the older graphics and MPS lists
        nvml(_RAW_LIST)
    assert nvml(listing) == []
    with cards.edit() as edit:
        for kinds, pid in (("compute", 100), ("graphics", 200), ("mps", 300)):
            edit.add_process(0, pid, 10, kinds, follow=False)  # type: ignore[arg-type]
            edit.add_process(0, pid + 1, 20, kinds, follow=False)  # type: ignore[arg-type]
    first = {"compute": 100, "graphics": 200, "mps": 300}[kind]
    found = [(p["pid"], p["usedGpuMemory"]) for p in nvml(listing)]
    assert found == [(first, 10 * MIB), (first + 1, 20 * MIB)]


_RAW_LIST = """
def raw(name):
    count, infos = c_uint(8), (c_nvmlProcessInfo_v2_t * 8)()
    pynvml._nvmlCheckReturn(pynvml._nvmlGetFunctionPointer(name)(h, byref(count), infos))
    return list(infos[: count.value])
"""


def test_first_version_of_the_process_list_has_the_short_layout(
    client: Client, cards: SimulatedCards
) -> None:
    with cards.edit() as edit:
        for pid in (7, 8, 9):
            edit.add_process(0, pid, pid, follow=False)
    nvml = client()
    nvml("class Short(Structure): _fields_ = [('pid', c_uint), ('used', c_ulonglong)]")
    nvml("count, infos = c_uint(3), (Short * 4)()")
    nvml("call = pynvml._nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses')")
    assert nvml("call(h, byref(count), infos)") == 0
    assert nvml("[(p.pid, p.used) for p in infos]") == [
        [7, 7 * MIB],
        [8, 8 * MIB],
        [9, 9 * MIB],
        [0, 0],
    ]


def test_a_short_buffer_is_told_the_size(client: Client, cards: SimulatedCards) -> None:
    with cards.edit() as edit:
        for pid in (7, 8, 9):
            edit.add_process(0, pid, 1, follow=False)
    nvml = client()
    nvml("count, infos = c_uint(2), (c_nvmlProcessInfo_v2_t * 2)()")
    nvml("call = pynvml._nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses_v3')")
    assert nvml("call(h, byref(count), infos)") == 7
    assert nvml("count.value") == 3


def test_utilisation_of_card_and_processes(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    assert nvml("nvmlDeviceGetUtilizationRates(h)") == {"gpu": 0, "memory": 0}
    assert nvml("nvmlDeviceGetPerformanceState(h)") == 8
    assert code(nvml, "nvmlDeviceGetProcessUtilization(h, 0)") == 6  # nobody computes
    with cards.edit() as edit:
        edit.set_utilisation(0, 5, memory=30)
        edit.add_process(0, 100, 10, sm=60, follow=False)
        edit.add_process(0, 101, 10, sm=70, follow=False)
        edit.add_process(0, 102, 10, follow=False)
    assert nvml("nvmlDeviceGetUtilizationRates(h)") == {"gpu": 100, "memory": 30}
    assert nvml("nvmlDeviceGetPerformanceState(h)") == 0
    samples = nvml("nvmlDeviceGetProcessUtilization(h, 0)")
    assert [(s["pid"], s["smUtil"]) for s in samples] == [(100, 60), (101, 70)]
    infos = nvml("nvmlDeviceGetProcessesUtilizationInfo(h, 0)")
    assert [(s["pid"], s["smUtil"]) for s in infos] == [(100, 60), (101, 70)]
    in_future = samples[0]["timeStamp"] + 60_000_000
    assert code(nvml, f"nvmlDeviceGetProcessUtilization(h, {in_future})") == 6


def test_ecc_and_repair_of_each_generation(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    total = "nvmlDeviceGetTotalEccErrors(h, NVML_MEMORY_ERROR_TYPE_{}, NVML_{}_ECC)"
    assert nvml("nvmlDeviceGetEccMode(h)") == [1, 1]
    with cards.edit() as edit:
        edit.raise_ecc(0, corrected=True, count=3)
        edit.raise_ecc(0, corrected=False)
        edit.change_card(0, retired_double=2, retired_pending=True)
        edit.change_card(1, remap_uncorrected=1, remap_pending=True, remap_failure=True)
    assert nvml(total.format("CORRECTED", "VOLATILE")) == 3
    assert nvml(total.format("UNCORRECTED", "AGGREGATE")) == 1
    with cards.edit() as edit:
        edit.restore_card(0)
    assert nvml(total.format("CORRECTED", "VOLATILE")) == 0
    assert nvml(total.format("CORRECTED", "AGGREGATE")) == 3
    assert nvml("nvmlDeviceGetRemappedRows(h1)") == [0, 1, 1, 1]
    assert len(nvml("nvmlDeviceGetRetiredPages(h, 1)")) == 2
    assert nvml("nvmlDeviceGetRetiredPages(h, 0)") == []
    assert nvml("nvmlDeviceGetRetiredPagesPendingStatus(h)") == 1
    assert code(nvml, "nvmlDeviceGetRemappedRows(h)") == 3  # a T4 retires pages
    assert code(nvml, "nvmlDeviceGetRetiredPages(h1, 0)") == 3  # an A10 remaps rows
    with cards.edit() as edit:
        edit.change_card(0, ecc=False)
    assert nvml("nvmlDeviceGetEccMode(h)") == [0, 0]
    assert code(nvml, total.format("CORRECTED", "VOLATILE")) == 3


def test_the_rest_of_a_card(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    with cards.edit() as edit:
        edit.change_card(0, temperature=91, power_mw=69000)
    assert nvml("nvmlDeviceGetTemperature(h, NVML_TEMPERATURE_GPU)") == 91
    assert nvml("nvmlDeviceGetTemperatureV(h, NVML_TEMPERATURE_GPU)") == 91
    assert nvml("nvmlDeviceGetPowerUsage(h)") == 69000
    assert nvml("nvmlDeviceGetEnforcedPowerLimit(h)") == 70000
    assert nvml("nvmlDeviceGetPersistenceMode(h)") == 1
    assert nvml("list(nvmlDeviceGetMemoryAffinity(h1, 1, 0))") == [1 << 1]
    assert nvml("nvmlDeviceGetMaxMigDeviceCount(h)") == 0
    assert code(nvml, "nvmlDeviceGetMigMode(h)") == 3
    assert code(nvml, "nvmlDeviceGetNumaNodeId(h)") == 3


def test_compute_mode_belongs_to_the_card(client: Client, cards: SimulatedCards) -> None:
    nvml = client()
    assert nvml("nvmlDeviceGetComputeMode(h)") == 0
    if nvml("__import__('os').geteuid()") != 0:
        assert code(nvml, "nvmlDeviceSetComputeMode(h, 3)") == 4
        return
    nvml("nvmlDeviceSetComputeMode(h, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)")
    assert client()("nvmlDeviceGetComputeMode(h)") == cards.compute_mode(0) == 3
    assert client()("nvmlDeviceGetComputeMode(h1)") == cards.compute_mode(1) == 0
    assert code(nvml, "nvmlDeviceSetComputeMode(h, 4)") == 2


def test_a_name_with_every_kind_of_byte(client: Client, cards: SimulatedCards) -> None:
    name = 'A "B" 100% = ü\tend'
    with cards.edit() as edit:
        edit.change_card(0, name=name)
    assert client()("nvmlDeviceGetName(h)") == name


def test_calls_that_the_library_lacks(client: Client) -> None:
    nvml = client()
    assert code(nvml, "nvmlDeviceGetFanSpeed(h)") == 13
    assert code(nvml, "nvmlDeviceGetRunningProcessDetailList(h, 0x1000018, 0)") == 13


def test_error_texts(client: Client) -> None:
    nvml = client()
    assert nvml("nvmlErrorString(15)") == "GPU is lost"
    assert nvml("nvmlErrorString(999)") == "Unknown Error"
    assert nvml("nvmlErrorString(0)") == "Success"


def test_init_and_shutdown_are_counted(client: Client) -> None:
    nvml = client(init=False)
    nvml("pynvml._LoadNvmlLibrary()")
    assert code(nvml, "nvmlDeviceGetCount()") == 1
    assert code(nvml, "nvmlShutdown()") == 1
    nvml("nvmlInit()")
    nvml("nvmlInitWithFlags(NVML_INIT_FLAG_NO_GPUS)")
    nvml("nvmlShutdown()")
    assert nvml("nvmlDeviceGetCount()") == 2
    nvml("nvmlShutdown()")
    assert code(nvml, "nvmlDeviceGetCount()") == 1


def test_the_library_runs_on_the_oldest_c_library_of_our_images(nvml_library: Path) -> None:
    needed = re.findall(rb"GLIBC_2\.(\d+)\0", nvml_library.read_bytes())
    assert max(int(minor) for minor in needed) <= 36  # Debian 12
