"""What strays hold, as the rest of the cluster is told of it: rounded and damped. Pure.

The published amount changes what the scheduler offers on a card, so it must not flutter with every
short-lived process: it rises when memory has been held for a while, and falls later still.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STEP_MIB = 256
# Less than this is noise: a monitor's context, an MPS server, an X server without a screen.
IGNORED_MIB = 64
RISE_SECONDS = 5.0
FALL_SECONDS = 30.0


def rounded(mib: int) -> int:
    """What counts of ``mib`` MiB held by strays."""
    return 0 if mib <= IGNORED_MIB else -(-mib // STEP_MIB) * STEP_MIB


@dataclass(frozen=True, slots=True)
class Damped:
    """A published amount (MiB), and since when something else was seen.

    While only more or only less than ``mib`` is seen, ``most`` or ``least`` of it is remembered:
    that is published in the end.
    """

    mib: int = 0
    above_since: float | None = None
    least: int = 0
    below_since: float | None = None
    most: int = 0

    def see(self, mib: int, now: float) -> Damped:
        """``mib`` MiB are held by strays at ``now`` (seconds of a monotonic clock)."""
        wanted = rounded(mib)
        if wanted == self.mib:
            return Damped(self.mib)
        if wanted > self.mib:
            return self._above(wanted, now)
        return self._below(wanted, now)

    def _above(self, wanted: int, now: float) -> Damped:
        since = now if self.above_since is None else self.above_since
        least = wanted if self.above_since is None else min(self.least, wanted)
        if now - since >= RISE_SECONDS:
            return Damped(least)
        return replace(Damped(self.mib), above_since=since, least=least)

    def _below(self, wanted: int, now: float) -> Damped:
        since = now if self.below_since is None else self.below_since
        most = wanted if self.below_since is None else max(self.most, wanted)
        if now - since >= FALL_SECONDS:
            return Damped(most)
        return replace(Damped(self.mib), below_since=since, most=most)
