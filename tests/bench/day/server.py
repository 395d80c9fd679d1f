"""A running notebook: when it was and will be used, as far as its user's plan goes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpushare.placement import Placement
from tests.bench.day.people import Stretch, Visit

Span = tuple[float, float]


@dataclass(slots=True)
class Server:
    """``notebook`` and ``gpu`` are the spans (minutes) of use, in order; ``done`` is when the user has
    no more use for it, ``leaves`` when it ends without a culler."""

    uid: str
    visit: Visit
    started: float
    placement: Placement
    notebook: list[Span] = field(default_factory=list)
    gpu: list[Span] = field(default_factory=list)
    done: float = 0.0
    leaves: float = 0.0
    warned_at: float | None = None
    looked: float | None = None
    """When the culler looks next."""
    since: float = 0.0
    """When the present visit began."""
    touched: float = 0.0
    """When the user last touched it beside the plan: by reacting to a warning."""

    def plan(self, visit: Visit, now: float, stretches: Sequence[Stretch]) -> None:
        """What this visit makes of the server, from ``now`` on."""
        self.visit, self.since, at = visit, now, now
        for stretch in stretches:
            self.notebook.append((at, at + stretch.active))
            if stretch.gpu:
                self.gpu.append((at, at + stretch.active))
            at += stretch.active + stretch.pause
        if visit.silent:
            self.gpu.append((at, at + visit.silent))
            at += visit.silent
        self.done, self.leaves = at, at + visit.lingers

    def notebook_used(self, now: float) -> float:
        return max(_last(self.notebook, now, self.started), self.touched)

    def gpu_used(self, now: float) -> float | None:
        used = _last(self.gpu, now, -1.0)
        return None if used < 0 else used

    def computes(self, now: float) -> bool:
        return any(start <= now < end for start, end in reversed(self.gpu))

    def remaining(self, now: float) -> tuple[Stretch, ...]:
        """The stretches that have not begun, as a visit of its own would have them."""
        left, at = [], self.since
        for stretch in self.visit.stretches:
            if at > now:
                left.append(stretch)
            at += stretch.active + stretch.pause
        return tuple(left)

    def next_use(self, now: float) -> float:
        """When the user comes back to it, infinity for never."""
        i = bisect_right(self.notebook, (now, float("inf")))
        return self.notebook[i][0] if i < len(self.notebook) else float("inf")


def _last(spans: Sequence[Span], now: float, otherwise: float) -> float:
    """The last moment of use up to ``now``."""
    i = bisect_right(spans, (now, float("inf")))
    return min(now, spans[i - 1][1]) if i else otherwise
