"""What the NVML stand-in answers from, as Python values, and its text form.

The text form is described in playground/nvml/state.h: one line per thing, ``key=value`` fields.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

Kind = Literal["compute", "graphics", "mps"]
TEXT_LIMIT = 95  # bytes that a text has room for in the library
_HEX: dict[str, Any] = {"hex": True}


@dataclass(frozen=True, slots=True)
class SimulatedCard:
    """One card. Memory is in MiB, power in mW, temperature in °C, utilisation in percent.

    ``reserved`` is what the driver keeps for itself. ``numa`` is -1 where the platform does not
    say. ``remapping`` cards remap broken memory rows (Ampere and later), ``retirement`` cards
    retire pages (before).
    """

    uuid: str
    minor: int
    name: str
    memory: int
    reserved: int = 0
    serial: str = ""
    pci_domain: int = field(default=0, metadata=_HEX)
    pci_bus: int = field(default=0, metadata=_HEX)
    pci_device: int = field(default=0, metadata=_HEX)
    pci_id: int = field(default=0, metadata=_HEX)
    pci_subsystem: int = field(default=0, metadata=_HEX)
    cc_major: int = 7
    cc_minor: int = 5
    numa: int = -1
    gpu_util: int = 0
    memory_util: int = 0
    temperature: int = 34
    power_mw: int = 15000
    power_limit_mw: int = 70000
    persistence: bool = True
    lost: bool = False
    ecc: bool = True
    ecc_corrected_volatile: int = 0
    ecc_corrected_aggregate: int = 0
    ecc_uncorrected_volatile: int = 0
    ecc_uncorrected_aggregate: int = 0
    remapping: bool = False
    remap_corrected: int = 0
    remap_uncorrected: int = 0
    remap_pending: bool = False
    remap_failure: bool = False
    retirement: bool = False
    retired_single: int = 0
    retired_double: int = 0
    retired_pending: bool = False

    @property
    def pci_address(self) -> str:
        return f"{self.pci_domain:08X}:{self.pci_bus:02X}:{self.pci_device:02X}.0"


@dataclass(frozen=True, slots=True)
class SimulatedProcess:
    """A process that holds ``memory`` MiB of a card; ``pid`` is the node's, not a container's.

    ``start`` (clock ticks after boot, /proc/PID/stat) ties the entry to one living process: it is
    reported only while that process runs. 0 reports it whether or not such a process exists.
    """

    uuid: str
    pid: int
    memory: int
    kind: Kind = "compute"
    start: int = 0
    sm: int = 0
    mem: int = 0
    enc: int = 0
    dec: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """An NVML event: ``type`` is one nvmlEventType bit, ``data`` the XID for XID events."""

    seq: int
    uuid: str
    type: int
    data: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """Calls of this name ("*": all) wait ``hang`` seconds, then return ``result`` if not 0."""

    call: str
    uuid: str = ""
    result: int = 0
    hang: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedState:
    """Everything the library knows.

    ``devices`` is the folder where the library looks for nvidiactl and nvidiaN ("": found from
    the library's own place). ``pidns`` is the inode of the pid namespace that the pids are of:
    callers in another one are told of no process. 0 tells everyone.
    """

    driver: str = "570.172.08"
    nvml: str = "12.570.172.08"
    cuda: int = 12080
    devices: str = ""
    pidns: int = 0
    cards: tuple[SimulatedCard, ...] = ()
    processes: tuple[SimulatedProcess, ...] = ()
    events: tuple[SimulatedEvent, ...] = ()
    faults: tuple[SimulatedFault, ...] = ()


_LINES: dict[str, tuple[str, type]] = {
    "card": ("cards", SimulatedCard),
    "process": ("processes", SimulatedProcess),
    "event": ("events", SimulatedEvent),
    "fault": ("faults", SimulatedFault),
}
_LISTS = {attribute for attribute, _ in _LINES.values()}


def encode(state: SimulatedState) -> str:
    """The state file's text. Raises ValueError for a text or number that the library cannot hold."""
    lines = ["system " + _fields(state)]
    for kind, (attribute, _) in _LINES.items():
        lines += [f"{kind} {_fields(item)}" for item in getattr(state, attribute)]
    return "\n".join(lines) + "\n"


def decode(text: str) -> SimulatedState:
    """The state of such a text. Raises ValueError that names the line."""
    system: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {attribute: [] for attribute in _LISTS}
    for number, line in enumerate(text.splitlines(), 1):
        kind, _, words = line.partition(" ")
        try:
            if kind == "system":
                system = _read(SimulatedState, words)
            elif kind in _LINES:
                attribute, of = _LINES[kind]
                lists[attribute].append(of(**_read(of, words)))
            else:
                raise ValueError(f"unknown kind {kind!r}")
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {number}: {error}") from None
    system |= {attribute: tuple(items) for attribute, items in lists.items()}
    return SimulatedState(**system)


def _fields(item: Any) -> str:
    return " ".join(
        f"{f.name}={_value(getattr(item, f.name), f)}"
        for f in dataclasses.fields(item)
        if f.name not in _LISTS
    )


def _value(value: object, of: dataclasses.Field[Any]) -> str:
    match value:
        case bool():
            return "1" if value else "0"
        case int():
            if not (0 <= value < 2**63 or (of.name == "numa" and value == -1)):
                raise ValueError(f"{of.name}={value} is out of range")
            return f"{value:x}" if of.metadata else str(value)
        case float():
            return f"{value:.3f}"
        case _:
            raw = str(value).encode()
            if len(raw) > TEXT_LIMIT and of.name != "devices":
                raise ValueError(f"{of.name} is longer than {TEXT_LIMIT} bytes: {value!r}")
            return re.sub(rb"[^!-$&-~]", lambda m: b"%%%02X" % m[0][0], raw).decode()


def _read(of: type, words: str) -> dict[str, Any]:
    fields = {f.name: f for f in dataclasses.fields(of)}
    values: dict[str, Any] = {}
    for word in words.split(" "):
        key, equals, text = word.partition("=")
        if not equals or key not in fields:
            raise ValueError(f"unknown field {word!r}")
        values[key] = _typed(fields[key], text)
    return values


def _typed(of: dataclasses.Field[Any], text: str) -> object:
    match of.type:  # annotations are texts here
        case "int":
            return int(text, 16 if of.metadata else 10)
        case "bool":
            return text == "1"
        case "float":
            return float(text)
        case _:
            return unquote(text)
