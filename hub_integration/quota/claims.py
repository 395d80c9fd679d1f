"""What users have at once: what the cluster says they hold, and what the Hub has just admitted.

Between the moment a server is admitted and the moment its slice is on a card, only the Hub knows
of it. Without that, two servers started at once would both fit into the last of a quota.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpushare.waiting import WaitingPod
from hub_integration.snapshot import Held

Key = tuple[str, str]  # namespace and name of a pod


@dataclass(frozen=True, slots=True)
class Claim:
    """A server that is starting or running. ``mib`` is 0 where its size is not known."""

    user: str
    mib: int


@dataclass(frozen=True, slots=True)
class AtOnce:
    """What some users have now, all together."""

    slices: int = 0
    mib: int = 0


class Claims:
    """The Hub's own servers, by pod."""

    def __init__(self) -> None:
        self._claims: dict[Key, Claim] = {}

    def put(self, key: Key, claim: Claim) -> None:
        self._claims[key] = claim

    def drop(self, key: Key) -> None:
        self._claims.pop(key, None)

    def at_once(
        self,
        users: Collection[str],
        held: Iterable[Held],
        waiting: Iterable[WaitingPod],
        *,
        besides: Key,
        namespace: str,
    ) -> AtOnce:
        """What ``users`` have, besides the pod that is about to be started.

        ``namespace`` is that of this Hub's notebooks, or '' where each user has one: the pods of
        others may carry anybody's name.
        """
        pods: dict[Key, int] = {
            key: claim.mib for key, claim in self._claims.items() if claim.user in users
        }
        known: dict[Key, int] = {}
        for one in held:
            holding, key = one.holding, (one.holding.namespace, one.holding.pod)
            if holding.user in users and not one.leaving and namespace in ("", holding.namespace):
                known[key] = known.get(key, 0) + holding.mib
        for pod in waiting:
            key = (pod.namespace, pod.pod)
            if pod.user in users and namespace in ("", pod.namespace) and key not in known:
                known[key] = max(pod.mib * max(1, pod.cards), pods.get(key, 0))
        pods |= known
        pods.pop(besides, None)
        return AtOnce(len(pods), sum(pods.values()))
