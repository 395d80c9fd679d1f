"""The extender's picture of the cluster: the single owner of the ledger.

Everything that changes what is free passes through here, in one thread and in one synchronous step:
node and pod events from the watches, reservations of the binder, and the ends of holds. Reads never
see half a change.

A slice is entered when the binder reserves it or when a bound pod with a believable placement is
seen (``extender.trust``), and never changes for that uid afterwards. It leaves when the pod has
finished or its object is gone; an object that is gone while its containers may still run (a forced
deletion) keeps its slice for a bounded time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Protocol

from extender.clock import Clock, Timer
from extender.facts import FactReader, NodeFact, PodFact
from extender.fitting import Budget, Rules, fit
from extender.fleet import Fleet
from extender.trust import Verdict, judge
from gpushare.assignment import CardState
from gpushare.budget import NONE, Amounts, amounts
from gpushare.cards import Card, NodeCards
from gpushare.ledger import Ledger, NodeAccount, Slice
from gpushare.placement import Placement
from gpushare.pods import PodRef
from gpushare.reasons import Code, Reason
from gpushare.request import PodRequest

log = logging.getLogger(__name__)

# A pod's own grace period plus what the kubelet needs to see the deletion and to kill.
_KUBELET_SLACK = 10
# uids never come back, so a late event of a deleted pod must not bring it to life again.
_TOMBSTONES = 20_000


@dataclass(slots=True)
class _Hold:
    """A slice whose pod object is gone while its containers may still run."""

    timer: Timer
    since: float


@dataclass(slots=True)
class _Node:
    """A node as the API knows it, and what the pods bound there ask of its kubelet."""

    fact: NodeFact | None = None
    budget: Budget = field(default_factory=Budget)
    asking: dict[str, tuple[Amounts, int]] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)


ORDERED_OUT = "taken out of service by its node's unhealthy-gpu ConfigMap"


class Line(Protocol):
    """Has a say in what of a node a pod may take, where others came first.

    It says nothing while it is not ``busy``: nobody waits who was refused.
    """

    @property
    def busy(self) -> bool: ...

    def admit(
        self, fact: PodFact, passed: Sequence[str], failed: Mapping[str, Reason]
    ) -> tuple[Sequence[str], Mapping[str, Reason]]: ...

    def place(
        self, node: str, uid: str, request: PodRequest, found: Placement
    ) -> Placement | Reason: ...


class ClusterView:
    """Nodes, pods, ledger and fleet.

    ``on_change`` is called with a node's name when anything about it may have changed,
    ``on_room`` is called with a node's name when it may have more to give than before, and
    ``on_pod`` with each fact about a pod that is not bound, or with None and its uid when the pod
    is bound or gone.
    """

    def __init__(self, rules: Rules, clock: Clock, max_hold: float = 90) -> None:
        self.rules = rules
        self.clock = clock
        self.max_hold = max_hold
        self.ledger = Ledger(on_change=self._changed)
        self.fleet = Fleet(rules)
        self.reader = FactReader(rules.names, rules.unit, rules.adopt_before)
        self.pods: dict[str, PodFact] = {}
        self.doubts: dict[str, str] = {}
        self.line: Line | None = None
        # Counts everything that changes what is free.
        self.changes = 0
        self.on_change: list[Callable[[str], None]] = []
        self.on_room: list[Callable[[str], None]] = []
        self.on_pod: list[Callable[[str, PodFact | None], None]] = []
        self.on_cards: list[Callable[[str], None]] = []
        self._ordered_out: dict[str, frozenset[int]] = {}
        self._nodes: dict[str, _Node] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._holds: dict[str, _Hold] = {}
        self._bound_at: dict[str, float] = {}
        self._nodes_listed = 0
        self._pods_listed = 0

    # -- asked by the verbs ----------------------------------------------------------------------

    def fit(
        self,
        node: str,
        uid: str,
        request: PodRequest,
        states: Sequence[CardState] | None = None,
        more: Amounts = NONE,
        prefer: Sequence[str] = (),
    ) -> Placement | Reason:
        """The placement that the pod would get on the node now, or why it can't.

        ``states``, ``more`` and ``prefer`` as for ``extender.fitting.fit``.
        """
        known = self._nodes.get(node)
        if known is None or known.fact is None:
            return Reason(Code.UNKNOWN_NODE)
        account = self.ledger.nodes.get(node)
        return fit(self.rules, account, known.budget, uid, request, states, more, prefer)

    def fit_without(
        self, node: str, request: PodRequest, uids: Collection[str]
    ) -> Placement | Reason:
        """The placement that such a pod would get if these pods were not on the node."""
        known, account = self._nodes.get(node), self.ledger.nodes.get(node)
        if known is None or account is None:
            return self.fit(node, "", request)
        freed = NONE
        for uid in uids:
            freed += known.asking.get(uid, (NONE, 0))[0]
        return self.fit(node, "", request, account.without(uids).states(), NONE - freed)

    def budget(self, node: str) -> Budget:
        """What the node's kubelet offers, and what is asked of it."""
        known = self._nodes.get(node)
        return known.budget if known else Budget()

    def fit_many(
        self, names: Sequence[str], request: PodRequest
    ) -> tuple[Sequence[str], Mapping[str, Reason]]:
        """Which of the nodes take such a pod, and why the others do not."""
        if self.fleet.covers(request):
            answer = self.fleet.ask(names, request)
            if not answer.failed:
                return names, answer.failed
            return list(compress(names, answer.fits.tolist())), answer.failed
        passed, failed = [], {}
        known: dict[object, Reason | None] = {}
        for name in names:
            alike = self._likeness(name, request)
            if alike not in known:
                found = self.fit(name, "", request)
                known[alike] = found if isinstance(found, Reason) else None
            reason = known[alike]
            if reason is None:
                passed.append(name)
            else:
                failed[name] = reason
        return passed, failed

    def _likeness(self, name: str, request: PodRequest) -> object:
        """Equal for nodes that give equal answers to the request."""
        node, account = self._nodes.get(name), self.ledger.nodes.get(name)
        if node is None or account is None or request.uuids or request.avoids:
            return name
        cards = tuple(
            (s.card.index, s.card.model, s.card.memory, s.card.health,
             s.free_mib, s.free_percent, s.empty)
            for s in account.states()
        )  # fmt: skip
        budget = node.budget
        return (account.unit, account.problem, cards, budget.offered, budget.asked)

    def first_fit(self, nodes: Sequence[str], request: PodRequest) -> str:
        """The first of the nodes that has room for such a pod, or ''."""
        if self.fleet.covers(request):
            fits = self.fleet.ask(nodes, request, explain=False).fits
            return nodes[int(fits.argmax())] if fits.any() else ""
        return next(
            (node for node in nodes if isinstance(self.fit(node, "", request), Placement)), ""
        )

    def fitting(self, nodes: Sequence[str], request: PodRequest) -> Iterator[str]:
        """The nodes of these that have room for such a pod, in their order."""
        if self.fleet.covers(request):
            fits = self.fleet.ask(nodes, request, explain=False).fits
            yield from (nodes[i] for i in fits.nonzero()[0].tolist())
        else:
            for node in nodes:
                if isinstance(self.fit(node, "", request), Placement):
                    yield node

    def slice_of(self, uid: str) -> Slice | None:
        return self.ledger.slices.get(uid)

    def cpu_of(self, uid: str) -> int:
        """What the pod requests of CPU, in mCPU; 0 if it has not been seen yet."""
        fact = self.pods.get(uid)
        return fact.cpu if fact else 0

    def pod_named(self, namespace: str, name: str) -> PodFact | None:
        return self.pods.get(self._by_name.get((namespace, name), ""))

    def node_fact(self, name: str) -> NodeFact | None:
        node = self._nodes.get(name)
        return node.fact if node else None

    def cards_of(self, name: str) -> Mapping[str, Card]:
        """The node's cards by uuid."""
        account = self.ledger.nodes.get(name)
        return account.cards if account else {}

    def pods_on(self, name: str) -> list[PodFact]:
        """The pods that are bound to the node."""
        node = self._nodes.get(name)
        facts = (self.pods.get(uid) for uid in node.asking) if node else ()
        return [fact for fact in facts if fact is not None and fact.node == name]

    def node_names(self) -> list[str]:
        """All nodes that publish cards, or on which slices are."""
        return sorted(self.ledger.nodes)

    def held_after_deletion(self, uid: str) -> bool:
        """Whether the slice is kept only because its containers may still run."""
        return uid in self._holds

    # -- the binder's reservations ---------------------------------------------------------------

    def reserve(
        self, pod: PodRef, node: str, request: PodRequest, prefer: Sequence[str] = ()
    ) -> Placement | Reason:
        """Take a place on the node for a bind that is about to be sent, on cards of ``prefer`` if it
        fits there."""
        found = self.fit(node, pod.uid, request, prefer=prefer)
        if isinstance(found, Placement) and self.line is not None:
            found = self.line.place(node, pod.uid, request, found)
        if isinstance(found, Placement):
            self._ask(pod.uid, node, amounts(request, self.rules.unit), self.cpu_of(pod.uid))
            self.ledger.hold(pod, found, reserved=True)
        return found

    def bound(self, uid: str) -> None:
        """The API has taken the bind; the watch will say so too."""
        held = self.ledger.slices.get(uid)
        if held is not None and held.reserved:
            self._bound_at[uid] = self.clock.now()

    def is_bound(self, uid: str) -> bool:
        """Whether the pod is bound for sure; False where it has only a reservation, or nothing."""
        held = self.ledger.slices.get(uid)
        return held is not None and (not held.reserved or uid in self._bound_at)

    def is_gone(self, uid: str) -> bool:
        """Whether the pod was seen to end."""
        return uid in self._gone

    def drop_reservation(self, uid: str) -> None:
        """The bind did not happen. Harmless when a watch event has settled it already."""
        self._bound_at.pop(uid, None)
        held = self.ledger.slices.get(uid)
        if held is None or not held.reserved:
            return
        fact = self.pods.get(uid)
        if fact is None or not fact.node:
            self._ask_no_more(uid, held.placement.node)
        self._release(uid)

    # -- nodes -----------------------------------------------------------------------------------

    def apply_node(self, fact: NodeFact) -> None:
        known = self._nodes.get(fact.name)
        old = known.fact if known else None
        if fact.uid in self._gone or (old is None and 0 < fact.version <= self._nodes_listed):
            return
        node = self._nodes.setdefault(fact.name, _Node())
        if old is not None and fact.version < old.version:
            return
        node.fact = fact
        node.budget.offered = fact.offered
        node.budget.cpu_offered = fact.cpu
        if old is not None and (old.cards, old.problem) == (fact.cards, fact.problem):
            if old.takes_pods != fact.takes_pods:
                self._changed(fact.name)
            if (old.offered, old.cpu) != (fact.offered, fact.cpu):
                self._changed(fact.name)
                self._more_room(fact.name)
            return
        if fact.problem:
            log.warning(
                "node %s: annotation %s cannot be read: %s; restart its device plugin",
                fact.name, self.rules.names.cards, fact.problem,
            )  # fmt: skip
            self.ledger.distrust(fact.name, fact.problem)
        elif fact.cards is None:
            self.ledger.withdraw(fact.name)
        else:
            self.ledger.publish(fact.name, self._less_ordered_out(fact.name, fact.cards))
        self._changed(fact.name)
        self._judge_again(fact.name)
        self._more_room(fact.name)
        for tell in self.on_cards:
            tell(fact.name)

    def order_out(self, name: str, indexes: frozenset[int]) -> None:
        """Somebody wants these cards of the node out of service, whatever the node says of them."""
        if indexes == self._ordered_out.get(name, frozenset()):
            return
        self._ordered_out[name] = indexes
        fact = self.node_fact(name)
        if fact is not None and fact.cards is not None:
            self.ledger.publish(name, self._less_ordered_out(name, fact.cards))
            self._changed(name)
            self._more_room(name)

    def _less_ordered_out(self, name: str, node: NodeCards) -> NodeCards:
        out = self._ordered_out.get(name)
        if not out:
            return node
        cards = (
            replace(c, health=ORDERED_OUT) if c.index in out and c.healthy else c
            for c in node.cards
        )
        return replace(node, cards=tuple(cards))

    def remove_node(self, name: str, uid: str = "") -> None:
        """The node's object is gone. Pods on it keep their slices until they are gone too."""
        node = self._nodes.get(name)
        if node is None or node.fact is None or (uid and uid != node.fact.uid):
            return
        self._bury(node.fact.uid)
        node.fact = None
        node.budget.offered, node.budget.cpu_offered = NONE, 0
        self.ledger.withdraw(name)
        self.fleet.remove(name)
        if not node.asking:
            del self._nodes[name]

    def replace_nodes(self, facts: Iterable[NodeFact], version: int = 0, since: float = 0) -> None:
        """A full list was read: what is not in it is gone."""
        names = set()
        self._nodes_listed = 0
        for fact in facts:
            names.add(fact.name)
            self.apply_node(fact)
        for name in [n for n, node in self._nodes.items() if node.fact and n not in names]:
            self.remove_node(name)
        self._nodes_listed = version

    # -- pods ------------------------------------------------------------------------------------

    def apply_pod(self, fact: PodFact) -> None:
        uid = fact.ref.uid
        if uid in self._gone:
            return
        old = self.pods.get(uid)
        # An event of a pod that the last list would have shown, had it still been there, is late.
        late = fact.version < old.version if old else 0 < fact.version <= self._pods_listed
        if late:
            return
        if fact.finished:
            self._forget(uid)
            return
        key = (fact.ref.namespace, fact.ref.name)
        namesake = self._by_name.get(key)
        if namesake is not None and namesake != uid:
            self._deleted(namesake, self.pods[namesake])
        self._by_name[key] = uid
        self.pods[uid] = fact
        if not fact.node:
            self._tell_pod(uid, fact)
            return
        self._ask(uid, fact.node, fact.amounts, fact.cpu)
        self._enter(fact)
        self._tell_pod(uid, None)

    def remove_pod(self, fact: PodFact) -> None:
        """The pod's object was deleted; ``fact`` is its last state."""
        uid = fact.ref.uid
        if uid in self._gone:
            return
        if fact.finished:
            self._forget(uid)
        else:
            self._deleted(uid, fact)

    def replace_pods(self, facts: Iterable[PodFact], version: int, since: float) -> None:
        """A full list of that version, begun at ``since``, was read: what is not in it is gone.

        About pods that were read or bound after it began the list says nothing. A bind that is
        still in flight is settled by the binder.
        """
        listed = sorted(facts, key=lambda f: (f.bound, f.created, f.ref.uid))
        present = {fact.ref.uid for fact in listed}
        for uid in [u for u, f in self.pods.items() if u not in present and f.version <= version]:
            self._deleted(uid, self.pods[uid])
        for uid in [u for u, at in self._bound_at.items() if u not in present and at < since]:
            self.drop_reservation(uid)
        self._pods_listed = 0
        for fact in listed:
            self.apply_pod(fact)
        self._pods_listed = version

    # -- how slices come and go ------------------------------------------------------------------

    def _enter(self, fact: PodFact) -> None:
        """A bound pod: settle what it holds."""
        uid = fact.ref.uid
        held = self.ledger.slices.get(uid)
        if held is not None and held.placement.node == fact.node:
            if held.reserved:
                self._bound_at.pop(uid, None)
                self.ledger.hold(held.pod, held.placement)
            if fact.placement != held.placement and not (fact.told and not fact.placement):
                self._doubt(fact, "its placement annotation was changed after it was placed")
            return
        if held is not None:
            # Somebody else bound it elsewhere while our bind was on its way.
            self._ask_no_more(uid, held.placement.node)
            self._release(uid)
        self._judge(fact)

    def _judge(self, fact: PodFact) -> Verdict:
        uid = fact.ref.uid
        account = self.ledger.nodes.get(fact.node)
        states = account.states() if account else []
        verdict = judge(fact, states, published=bool(account and account.cards))
        node = self._nodes.setdefault(fact.node, _Node())
        if verdict.provisional:
            node.doubtful.add(uid)
        else:
            node.doubtful.discard(uid)
        if verdict.doubt:
            self._doubt(fact, verdict.doubt)
        else:
            self.doubts.pop(uid, None)
        if verdict.holds is not None:
            self.ledger.hold(fact.ref, verdict.holds)
        return verdict

    def _judge_again(self, name: str) -> None:
        """The node's cards or what is free on them changed: maybe doubtful pods are fine now."""
        node = self._nodes.get(name)
        doubtful = [self.pods[uid] for uid in node.doubtful] if node else []
        for fact in sorted(doubtful, key=lambda f: (f.bound, f.created, f.ref.uid)):
            freed = self.ledger.release(fact.ref.uid)
            if freed and self._judge(fact).holds is None:
                self._more_room(name)
            elif not freed:
                self._judge(fact)

    def _doubt(self, fact: PodFact, problem: str) -> None:
        """Say once what is wrong with a pod's placement."""
        uid = fact.ref.uid
        if self.doubts.get(uid) == problem:
            return
        self.doubts[uid] = problem
        consequence = (
            "it runs, so it is counted all the same" if fact.started else "it will not start"
        )
        log.warning(
            "pod %s on node %s: %s; %s; delete it and let %s place it",
            fact.ref, fact.node, problem, consequence, fact.scheduler or "our scheduler",
        )  # fmt: skip

    def _deleted(self, uid: str, fact: PodFact) -> None:
        """The object is gone. Whether the containers are, its last state says, or time will."""
        held = self.ledger.slices.get(uid)
        if held is None or not fact.started or fact.ended or not fact.node:
            self._forget(uid)
            return
        self._drop_fact(uid)
        seconds = min(self.max_hold, max(0, fact.grace) + _KUBELET_SLACK)
        log.info(
            "pod %s was deleted while its containers run; its slice on %s is free in %d s at most",
            fact.ref, fact.node, seconds,
        )  # fmt: skip
        timer = self.clock.call_later(seconds, lambda: self.containers_gone(uid))
        self._holds[uid] = _Hold(timer, self.clock.now())

    def containers_gone(self, uid: str) -> None:
        """The node confirms that nothing of a deleted pod runs any more, or its time has passed."""
        if uid in self._holds:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        """Nothing of the pod is left."""
        hold = self._holds.pop(uid, None)
        if hold is not None:
            hold.timer.cancel()
        self._drop_fact(uid)
        held = self.ledger.slices.get(uid)
        if held is not None:
            self._ask_no_more(uid, held.placement.node)
        self._release(uid)

    def _drop_fact(self, uid: str) -> None:
        fact = self.pods.pop(uid, None)
        self._bury(uid)
        if fact is None:
            return
        self.doubts.pop(uid, None)
        key = (fact.ref.namespace, fact.ref.name)
        if self._by_name.get(key) == uid:
            del self._by_name[key]
        if fact.node:
            self._nodes[fact.node].doubtful.discard(uid)
            if uid not in self.ledger.slices:
                self._ask_no_more(uid, fact.node)
        self._tell_pod(uid, None)

    def _bury(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)

    def _release(self, uid: str) -> None:
        self._bound_at.pop(uid, None)
        held = self.ledger.release(uid)
        if held is not None:
            self._judge_again(held.placement.node)
            self._more_room(held.placement.node)

    # -- what the kubelets count -----------------------------------------------------------------

    def _ask(self, uid: str, name: str, want: Amounts, cpu: int) -> None:
        node = self._nodes.setdefault(name, _Node())
        before, cpu_before = node.asking.get(uid, (NONE, 0))
        if (before, cpu_before) == (want, cpu) and uid in node.asking:
            return
        node.asking[uid] = want, cpu
        node.budget.asked += want - before
        node.budget.cpu_asked += cpu - cpu_before
        self._changed(name)

    def _ask_no_more(self, uid: str, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or uid not in node.asking:
            return
        want, cpu = node.asking.pop(uid)
        node.budget.asked -= want
        node.budget.cpu_asked -= cpu
        if node.fact is None and not node.asking:
            del self._nodes[name]
        else:
            self._changed(name)
        self._more_room(name)

    # -- telling others --------------------------------------------------------------------------

    def _changed(self, name: str) -> None:
        self.changes += 1
        for tell in self.on_change:
            tell(name)
        node = self._nodes.get(name)
        if node is not None and node.fact is not None:
            account: NodeAccount | None = self.ledger.nodes.get(name)
            self.fleet.update(name, account, node.budget)

    def _more_room(self, name: str) -> None:
        for tell in self.on_room:
            tell(name)

    def _tell_pod(self, uid: str, fact: PodFact | None) -> None:
        for tell in self.on_pod:
            tell(uid, fact)
