"""What happens before a container starts: room on its cards, limits in the driver, its notice board."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from device_plugin.enforcement.advisory import advisory_environment
from device_plugin.enforcement.burst import Claim, missing_for
from device_plugin.enforcement.enforcer import Enforcer
from device_plugin.enforcement.limiter import Limiter
from device_plugin.enforcement.messages import name_card
from device_plugin.enforcement.notices import NoticeBoards
from device_plugin.enforcement.slices import Slice
from device_plugin.patience import wait_at_most
from device_plugin.pod import env_names
from device_plugin.refusal import Code, Refused
from gpushare.cards import Card
from gpushare.placement import ContainerPlacement
from gpushare.pods import pod_ref
from gpushare.units import human_mib

log = logging.getLogger(__name__)

# The kubelet gives PreStartContainer 30 s, and asks again after its own pause when we say no.
_PATIENCE = 20.0
_FRESH = 1.0  # seconds that a look may take before the last one has to do


class StartGate:
    """The hook of container starts."""

    def __init__(
        self,
        enforcer: Enforcer,
        slices: Callable[[], Mapping[str, Slice]],
        cards: Callable[[], Mapping[str, Card]],
        limiter: Limiter,
        boards: NoticeBoards | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._enforcer, self._slices, self._cards = enforcer, slices, cards
        self._limiter, self._boards, self._clock = limiter, boards, clock

    async def before_start(
        self, pod: Mapping[str, Any], placed: ContainerPlacement
    ) -> dict[str, Any]:
        """A verified container is about to start: its further CDI edits.

        Waits while other pods still hold memory of its slice that was lent to them. Raises Refused.
        """
        ref = pod_ref(pod)
        await self._wait_for_room(ref.uid, placed)
        its = self._slices().get(ref.uid) or Slice(
            ref, {s.card: (s.mib, s.percent) for s in placed.shares}
        )
        parts = [await self._limiter.before_start(its, placed)]
        if self._boards is not None:
            try:
                parts.append(self._boards.edits(ref.uid))
            except OSError as error:
                log.warning("%s gets no notice board: %s", ref, error)
        env = self._burst_environment(its, placed, env_names(pod, placed.name))
        parts.append({"env": [f"{name}={value}" for name, value in env.items()]} if env else {})
        self._enforcer.quicken()
        return _joined(parts)

    async def _wait_for_room(self, uid: str, placed: ContainerPlacement) -> None:
        deadline = self._clock() + _PATIENCE
        if self._lends(uid, placed):
            # Who may borrow may have done so since the last look.
            await wait_at_most(self._enforcer.look_soon(), _FRESH)
        while missing := self._missing(uid, placed):
            card, mib = missing
            left = deadline - self._clock()
            if left <= 0:
                problem = (
                    f"{human_mib(mib)} of its slice on {card} are still used by pods that had "
                    "borrowed them and were told to give them back; the kubelet tries again by itself"
                )
                raise Refused(Code.NOT_NOW, problem=problem)
            await wait_at_most(self._enforcer.looked, left)

    def _lends(self, uid: str, placed: ContainerPlacement) -> bool:
        """Whether another pod on these cards may use more than its slice, or has been seen to.

        The last look may be older than the other pod, so the slices are asked as well.
        """
        cards = {share.card for share in placed.shares}
        may = any(
            self._enforcer.terms_of(its).most(card) > its.mib(card)
            for other, its in self._slices().items()
            if other != uid
            for card in cards.intersection(its.footprint)
        )
        return may or any(
            other != uid and claim.borrowed
            for card in cards.intersection(self._enforcer.states)
            for other, claim in self._enforcer.states[card].claims.items()
        )

    def _missing(self, uid: str, placed: ContainerPlacement) -> tuple[str, int] | None:
        # What is not known holds nobody up: a card that cannot be looked at says so elsewhere.
        cards = self._cards()
        for share in placed.shares:
            state = self._enforcer.states.get(share.card)
            if state is None or state.sample.problem:
                continue
            claims = dict(state.claims)
            claims.setdefault(uid, Claim(share.mib, share.mib, 0))
            mib = missing_for(uid, state.capacity, claims)
            if mib:
                card = cards.get(share.card)
                return (name_card(card) if card else share.card), mib
        return None

    def _burst_environment(
        self, its: Slice, placed: ContainerPlacement, own: frozenset[str]
    ) -> dict[str, str]:
        """Caps of the size that it may grow to, in place of those of its slice."""
        cards = self._cards()
        terms = self._enforcer.terms_of(its)
        shares = [s for s in placed.shares if s.card in cards]
        # Loans are the pod's: a container beside others gets caps of its own share.
        alone = all(s.mib == its.mib(s.card) for s in shares)
        if not shares or not alone or all(terms.most(s.card) <= s.mib for s in shares):
            return {}
        most = min(terms.most(s.card) for s in shares)
        memory = min(cards[s.card].memory for s in shares)
        env = advisory_environment(memory, min(most, memory), own=own)
        limit = env.pop("GPU_MEM_LIMIT", None)
        return env | ({"GPU_MEM_BURST_LIMIT": limit} if limit else {})


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    edits: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            edits[key] = [*edits.get(key, []), *value]
    return edits
