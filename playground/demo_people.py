"""Who takes part in the demo, and what each of them chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpushare.names import Names

_NAMES = Names()


@dataclass(frozen=True, slots=True)
class Person:
    """A user, the options chosen in the Hub's form, and the limits that these must become."""

    name: str
    profile: str
    slice: str
    limits: Mapping[str, int]
    model: str

    @property
    def options(self) -> dict[str, str]:
        return {"profile": self.profile, "slice": self.slice}


def _mem(units: int) -> dict[str, int]:
    return {_NAMES.gpu_mem: units}


def _percent(percent: int) -> dict[str, int]:
    return {_NAMES.gpu_percent: percent}


# Alice and bob ask for the same, and so do erin and frank. Four on two T4s: some must share.
PEOPLE = (
    Person("alice", "t4", "7g", _mem(7), "T4"),
    Person("bob", "t4", "7g", _mem(7), "T4"),
    Person("carol", "t4", "3g", _mem(3), "T4"),
    Person("dave", "t4", "50p", _percent(50), "T4"),
    Person("erin", "a10", "11g", _mem(11), "A10"),
    Person("frank", "a10", "11g", _mem(11), "A10"),
    Person("grace", "a10", "5g", _mem(5), "A10"),
    Person("heidi", "a10", "whole", _percent(100), "A10"),
)


def guests(models: Iterable[str]) -> tuple[Person, ...]:
    """Who takes part on a cluster with cards of these models ('Tesla T4', 'NVIDIA A10').

    Those whose model there is; where it has neither T4 nor A10, the first four on any card.
    """
    words = {word for model in models for word in model.split()}
    known = tuple(person for person in PEOPLE if person.model in words)
    if known or not words:
        return known
    return tuple(replace(person, model="") for person in PEOPLE[:4])
