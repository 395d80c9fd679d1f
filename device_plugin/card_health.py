"""Whether a card is well, as a pure state machine: events and probes in, health out.

XID numbers are the driver's error codes (NVIDIA, "XID Errors"). Some only tell that a program
did wrong; after any other one the card is not given to anybody until it has proved itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpushare.cards import HEALTHY

# Errors of the program, not of the card: 13 graphics engine exception, 31 memory page fault,
# 43 stopped processing, 45 preemptive clean-up, 68 video processor exception, 109 context switch
# timeout. The same list as that of NVIDIA's own device plugin.
PROGRAM_ERRORS = frozenset({13, 31, 43, 45, 68, 109})

_MEANING = {
    48: "uncorrectable memory error",
    63: "memory row remapping",
    64: "memory row remapping failed",
    74: "NVLink error",
    79: "fell off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "its system processor does not answer",
    120: "its system processor failed",
}
CORDONED = "cordoned"
LOST = "it does not answer any more: lost, or removed"


@dataclass(frozen=True, slots=True)
class Rules:
    """``recover_after`` clean probes in a row end an XID's verdict; 0: only an operator's word does."""

    ignored: frozenset[int] = PROGRAM_ERRORS
    recover_after: int = 6


@dataclass(frozen=True, slots=True)
class Health:
    """One card's state. The reasons that speak against it, each with the time it began."""

    probe: str = ""
    probe_since: datetime | None = None
    xid: int = 0
    xid_at: datetime | None = None
    clean: int = 0
    blamed: str = ""
    cordoned: bool = False
    ignored_xids: int = field(default=0, compare=False)

    def text(self) -> str:
        """'ok', or all that speaks against the card."""
        reasons = []
        if self.xid:
            meaning = _MEANING.get(self.xid, "see NVIDIA's list of XID errors")
            reasons.append(f"XID {self.xid} ({meaning}){_at(self.xid_at)}")
        if self.probe:
            reasons.append(self.probe + _since(self.probe_since))
        if self.blamed:
            reasons.append(self.blamed)
        if self.cordoned:
            reasons.append(CORDONED)
        return "; ".join(reasons)[:200] or HEALTHY

    @property
    def usable(self) -> bool:
        """Whether containers that are placed on it may still start: a cordon keeps out new ones only."""
        return not self.xid and not self.probe and not self.blamed


def after_xid(health: Health, xid: int, now: datetime, rules: Rules) -> Health:
    """The driver reported ``xid``."""
    if xid in rules.ignored:
        return replace(health, ignored_xids=health.ignored_xids + 1)
    return replace(health, xid=xid, xid_at=now, clean=0)


def after_probe(health: Health, problem: str, now: datetime, rules: Rules) -> Health:
    """A probe found ``problem``, or nothing."""
    if problem:
        since = health.probe_since if health.probe == problem else now
        return replace(health, probe=problem, probe_since=since, clean=0)
    clean = health.clean + 1
    recovered = health.xid != 0 and 0 < rules.recover_after <= clean
    if recovered:
        return replace(health, probe="", probe_since=None, xid=0, xid_at=None, clean=0)
    return replace(health, probe="", probe_since=None, clean=clean)


def pardoned(health: Health) -> Health:
    """An operator says that the card is well: its XID counts no more, what probes see does."""
    return replace(health, xid=0, xid_at=None, clean=0)


def parse_xids(ignored: Iterable[int], counted: Iterable[int]) -> frozenset[int]:
    """The XIDs to ignore: the standard list and ``ignored``, but none of ``counted``."""
    return (PROGRAM_ERRORS | frozenset(ignored)) - frozenset(counted)


def _at(when: datetime | None) -> str:
    return f" at {_stamp(when)}" if when else ""


def _since(when: datetime | None) -> str:
    return f" (since {_stamp(when)})" if when else ""


def _stamp(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
