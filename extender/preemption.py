"""Who would have to leave a node for a pod to get its card: the fewest pods, then the least important.

kube-scheduler proposes victims for what it counts itself (CPU, memory, and our resources as plain
sums where it is told to count them). It knows no cards, so its victims may sit on the wrong ones.
What is answered here makes room on cards, keeps what the proposal is needed for otherwise, and
leaves out nodes where nobody's leaving would help.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from extender.facts import PodFact
from extender.view import ClusterView
from gpushare.budget import amounts
from gpushare.ledger import NodeAccount
from gpushare.placement import Placement
from gpushare.request import PodRequest

# Beyond this many tries on one node a small set is good enough in place of the smallest.
_TRIES = 500


@dataclass(frozen=True, slots=True)
class Proposal:
    """Victims on one node, as uids. ``violations``: how many of them a PodDisruptionBudget protects."""

    uids: tuple[str, ...]
    violations: int = 0


def preempt(
    view: ClusterView, request: PodRequest, priority: int, nodes: Mapping[str, Proposal]
) -> dict[str, Proposal]:
    """For each node on which it helps: whom to end. ``priority`` is that of the pod which needs room."""
    found = {}
    for name, proposal in nodes.items():
        victims = _on_node(view, request, priority, name, proposal)
        if victims is not None:
            found[name] = victims
    return found


def _on_node(
    view: ClusterView, request: PodRequest, priority: int, name: str, proposal: Proposal
) -> Proposal | None:
    account = view.ledger.nodes.get(name)
    if account is None:
        return None
    leaving = [u for u in _here(account) if (f := view.pods.get(u)) and f.deleting]

    def fits(uids: Collection[str]) -> bool:
        return isinstance(view.fit_without(name, request, (*leaving, *uids)), Placement)

    blindly = _lacks_devices(view, name, request)
    if fits(()):
        # The card is not what is missing; or it will be free without anybody's help, and kube-scheduler
        # has proposed somebody only because it counts those who are leaving.
        return None if leaving and blindly else proposal
    if fits(proposal.uids) and not blindly:
        return proposal
    lower = {
        uid: fact
        for uid in _here(account)
        if (fact := view.pods.get(uid))
        and fact.node == name
        and fact.priority < priority
        and uid not in leaving
    }
    proposed = set(proposal.uids)
    # Whom kube-scheduler chose for the sum of our resources it chose blindly: only where that sum is
    # not what it lacked are its victims needed beside ours.
    keep = () if blindly else proposal.uids
    candidates = sorted(
        (uid for uid in lower if uid not in keep),
        key=lambda uid: (lower[uid].priority, uid not in proposed, -lower[uid].bound, uid),
    )
    chosen = _fewest(candidates, lambda uids: fits((*keep, *uids)), lower)
    if chosen is None:
        return None
    uids = (*keep, *chosen)

    def cost(which: Sequence[str]) -> tuple[int, list[int]]:
        ranks = (lower[uid].priority for uid in which if uid in lower)
        return len(which), sorted(ranks, reverse=True)

    if fits(proposal.uids) and cost(proposal.uids) <= cost(uids):
        return proposal
    # Of pods that kube-scheduler did not propose nobody has looked at the budgets.
    unknown = sum(uid not in proposed for uid in uids)
    return Proposal(uids, min(len(uids), proposal.violations) + unknown) if uids else None


def _here(account: NodeAccount) -> list[str]:
    """Who holds anything of the node's cards."""
    return list(dict.fromkeys(u for book in account.accounts.values() for u in book.holders))


def _lacks_devices(view: ClusterView, name: str, request: PodRequest) -> bool:
    """Whether the node's plain sums are too small for the pod as things are."""
    budget, want = view.budget(name), amounts(request, view.rules.unit)
    return (
        want.mem > budget.offered.mem - budget.asked.mem
        or want.percent > budget.offered.percent - budget.asked.percent
    )


def _fewest(
    candidates: Sequence[str],
    fits: Callable[[Collection[str]], bool],
    lower: Mapping[str, PodFact],
) -> tuple[str, ...] | None:
    """The smallest set that makes room, of equal ones that with the lowest priorities; None if even
    all together do not. ``candidates`` are in the order in which they would rather be chosen."""
    if not fits(candidates):
        return None
    enough = list(candidates)
    # Let off whoever is not needed, the most important first: a set with nobody useless in it.
    for uid in reversed(candidates):
        rest = [other for other in enough if other != uid]
        if fits(rest):
            enough = rest
    tries = 0
    for size in range(1, len(enough) + 1):
        ways: list[tuple[list[int], tuple[str, ...]]] = []
        for uids in combinations(candidates, size):
            tries += 1
            if tries > _TRIES:
                return min(ways)[1] if ways else tuple(enough)
            if fits(uids):
                ways.append((sorted((lower[uid].priority for uid in uids), reverse=True), uids))
                if len({lower[uid].priority for uid in candidates}) == 1:
                    break
        if ways:
            return min(ways, key=lambda way: way[0])[1]
    return tuple(enough)
