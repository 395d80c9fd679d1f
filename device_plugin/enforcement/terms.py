"""The terms of each pod, read from its annotations once, with what is wrong in them said once."""

from __future__ import annotations

from collections.abc import Callable, Collection

from device_plugin.enforcement.burst import most_of
from device_plugin.enforcement.judgement import PodTerms
from device_plugin.enforcement.rules import Rules, for_pod
from device_plugin.enforcement.slices import Slice
from gpushare.names import Names
from gpushare.units import Unit

Complain = Callable[[Slice, str], None]


class TermsBook:
    """Terms by pod uid."""

    def __init__(
        self,
        node: Rules,
        bounds: Rules,
        burst_percent: int,
        names: Names,
        unit: Unit,
        complain: Complain,
    ) -> None:
        self._node, self._bounds, self._burst = node, bounds, burst_percent
        self._names, self._unit, self._complain = names, unit, complain
        self._terms: dict[str, tuple[tuple[str | None, str | None], PodTerms]] = {}

    def of(self, its: Slice) -> PodTerms:
        """The terms of a slice."""
        wishes = (
            its.annotations.get(self._names.enforcement),
            its.annotations.get(self._names.gpu_mem_limit),
        )
        known = self._terms.get(its.pod.uid)
        if known is None or known[0] != wishes:
            known = (wishes, self._read(its, *wishes))
            self._terms[its.pod.uid] = known
        return known[1]

    def keep_only(self, uids: Collection[str]) -> None:
        """Forget pods that are gone."""
        for uid in self._terms.keys() - frozenset(uids):
            del self._terms[uid]

    def _read(self, its: Slice, enforcement: str | None, limit: str | None) -> PodTerms:
        rules, problem = for_pod(self._node, self._bounds, enforcement)
        if problem:
            self._complain(its, f"annotation {self._names.enforcement} is not used: {problem}")
        most = {}
        for card in its.footprint:
            most[card], problem = most_of(limit, self._unit, its.mib(card), self._burst)
            if problem:
                self._complain(
                    its, f"annotation {self._names.gpu_mem_limit} is not used: {problem}"
                )
        return PodTerms(rules, lambda card: most.get(card, 0))
