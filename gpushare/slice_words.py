"""A slice in lines of text, for terminals and notebooks. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpushare.board import Board, BoardCard, Process
from gpushare.units import human_mib

_NEWS_SECONDS = 15 * 60


def lines(board: Board, now: float, own_pid: int = 0) -> Iterator[str]:
    """The lines. ``own_pid`` marks the process that asks."""
    for card in board.cards:
        yield _headline(card, now)
        for process in card.processes:
            yield f"  {_process(process, own_pid)}"
        if not card.processes:
            yield "  no process of yours is on it"
    if not board.cards:
        yield "This container has no card."
    for notice in board.notices:
        if now - notice.time <= _NEWS_SECONDS:
            yield f"! {_ago(now - notice.time)} ago: {notice.text}"


def usage(card: BoardCard) -> str:
    """'2.1 of 7 GiB', '512 MiB of 7 GiB'."""
    used, limit = human_mib(card.used_mib), human_mib(card.limit_mib)
    if used.endswith("GiB") and limit.endswith("GiB"):
        used = used.removesuffix(" GiB")
    return f"{used} of {limit}"


def _headline(card: BoardCard, now: float) -> str:
    parts = [f"{card.model} (card {card.index}): {usage(card)} in use"]
    if card.limit_mib > card.slice_mib:
        parts.append(f"{human_mib(card.limit_mib - card.slice_mib)} of that is borrowed room")
    if card.peak_mib > card.used_mib:
        parts.append(f"{human_mib(card.peak_mib)} at most so far")
    if card.percent:
        parts.append(f"{card.percent} % of its compute")
    if card.sm_percent is not None:
        parts.append(f"busy {card.sm_percent} %")
    elif card.last_kernel is not None:
        parts.append(f"last busy {_ago(now - card.last_kernel)} ago")
    if card.over_since is not None:
        parts.append(f"OVER ITS LIMIT for {_ago(now - card.over_since)}")
    return ", ".join(parts)


def _process(process: Process, own_pid: int) -> str:
    held = "memory not known" if process.used_mib is None else human_mib(process.used_mib)
    mark = ", this kernel" if process.pid and process.pid == own_pid else ""
    return f"process {process.pid} ({process.name or '?'}): {held}{mark}"


def _ago(seconds: float) -> str:
    seconds = max(0, round(seconds))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
