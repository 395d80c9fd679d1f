"""What a check says: how bad it is, what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpushare.cli.doctor.facts import Facts


class Level(StrEnum):
    """How bad it is. ``UNKNOWN``: it could not be looked at."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. ``fix`` is what to do, '' where nothing is to be done."""

    level: Level
    text: str
    fix: str = ""


def error(text: str, fix: str) -> Finding:
    """Something does not work."""
    return Finding(Level.ERROR, text, fix)


def warning(text: str, fix: str) -> Finding:
    """It works, but not for long, or not as one would think."""
    return Finding(Level.WARNING, text, fix)


Look = Callable[[Facts], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """``look`` yields what is wrong, nothing where all is well. ``needs`` are the facts that it
    reads, by the names that Facts.missing has."""

    name: str
    title: str
    look: Look
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """One check and what it found; never empty."""

    check: Check
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst."""
        return max((finding.level for finding in self.findings), key=list(Level).index)


def examine(facts: Facts, checks: Iterable[Check]) -> list[Result]:
    """Run all checks."""
    return [Result(check, _findings(facts, check)) for check in checks]


def _findings(facts: Facts, check: Check) -> tuple[Finding, ...]:
    lacking = [facts.missing[need] for need in check.needs if need in facts.missing]
    if lacking:
        return (Finding(Level.UNKNOWN, f"cannot be checked: {'; '.join(lacking)}"),)
    try:
        return tuple(check.look(facts)) or (Finding(Level.OK, "all is well"),)
    except (KeyError, TypeError, ValueError, AttributeError) as odd:
        # An object that looks like none we know must not hide what the other checks find.
        return (Finding(Level.UNKNOWN, f"cannot be checked: {type(odd).__name__}: {odd}"),)
