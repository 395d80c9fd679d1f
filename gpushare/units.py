"""Units of card memory: what one ``gpu-mem`` counts.

The unit of a cluster is a setting (GiB by default, any whole number of MiB if wanted). Inside,
everything is MiB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SUFFIX_MIB = {"MiB": 1, "GiB": 1024, "Mi": 1, "Gi": 1024}


@dataclass(frozen=True, slots=True)
class Unit:
    """A step of ``mib`` MiB."""

    mib: int = 1024

    def __post_init__(self) -> None:
        if self.mib < 1:
            raise ValueError(
                f"a unit of {self.mib} MiB is not a size: use 'GiB' or for example '256MiB'"
            )

    @classmethod
    def parse(cls, text: str) -> Unit:
        """Read 'GiB', 'MiB', '256MiB' or '2GiB'. Raises ValueError with the fix."""
        match = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]+)\s*", text)
        if match is None or match[2] not in _SUFFIX_MIB:
            raise ValueError(
                f"unit {text!r} is not known: use 'GiB', 'MiB' or a step such as '256MiB'"
            )
        return cls(int(match[1] or "1") * _SUFFIX_MIB[match[2]])

    def units(self, mib: int) -> int:
        """How many whole units ``mib`` MiB hold."""
        return max(0, mib) // self.mib

    def __str__(self) -> str:
        if self.mib == 1024:
            return "GiB"
        if self.mib == 1:
            return "MiB"
        return f"{self.mib // 1024}GiB" if self.mib % 1024 == 0 else f"{self.mib}MiB"


GIB = Unit(1024)


def human_mib(mib: int) -> str:
    """A size for people: '7 GiB', '22.5 GiB', '512 MiB'."""
    if abs(mib) < 1024:
        return f"{mib} MiB"
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib / 1024:.1f} GiB"
