"""Reading JSON that others may have written: each field checked, each error named.

Raises ValueError alone, whatever the input is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def loaded(text: str | bytes) -> Any:
    """Whatever JSON there is in ``text``."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def versioned_object(text: str | bytes, version: int = 1) -> dict[str, Any]:
    """The object in ``text``, which must say that it is of ``version``."""
    data = loaded(text)
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


# Answers of our own parts, which may be older than their reader: what they do not know is absent.


def objects_or_empty(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """A list of objects; an empty one where it is absent."""
    value = data.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"{key!r} is not a list")
    return [mapping(item, f"an entry of {key!r}") for item in value]


def text_or_empty(data: Mapping[str, Any], key: str, longest: int) -> str:
    """A text of at most ``longest`` characters; '' where it is absent."""
    value = data.get(key, "")
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError(f"{key!r} is not a text of at most {longest} characters")
    return value


def whole_or_zero(data: Mapping[str, Any], key: str, above: int = -1) -> int:
    """A whole number ``above`` that and below 2**40; 0 where it is absent."""
    value = data.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not above < value < 2**40:
        raise ValueError(f"{key!r} is not a whole number")
    return value


def number_or_zero(data: Mapping[str, Any], key: str) -> float:
    """A number from 0 to 1e12; 0 where it is absent."""
    value = data.get(key, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ValueError(f"{key!r} is not a number")
    return float(value)


def unless_null(
    read: Callable[[Mapping[str, Any], str], T], data: Mapping[str, Any], key: str
) -> T | None:
    """What ``read`` makes of the field, None where it is absent or null."""
    return None if data.get(key) is None else read(data, key)
