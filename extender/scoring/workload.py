"""The target workload, learned from what the cluster is really asked for.

Every pod that asks counts once, whether it was placed or not, and the count halves with time. A prior,
as from a catalogue of profiles, counts like that many pods until real ones outweigh it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from extender.scoring.ask import Ask
from extender.scoring.target import Target

_VERSION = 1
# A class of which less than this many pods are left has not been asked for in a long time.
_FORGOTTEN = 0.01


class Workload:
    """Decayed counts per kind of request. Times are seconds of any one clock.

    ``target`` answers with the same object until the counts have moved by ``DRIFT``, because scores
    that were worked out for the old target are void with a new one.
    """

    # Classes kept in a target. The openb traces have about 80 kinds of pods with a card.
    LIMIT = 64
    # Kinds remembered at all: 20 kB of JSON, well under what a ConfigMap may hold (1 MiB).
    KINDS = 256
    # Half the sum of all changes in popularity (total variation) that is worth a new target.
    DRIFT = 0.05

    def __init__(
        self, half_life: float = 7 * 86400.0, prior: Mapping[Ask, float] | None = None
    ) -> None:
        if not half_life > 0:
            raise ValueError(f"half_life is {half_life}: use a number of seconds above 0")
        self.half_life = half_life
        self._at: float | None = None
        self._counts: dict[Ask, float] = {}
        self._target = Target((), ())
        self._of: dict[Ask, float] = {}
        for ask, weight in (prior or {}).items():
            if ask.cards and weight > 0 and math.isfinite(weight):
                self._counts[ask] = float(weight)

    def observe(self, ask: Ask, now: float) -> None:
        """A pod has asked. A clock that goes back counts as standing still."""
        if not ask.cards:
            return
        self._decay(now)
        self._counts[ask] = self._counts.get(ask, 0.0) + 1.0
        if len(self._counts) > self.KINDS:
            del self._counts[min(self._counts, key=lambda a: (self._counts[a], a == ask))]

    def weights(self) -> dict[Ask, float]:
        """The decayed counts."""
        return dict(self._counts)

    def target(self, now: float) -> Target:
        """The classes and their popularity; the same object as before while little has changed."""
        self._decay(now)
        total = sum(self._counts.values())
        share = {ask: count / total for ask, count in self._counts.items()} if total > 0 else {}
        if _distance(share, self._of) > self.DRIFT:
            self._of = share
            self._target = Target.of(share, self.LIMIT)
        return self._target

    def dump(self) -> str:
        """The counts as JSON text, to be kept where a restart finds it. The same counts, the same text."""
        counts = [(ask, float(f"{count:.6g}")) for ask, count in self._counts.items()]
        counts.sort(key=lambda item: (-item[1], repr(item[0])))
        rows = [
            [a.cards, a.mib, a.percent, a.whole, a.cpu, list(a.models), count]
            for a, count in counts
        ]
        data = {"v": _VERSION, "at": self._at, "counts": rows}
        return json.dumps(data, separators=(",", ":"))

    def load(self, text: str) -> None:
        """Counts as ``dump`` wrote them, in place of these. Raises ValueError that says what is wrong;
        then nothing has changed."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the learned workload is not JSON: {error}") from None
        if not isinstance(data, dict) or data.get("v") != _VERSION:
            raise ValueError(f"the learned workload is not an object with v={_VERSION}")
        rows, at = data.get("counts"), data.get("at")
        if not isinstance(rows, list) or len(rows) > self.KINDS or not (at is None or _number(at)):
            raise ValueError(
                "the learned workload lacks 'at' or a list 'counts' that is not too long"
            )
        counts = dict(_row(row) for row in rows)
        self._counts, self._at = counts, at if at is None else float(at)

    def _decay(self, now: float) -> None:
        if self._at is None:
            self._at = now
        if not now > self._at:
            return
        factor = 0.5 ** ((now - self._at) / self.half_life)
        self._at = now
        self._counts = {a: c * factor for a, c in self._counts.items() if c * factor > _FORGOTTEN}


def _distance(one: Mapping[Ask, float], other: Mapping[Ask, float]) -> float:
    """Total variation: 0 for the same distribution, 1 for two that share nothing."""
    return 0.5 * sum(abs(one.get(a, 0.0) - other.get(a, 0.0)) for a in one.keys() | other.keys())


def _row(row: Any) -> tuple[Ask, float]:
    if not isinstance(row, list) or len(row) != 7:
        raise ValueError("a row of the learned workload has not 7 values")
    cards, mib, percent, whole, cpu, models, count = row
    whole_numbers = (cards, percent, cpu, 0 if mib is None else mib)
    if not all(type(n) is int and 0 <= n < 1 << 31 for n in whole_numbers) or not cards:
        raise ValueError("a row of the learned workload has an amount that is not a whole number")
    if type(whole) is not bool or not isinstance(models, list) or len(models) > 32:
        raise ValueError("a row of the learned workload has no list of models")
    if not all(isinstance(model, str) and len(model) <= 200 for model in models):
        raise ValueError("a row of the learned workload has a model that is no text")
    if not _number(count):
        raise ValueError("a row of the learned workload has a count that is no number")
    return Ask(cards, mib, percent, whole, cpu, tuple(models)), float(count)


def _number(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e18  # type: ignore[operator]
