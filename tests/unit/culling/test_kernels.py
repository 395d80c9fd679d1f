"""Which kernel is ended before its server, and when none is."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from hub_integration.culling.hub_api import Kernel
from hub_integration.culling.judging import Judged, judge
from hub_integration.culling.kernels import due, longest_idle
from hub_integration.culling.memory import Clock
from tests.unit.culling.scenes import MINUTE, RULES, START, at, card, held, pod, server, use, view


def judged(
    minutes: float, *, last: float = 0, mib: int = 900, until: float | None = None
) -> Judged:
    clock = Clock("ann", "", START.timestamp())
    if until is not None:
        clock = replace(clock, held_until=at(until).timestamp())
    what = view(card(held("ann")), uses=(use("ann", last=last, mib=mib),))
    (one,) = judge([server("ann", minutes)], [pod("ann")], what, lambda _: clock,
                   lambda *_: RULES, at(minutes))  # fmt: skip
    return one


def test_only_memory_that_lies_idle_ends_a_kernel() -> None:
    assert due(judged(11), at(11)) == 10 * MINUTE
    assert due(judged(11, mib=0), at(11)) is None, "it holds nothing"
    assert due(judged(11, last=5), at(11)) is None, "the GPU worked five minutes ago"
    assert due(judged(9, last=-20), at(9)) is None, "within the guaranteed time"
    assert due(judged(11, until=20), at(11)) is None, "held"
    leave = replace(judged(11), rules=replace(RULES, kernel_idle=None))
    assert due(leave, at(11)) is None


def kernel(name: str, state: str, used: datetime | None) -> Kernel:
    return Kernel(name, "python3", state, used)


def test_the_longest_idle_goes_and_never_a_busy_one() -> None:
    kernels = [
        kernel("new", "idle", at(9)),
        kernel("old", "starting", at(2)),
        kernel("older-but-busy", "busy", at(0)),
        kernel("unknown", "idle", None),
    ]
    chosen = longest_idle(kernels, 5 * MINUTE, at(10))
    assert chosen is not None
    assert chosen.id == "old"
    assert longest_idle(kernels, 9 * MINUTE, at(10)) is None
