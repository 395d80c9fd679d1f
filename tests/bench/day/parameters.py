"""The assumptions, read from parameters.yaml beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("parameters.yaml")


@dataclass(frozen=True, slots=True)
class Spread:
    """A log-normal time: ``median`` in minutes."""

    median: float
    sigma: float


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of card in the pool."""

    model: str
    cards: int
    memory_mib: int
    per_node: int


@dataclass(frozen=True, slots=True)
class Parameters:
    """All of the file. Times in minutes."""

    days: int
    seed: int
    pool: tuple[Kind, ...]
    users: int
    sessions_weekday: float
    sessions_weekend: float
    by_hour: tuple[float, ...]
    choices: Mapping[str, float]
    work: Spread
    active: Spread
    pause: Spread
    gpu_in_active: float
    silent_chance: float
    silent: Spread
    stops: float
    forgotten: Spread
    memory_used: float
    patience: Spread
    reacts: float

    @property
    def end(self) -> float:
        """The last minute."""
        return self.days * 1440.0

    @property
    def cards(self) -> int:
        return sum(kind.cards for kind in self.pool)


def read(file: Path = FILE) -> Parameters:
    """Raises KeyError or ValueError for a file that is not like the one beside this module."""
    data: dict[str, Any] = yaml.safe_load(file.read_text())
    people, session, waiting = data["people"], data["session"], data["waiting"]
    silent = session["silent_run"]
    return Parameters(
        days=data["days"],
        seed=data["seed"],
        pool=tuple(Kind(model=name, **kind) for name, kind in data["pool"].items()),
        users=people["users"],
        sessions_weekday=people["sessions_weekday"],
        sessions_weekend=people["sessions_weekend"],
        by_hour=tuple(people["by_hour"]),
        choices=dict(data["choices"]),
        work=Spread(**session["work"]),
        active=Spread(**session["active"]),
        pause=Spread(**session["pause"]),
        gpu_in_active=session["gpu_in_active"],
        silent_chance=silent["chance"],
        silent=Spread(silent["median"], silent["sigma"]),
        stops=session["stops"],
        forgotten=Spread(**session["forgotten"]),
        memory_used=session["memory_used"],
        patience=Spread(**waiting["patience"]),
        reacts=waiting["reacts"],
    )
