"""Numbers and times as the dashboard writes them. Pure."""

from __future__ import annotations

from gpushare.units import human_mib


def gib(mib: int) -> str:
    """'7', '2.1': GiB with one decimal where it says something."""
    return f"{round(mib / 1024, 1):g}"


def of_gib(part: int, whole: int) -> str:
    """'11 of 30 GiB'."""
    return f"{gib(part)} of {gib(whole)} GiB"


def duration(seconds: float | None) -> str:
    """'40 s', '12 min', '2 h', '3 days'; '' for None."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    for most, unit, name in ((60, 1, "s"), (5400, 60, "min"), (172800, 3600, "h")):
        if seconds < most:
            return f"{round(seconds / unit)} {name}"
    return f"{round(seconds / 86400)} days"


def share(part: float, whole: float) -> int:
    """Whole per cent; 0 of nothing is 0."""
    return round(100 * part / whole) if whole > 0 else 0


def counted(number: int, one: str, many: str = "") -> str:
    """'1 node', '2 nodes'."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def size(mib: int, percent: int) -> str:
    """A slice: '7 GiB', '7 GiB and 30 % of the compute', '2 GiB, 25 %'."""
    return f"{human_mib(mib)}, {percent} %" if percent else human_mib(mib)
