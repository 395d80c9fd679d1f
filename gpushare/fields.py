"""Reading JSON that others may have written: each field checked, each error named.

Raises ValueError alone, whatever the input is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def versioned_object(text: str | bytes, version: int = 1) -> dict[str, Any]:
    """The object in ``text``, which must say that it is of ``version``."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("v") != version:
        raise ValueError(f"not an object with v={version}")
    return data


def mapping(value: object, what: str) -> Mapping[str, Any]:
    """``value``, which must be an object. ``what`` it is, for the error."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is not an object")
    return value


def whole(data: Mapping[str, Any], key: str, below: int = 2**31) -> int:
    """A whole number from 0 to ``below`` - 1."""
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise ValueError(f"{key!r} is not a whole number from 0 to {below - 1}")
    return value


def text(data: Mapping[str, Any], key: str, longest: int) -> str:
    """A text that a log line may show."""
    return printable(data.get(key), repr(key), longest)


def printable(value: object, what: str, longest: int) -> str:
    """``value``, which must be a text of 1 to ``longest`` printable characters."""
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise ValueError(f"{what} is not a printable text of 1 to {longest} characters")
    return value
