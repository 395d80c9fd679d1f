"""Measured figures: printed for people, kept as JSON for programs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path("build", "bench")


@dataclass(frozen=True)
class Figure:
    """One measured value, and what it is held against."""

    name: str
    size: str
    value: float
    unit: str
    compared_with: str = ""


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that ``percent`` per cent of ``values`` do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def spread(name: str, size: str, values: Sequence[float], unit: str) -> list[Figure]:
    """Median and 99th percentile of ``values``."""
    return [
        Figure(f"{name} p50", size, statistics.median(values), unit),
        Figure(f"{name} p99", size, percentile(values, 99), unit),
    ]


def publish(suite: str, figures: Sequence[Figure]) -> None:
    """Print the figures and write build/bench/<suite>.json."""
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        against = f"   ({figure.compared_with})" if figure.compared_with else ""
        print(
            f"{figure.name:{width}}  {figure.size:>12}  {figure.value:10.2f} {figure.unit}{against}"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{suite}.json"
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    print(f"written to {path}")
