"""The notice board of a slice, as its own containers read it at /run/gpushare/slice.json.

The device plugin writes it (``device_plugin.enforcement.notices``), JupyterLab, the ``%gpushare``
magic and ``gpushare slice`` read it: no network, no token, no NVML. It names nothing outside of the
pod. Memory is in MiB, times are seconds since 1970, utilisation is per cent of the card's SMs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpushare.fields import (
    number_or_zero,
    objects_or_empty,
    text_or_empty,
    unless_null,
    versioned_object,
    whole_or_zero,
)

PATH = Path("/run/gpushare/slice.json")
_MOST_BYTES = 1 << 20
_LONGEST = 2000


class NoBoard(Exception):
    """There is no board, or it cannot be read. The text is for the notebook's user."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the pod on a card. ``pid`` is the container's own; 0 where it is not known.

    ``used_mib`` is None where the driver does not tell processes' memory.
    """

    pid: int
    name: str
    container: str = ""
    used_mib: int | None = None


@dataclass(frozen=True, slots=True)
class BoardCard:
    """What the pod has of one card. ``limit_mib`` is its slice, and what it may borrow now."""

    uuid: str
    index: int
    model: str
    memory_mib: int
    slice_mib: int
    limit_mib: int
    percent: int = 0
    used_mib: int = 0
    peak_mib: int = 0
    sm_percent: int | None = None
    last_kernel: float | None = None
    over_since: float | None = None
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user has to know. ``id`` counts up; ``kind`` is an Event's reason."""

    id: int
    time: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Board:
    """One pod's slice. ``updated`` is when it was last written: it is, when something differs."""

    pod: str
    updated: float
    cards: tuple[BoardCard, ...] = ()
    notices: tuple[Notice, ...] = ()


def read(path: Path = PATH) -> Board:
    """The board of the container that this runs in. Raises NoBoard."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise NoBoard(
            f"this container has no GPU slice, or its node shows none ({path} is not there)"
        ) from None
    except OSError as error:
        raise NoBoard(f"{path} cannot be read: {error.strerror}") from None
    try:
        if len(text) > _MOST_BYTES:
            raise ValueError("it is too large")
        return decode(text)
    except ValueError as error:
        raise NoBoard(f"{path} cannot be understood: {error}") from None


def decode(text: str | bytes) -> Board:
    """Read the file's text. Unknown keys are skipped. Raises ValueError that says what is wrong."""
    data = versioned_object(text)
    return Board(
        pod=_text(data, "pod"),
        updated=number_or_zero(data, "updated"),
        cards=tuple(_card(item) for item in objects_or_empty(data, "cards")),
        notices=tuple(_notice(item) for item in objects_or_empty(data, "notices")),
    )


def _card(data: Mapping[str, Any]) -> BoardCard:
    return BoardCard(
        uuid=_text(data, "uuid"),
        index=whole_or_zero(data, "index"),
        model=_text(data, "model"),
        memory_mib=whole_or_zero(data, "memory_mib"),
        slice_mib=whole_or_zero(data, "slice_mib"),
        limit_mib=whole_or_zero(data, "limit_mib"),
        percent=whole_or_zero(data, "percent"),
        used_mib=whole_or_zero(data, "used_mib"),
        peak_mib=whole_or_zero(data, "peak_mib"),
        sm_percent=unless_null(whole_or_zero, data, "sm_percent"),
        last_kernel=unless_null(number_or_zero, data, "last_kernel"),
        over_since=unless_null(number_or_zero, data, "over_since"),
        processes=tuple(_process(item) for item in objects_or_empty(data, "processes")),
    )


def _process(data: Mapping[str, Any]) -> Process:
    return Process(
        pid=whole_or_zero(data, "pid"),
        name=_text(data, "name"),
        container=_text(data, "container"),
        used_mib=unless_null(whole_or_zero, data, "used_mib"),
    )


def _notice(data: Mapping[str, Any]) -> Notice:
    return Notice(
        id=whole_or_zero(data, "id"),
        time=number_or_zero(data, "time"),
        kind=_text(data, "kind"),
        text=_text(data, "text"),
    )


def _text(data: Mapping[str, Any], key: str) -> str:
    return text_or_empty(data, key, _LONGEST)
