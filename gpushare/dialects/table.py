"""All dialects, and which of them a cluster speaks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

from gpushare.dialects import aliyun, elastic, nvidia
from gpushare.dialects.dialect import Dialect
from gpushare.units import Unit

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        aliyun.DIALECT,
        elastic.NANO,
        elastic.NANO_RENAMED,
        elastic.ELASTIC,
        elastic.ELASTIC_COM,
        nvidia.WHOLE,
        nvidia.HAMI,
    )
}


@lru_cache(maxsize=64)
def spoken(settings: tuple[str, ...]) -> tuple[Dialect, ...]:
    """The dialects that a setting such as ('aliyun:MiB', 'nano') switches on.

    Raises ValueError that says what is wrong with it.
    """
    dialects = tuple(_one(setting) for setting in settings)
    _check_names(dialects)
    return dialects


def _one(setting: str) -> Dialect:
    name, colon, unit = setting.partition(":")
    dialect = DIALECTS.get(name)
    if dialect is None:
        raise ValueError(f"dialect {setting!r} is not known: use {', '.join(DIALECTS)}")
    return dialect.counting_in(Unit.parse(unit)) if colon else dialect


def _check_names(dialects: Iterable[Dialect]) -> None:
    owners: dict[str, str] = {}
    for dialect in dialects:
        for resource in dialect.resources:
            if resource.name in owners:
                raise ValueError(
                    f"dialects {owners[resource.name]} and {dialect.name} both have "
                    f"{resource.name}: switch on one of them"
                )
            owners[resource.name] = dialect.name


def moment(text: str) -> float:
    """A point in time as settings write it, in seconds since the epoch; 0 for ''.

    Raises ValueError for what is none, and for one without a time zone.
    """
    if not text:
        return 0.0
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(f"{text!r} is not a time such as 2026-01-31T08:00:00Z")
    return found.timestamp()
