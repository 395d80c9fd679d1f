"""Counts as the Kubernetes API writes them.

The API server canonicalises quantities: 3000 comes back as "3k". Extended resources are whole
numbers, so anything else is refused.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(?:([eE][+]?\d{1,2})|(k|M|G|T|Ki|Mi|Gi|Ti))?")
_FACTOR = {
    None: 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def parse_count(value: object) -> int:
    """A non-negative whole number from a Kubernetes quantity ("7", "3k", 7).

    Raises ValueError for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a whole number")
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"{value} is negative")
        return value
    match = _QUANTITY.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a whole number")
    number = Decimal(match[1] + (match[2] or "")) * _FACTOR[match[3]]
    if number != int(number):
        raise ValueError(f"{value!r} is not a whole number")
    return int(number)


def parse_milli(value: object) -> int:
    """An amount such as CPU in thousandths ("500m", "2", 0.5), rounded up.

    Raises ValueError for anything else.
    """
    text = str(value).strip() if isinstance(value, int | float | str) else ""
    milli = re.fullmatch(r"(\d{1,18})m", text)
    if milli:
        return int(milli[1])
    match = _QUANTITY.fullmatch(text)
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is not an amount")
    number = Decimal(match[1] + (match[2] or "")) * _FACTOR[match[3]] * 1000
    return int(number.to_integral_value(ROUND_CEILING))
