"""What JupyterLab shows, as one JSON object made of the board, the kernels and the verdict. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpushare.board import Board, BoardCard
from hub_integration.lab.kernels import Kernel

SAMPLE_SECONDS = 5.0
_KEPT = 180  # samples: a quarter of an hour
# Notices that matter now: what is older was read or is over.
_NEWS_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the slice, summed over its cards."""

    at: float
    used_mib: int
    sm_percent: int | None


class History:
    """The last minutes."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=_KEPT)

    def add(self, board: Board, now: float) -> None:
        known = [card.sm_percent for card in board.cards if card.sm_percent is not None]
        used = sum(card.used_mib for card in board.cards)
        self._samples.append(Sample(now, used, max(known) if known else None))

    def samples(self) -> list[Sample]:
        return list(self._samples)


def shown(
    board: Board,
    now: float,
    history: History,
    owner: Callable[[int], Kernel | None],
    verdict: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The answer of GET /gpushare/slice."""
    return {
        "pod": board.pod,
        "at": now,
        "cards": [_card(card, owner) for card in board.cards],
        "notices": [
            asdict(notice) for notice in board.notices if now - notice.time <= _NEWS_SECONDS
        ],
        "history": [[round(s.at, 1), s.used_mib, s.sm_percent] for s in history.samples()],
        "time": _time(verdict),
        "problem": "",
    }


def nothing(problem: str, verdict: Mapping[str, Any] | None) -> dict[str, Any]:
    """The answer where there is no slice to see. The server's time may still be limited."""
    return {"cards": [], "notices": [], "history": [], "time": _time(verdict), "problem": problem}


def _card(card: BoardCard, owner: Callable[[int], Kernel | None]) -> dict[str, Any]:
    processes = []
    for process in card.processes:
        kernel = owner(process.pid) if process.pid else None
        its = {"id": kernel.id, "title": kernel.title} if kernel else None
        processes.append({**asdict(process), "kernel": its})
    return {**asdict(card), "processes": processes}


def _time(verdict: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Of the verdict, what its user needs."""
    if verdict is None:
        return None
    keys = ("action", "ends_at", "seconds_left", "sentence", "warned", "held_until", "hold")
    policy = verdict.get("policy")
    warn = policy.get("warn_seconds") if isinstance(policy, Mapping) else None
    return {**{key: verdict.get(key) for key in keys}, "warn_seconds": warn}
