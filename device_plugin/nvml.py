"""The cards through NVIDIA's management library, by nvidia-ml-py (module pynvml).

Calls and return codes: NVML API Reference Guide. Nothing here may run on the event loop.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml

from device_plugin.physical_card import Driver, DriverReplaced, NoDriver, PhysicalCard, XidEvent

log = logging.getLogger(__name__)

_SONAME = "libnvidia-ml.so.1"
# Where distributions, the gpu-operator's driver container and WSL keep the driver's libraries.
_FOLDERS = (
    "usr/lib/*-linux-gnu",
    "usr/lib/*-linux-gnu/nvidia/current",
    "usr/lib64",
    "usr/lib64/nvidia",
    "usr/lib/wsl/lib",
    "usr/lib",
    "lib/*-linux-gnu",
    "lib64",
    "opt/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
)
_MIB = 1024 * 1024


def find_library(driver_root: str) -> Path | None:
    """The management library under ``driver_root``."""
    for folder in _FOLDERS:
        for found in sorted(glob.glob(f"{glob.escape(driver_root)}/{folder}/{_SONAME}")):
            return Path(found)
    return None


class Nvml:
    """The driver's library as a source of cards."""

    def __init__(self, driver_root: str = "/") -> None:
        self._driver_root = driver_root
        self._open = self._was_open = False
        self._events: Any = None

    def open(self) -> Driver:
        """Load and start the library. Raises NoDriver, with the setting that mends it."""
        if not self._open:
            self._load()
            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as error:
                raise self._no_driver(error) from None
            self._open = self._was_open = True
        version = _optional(pynvml.nvmlSystemGetDriverVersion, "")
        cuda = _optional(pynvml.nvmlSystemGetCudaDriverVersion_v2, 0)
        return Driver(str(version), f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "")

    def close(self) -> None:
        """Stop the library; a call to a dead driver may fail, and that is all right here."""
        with contextlib.suppress(pynvml.NVMLError):
            if self._events is not None:
                pynvml.nvmlEventSetFree(self._events)
        self._events = None
        with contextlib.suppress(pynvml.NVMLError):
            if self._open:
                pynvml.nvmlShutdown()
        self._open = False

    def cards(self) -> list[PhysicalCard]:
        """All cards that the library counts. A card that fails while it is probed says so."""
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise self._no_driver(error) from None
        found = []
        for index in range(count):
            try:
                found.append(_card(index))
            except pynvml.NVMLError as error:
                # Without its uuid a card cannot be told from others: it is missing, thus lost.
                log.warning("card %d cannot be asked: %s", index, error)
        return found

    def watch(self, uuids: Sequence[str]) -> list[str]:
        """Listen for XID errors of these cards; the answer is who cannot be listened to."""
        events = pynvml.nvmlEventSetCreate()
        deaf = []
        for uuid in uuids:
            try:
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                wanted = pynvml.nvmlEventTypeXidCriticalError
                if not pynvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted:
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
                pynvml.nvmlDeviceRegisterEvents(handle, wanted, events)
            except pynvml.NVMLError:
                deaf.append(uuid)
        self._events = events
        return deaf

    def wait(self, seconds: float) -> XidEvent | None:
        """The next XID error, or None."""
        events = self._events
        if events is None:
            raise NoDriver("nothing is watched")
        try:
            event = pynvml.nvmlEventSetWait_v2(events, int(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise NoDriver(f"NVML events: {error}") from None
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None
        uuid = _optional(lambda: pynvml.nvmlDeviceGetUUID(event.device), "")
        return XidEvent(str(uuid), int(event.eventData))

    def _load(self) -> None:
        # nvidia-ml-py opens the library by its SONAME; one that is loaded already is found so.
        path = find_library(self._driver_root)
        if path is None and self._driver_root not in ("", "/"):
            raise NoDriver(
                f"there is no {_SONAME} under {self._driver_root}: install the NVIDIA driver on the "
                "node, or set DevicePlugin.driver_root to where its files are"
            )
        if path is not None:
            try:
                ctypes.CDLL(str(path))
            except OSError as error:
                raise NoDriver(f"{path} cannot be loaded: {error}") from None

    def _no_driver(self, error: pynvml.NVMLError) -> NoDriver:
        if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH and self._was_open:
            return DriverReplaced(f"NVML: {error}; the loaded library is of the driver before")
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return NoDriver(
                f"there is no {_SONAME}: install the NVIDIA driver on the node, or set "
                "DevicePlugin.driver_root to where its files are"
            )
        return NoDriver(f"NVML: {error}; look at 'dmesg' and 'nvidia-smi' on the node")


def _card(index: int) -> PhysicalCard:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    pci = _text(_optional(lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId, ""))
    capability = _optional(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle), ())
    return PhysicalCard(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        minor=pynvml.nvmlDeviceGetMinorNumber(handle),
        model=_text(pynvml.nvmlDeviceGetName(handle)),
        memory=pynvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB,
        pci=pci,
        capability=".".join(map(str, capability)),
        numa=_numa(pci),
        problem=_problem(handle),
    )


def _problem(handle: Any) -> str:
    """What a healthy card would not answer. Calls that this model does not support say nothing."""
    if _mig(handle):
        return "MIG is on: it is partitioned already; switch MIG off to share it here"
    uncorrected = _optional(
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
        0,
    )
    if uncorrected:
        return f"{uncorrected} uncorrectable ECC error(s) since the driver was loaded; reset it"
    rows = _optional(lambda: pynvml.nvmlDeviceGetRemappedRows(handle), None)
    if rows is not None:
        _, _, pending, failed = rows
        if failed:
            return "a row of its memory could not be remapped: replace the card"
        if pending:
            return "rows of its memory wait to be remapped: reset the card"
    if _optional(lambda: pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle), 0):
        return "pages of its memory wait to be retired: reset the card"
    return ""


def _numa(pci: str) -> int:
    # NVML's own call for it is younger than the drivers in the field. sysfs writes four digits
    # of the PCI domain, NVML eight.
    domain, _, rest = pci.lower().partition(":")
    try:
        return int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text())
    except (OSError, ValueError):
        return -1


def _mig(handle: Any) -> bool:
    mode = _optional(lambda: pynvml.nvmlDeviceGetMigMode(handle), None)
    return bool(mode and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def _optional(call: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return call()
    except pynvml.NVMLError as error:
        # Also in older drivers' libraries: a function that they lack.
        absent = (
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_NO_PERMISSION,
            pynvml.NVML_ERROR_INVALID_ARGUMENT,
            pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            pynvml.NVML_ERROR_NOT_FOUND,
        )
        if error.value in absent:
            return otherwise
        raise


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
