"""Is the ledger right? From time to time each node's part of it is made anew from the pods and compared.

The ledger is kept by changes, one after the other; a fault in that would stay until a restart. This
finds it, says it, and counts it for the metrics. One node is compared at a time, in one step, so
that nothing changes between two looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from extender.view import ClusterView

log = logging.getLogger(__name__)

_EVERY = 60.0
_MOST_SAID = 20


class Drift:
    """``found``: how many slices or cards differ, by the last complete look; ``looks`` counts these."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.found = 0
        self.looks = 0
        self._said: set[str] = set()

    async def run(self) -> None:
        """Look every minute, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            found = 0
            for name in list(self.view.ledger.nodes):
                for text in differences(self.view, name):
                    found += 1
                    self._say(text)
                await asyncio.sleep(0)
            self.found = found
            self.looks += 1

    def _say(self, text: str) -> None:
        if text not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(text)
            log.error("the ledger is wrong: %s; restart the extender, and please report it", text)


def differences(view: ClusterView, name: str) -> Iterator[str]:
    """How the ledger of one node differs from what its pods say."""
    node = view.ledger.nodes.get(name)
    if node is None:
        return
    bound = {fact.ref.uid: fact for fact in view.pods_on(name)}
    held = {uid for account in node.accounts.values() for uid in account.holders}
    for uid, fact in bound.items():
        slice_ = view.slice_of(uid)
        if uid in view.doubts or fact.placement is None:
            continue
        if slice_ is None:
            yield f"pod {fact.ref} is bound to {name} and holds nothing"
        elif slice_.placement != fact.placement:
            yield f"pod {fact.ref} holds something else than its placement says"
    sums: dict[str, tuple[int, int]] = {}
    for uid in held:
        slice_ = view.slice_of(uid)
        if slice_ is None or slice_.placement.node != name:
            yield f"{name} counts a pod ({uid}) that holds nothing there"
            continue
        if uid not in bound and not slice_.reserved and not view.held_after_deletion(uid):
            yield f"pod {slice_.pod} holds a slice on {name} and is not bound there"
        for card, (mib, percent) in slice_.placement.footprint().items():
            before = sums.get(card, (0, 0))
            sums[card] = (before[0] + mib, before[1] + percent)
    for card, account in node.accounts.items():
        if sums.get(card) != (account.used_mib, account.used_percent):
            yield f"the sums of card {card} on {name} are not those of its slices"
