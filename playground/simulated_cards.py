"""Changing the simulated cards while the stand-in library answers from them."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from playground.simulated_state import (
    Kind,
    SimulatedCard,
    SimulatedEvent,
    SimulatedFault,
    SimulatedProcess,
    SimulatedState,
    decode,
    encode,
)

EVENT_SINGLE_BIT_ECC = 0x1
EVENT_DOUBLE_BIT_ECC = 0x2
EVENT_XID = 0x8
XID_FALLEN_OFF_THE_BUS = 79
_EVENTS_KEPT = 64


class SimulatedCards:
    """The state file of one node's cards.

    ``with cards.edit() as edit:`` changes it: under a lock that other editors wait for, and all
    changes of one block become visible at once. Readers never see half a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> SimulatedState:
        return decode(self.path.read_text())

    def write(self, state: SimulatedState) -> None:
        """Replace the whole state."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self._replace(state)

    @contextmanager
    def edit(self) -> Iterator[CardsEdit]:
        """Nothing is written when the block raises. Processes that have ended are left out."""
        with self._lock():
            before = self.read()
            edit = CardsEdit(replace(before, processes=tuple(filter(_lives, before.processes))))
            yield edit
            if edit.state != before:
                self._replace(edit.state)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with self.path.with_name(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _replace(self, state: SimulatedState) -> None:
        text = encode(state)
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=".state-")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            os.fchmod(descriptor, 0o644)  # containers read it as whatever user they run as
        Path(name).replace(self.path)

    def compute_mode(self, card: str | int) -> int:
        """The mode that somebody set on a card with nvmlDeviceSetComputeMode (0: default)."""
        uuid = CardsEdit(self.read()).card(card).uuid
        path = self.path.with_name(f"compute-mode.{uuid}")
        return int(path.read_text()) if path.exists() else 0


class CardsEdit:
    """Operations on a state. A card is named by its uuid or its minor number."""

    def __init__(self, state: SimulatedState) -> None:
        self.state = state

    def card(self, card: str | int) -> SimulatedCard:
        """Raises KeyError for a card that is not there."""
        for known in self.state.cards:
            if card in (known.uuid, known.minor):
                return known
        raise KeyError(f"no simulated card {card!r}")

    # --- cards

    def add_card(self, card: SimulatedCard) -> None:
        """Seen by the library at its next nvmlInit, as a card plugged in would be."""
        if any(c.uuid == card.uuid or c.minor == card.minor for c in self.state.cards):
            raise ValueError(f"a card {card.uuid} or with minor {card.minor} is there already")
        self.state = replace(self.state, cards=(*self.state.cards, card))

    def remove_card(self, card: str | int) -> None:
        uuid = self.card(card).uuid
        self.state = replace(
            self.state,
            cards=tuple(c for c in self.state.cards if c.uuid != uuid),
            processes=tuple(p for p in self.state.processes if p.uuid != uuid),
        )

    def change_card(self, card: str | int, **changes: Any) -> None:
        """Set any field of a card: ``change_card(0, temperature=91, power_mw=70000)``."""
        old = self.card(card)
        new = replace(old, **changes)
        self.state = replace(
            self.state, cards=tuple(new if c is old else c for c in self.state.cards)
        )

    def set_utilisation(self, card: str | int, gpu: int, memory: int = 0) -> None:
        """Percent that the card is busy beyond what its processes' own utilisation adds up to."""
        self.change_card(card, gpu_util=gpu, memory_util=memory)

    def lose_card(self, card: str | int, xid: int | None = XID_FALLEN_OFF_THE_BUS) -> None:
        """The card falls off the bus: XID 79 (None: silently), its processes die with it."""
        uuid = self.card(card).uuid
        if xid is not None:
            self.raise_xid(card, xid)
        self.change_card(card, lost=True)
        left = tuple(p for p in self.state.processes if p.uuid != uuid)
        self.state = replace(self.state, processes=left)

    def restore_card(self, card: str | int) -> None:
        """The card answers again, as after a reset: volatile error counts are zero."""
        self.change_card(card, lost=False, ecc_corrected_volatile=0, ecc_uncorrected_volatile=0)

    # --- processes

    def add_process(
        self,
        card: str | int,
        pid: int,
        memory: int,
        kind: Kind = "compute",
        *,
        sm: int = 0,
        follow: bool = True,
    ) -> None:
        """``pid`` now holds ``memory`` MiB of the card; called again it holds that much instead.

        With ``follow`` the process must be alive, and the card lets go of it when it ends, as a
        real one does. Without, the entry stays until it is removed.
        """
        uuid = self.card(card).uuid
        start = process_start(pid) if follow else 0
        new = SimulatedProcess(uuid, pid, memory, kind, start=start, sm=sm)
        others = tuple(p for p in self.state.processes if (p.uuid, p.pid) != (uuid, pid))
        self.state = replace(self.state, processes=(*others, new))

    def change_process(self, pid: int, **changes: Any) -> None:
        """Set fields of all entries of ``pid``: ``change_process(pid, memory=4096, sm=80)``."""
        if not any(p.pid == pid for p in self.state.processes):
            raise KeyError(f"no simulated process {pid}")
        changed = tuple(replace(p, **changes) if p.pid == pid else p for p in self.state.processes)
        self.state = replace(self.state, processes=changed)

    def remove_process(self, pid: int, card: str | int | None = None) -> None:
        """``pid`` lets go of the card (None: of every card). Harmless when it holds none."""
        uuid = None if card is None else self.card(card).uuid
        left = tuple(p for p in self.state.processes if p.pid != pid or (uuid and p.uuid != uuid))
        self.state = replace(self.state, processes=left)

    # --- events and errors

    def raise_event(self, card: str | int, type: int, data: int = 0) -> None:
        seq = 1 + max((e.seq for e in self.state.events), default=0)
        event = SimulatedEvent(seq, self.card(card).uuid, type, data)
        self.state = replace(self.state, events=(*self.state.events, event)[-_EVENTS_KEPT:])

    def raise_xid(self, card: str | int, xid: int) -> None:
        self.raise_event(card, EVENT_XID, xid)

    def raise_ecc(self, card: str | int, *, corrected: bool, count: int = 1) -> None:
        """``count`` memory errors: the counters grow, and one event is sent."""
        name = "corrected" if corrected else "uncorrected"
        of = self.card(card)
        changes = {
            key: getattr(of, key) + count
            for key in (f"ecc_{name}_volatile", f"ecc_{name}_aggregate")
        }
        self.change_card(card, **changes)
        self.raise_event(card, EVENT_SINGLE_BIT_ECC if corrected else EVENT_DOUBLE_BIT_ECC)

    # --- faults of the library itself

    def fail(self, call: str, result: int, card: str | int | None = None) -> None:
        """Let ``call`` ("nvmlInit", "nvmlDeviceGetMemoryInfo", "*") return this code."""
        self._fault(call, card, result, 0.0)

    def hang(
        self, call: str, seconds: float, card: str | int | None = None, result: int = 0
    ) -> None:
        """Let ``call`` block so long, or until the fault is cleared; then go on or fail."""
        self._fault(call, card, result, seconds)

    def clear_faults(self) -> None:
        self.state = replace(self.state, faults=())

    def _fault(self, call: str, card: str | int | None, result: int, hang: float) -> None:
        if call != "*" and not call.startswith("nvml"):
            raise ValueError(f"{call!r} is neither an nvml call nor '*'")
        uuid = "" if card is None else self.card(card).uuid
        fault = SimulatedFault(call, uuid, result, hang)
        others = tuple(f for f in self.state.faults if (f.call, f.uuid) != (call, uuid))
        self.state = replace(self.state, faults=(fault, *others))


def _lives(process: SimulatedProcess) -> bool:
    try:
        return not process.start or process.start == process_start(process.pid)
    except ProcessLookupError:
        return False


def process_start(pid: int) -> int:
    """Clock ticks after boot at which ``pid`` started. Raises ProcessLookupError if it has not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"no process {pid}: only a living one can hold a card") from None
    return int(text.rpartition(")")[2].split()[19])
