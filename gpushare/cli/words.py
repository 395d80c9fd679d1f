"""Times, places and amounts as the command line says them."""

from __future__ import annotations

from gpushare.units import human_mib


def since(seconds: float) -> str:
    """A span in its largest unit: '40 s', '3 min', '5 h', '2 d'."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return f"{max(0, int(seconds))} s"


def ordinal(number: int) -> str:
    """'1st', '2nd', '3rd', '11th'."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{suffix or 'th'}"


def amount(mib: int, percent: int) -> str:
    """What a slice is: '7 GiB', '7 GiB and 40 %'."""
    return f"{human_mib(mib)} and {percent} %" if percent else human_mib(mib)
