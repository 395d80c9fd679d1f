"""Random sequences of all that can happen, against the real reflector, view and binder.

The API double stands at the HTTP edge, and a small model of kubelets and device plugins says which
containers really run. After every step: no card is promised twice, what runs is in the ledger, what
is in the ledger exists, and a ledger that is built anew is the same.

GPUSHARE_STEPS sets how many steps are taken: few by default, 10,000 in ``make test-thorough``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from extender import reflector, service
from extender.facts import FactReader
from extender.trust import mismatch
from extender.view import ClusterView
from gpushare import cards, placement
from gpushare.cards import Card
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.units import GIB
from tests.unit.extender.api_double import ApiDouble, Fault, Object
from tests.unit.extender.conftest import RULES, Extender, HandClock, running, until
from tests.unit.extender.objects import (
    NAMES,
    a10,
    bound,
    container,
    finished,
    node,
    pod,
    started,
    t4,
)

STEPS = int(os.environ.get("GPUSHARE_STEPS", "150"))
READER = FactReader(NAMES, GIB)
NUMBERS = st.integers(0, 99)
FAULTS: list[Fault] = ["", "lost", "unanswered", "truncated", "wrong", 500, 409]
# What may come down a watch in place of an event. The marker makes it be looked at at all.
LINES = [
    b'{"type":"MODIFIED","object":{"metadata":{"annotations":{"gpushare/',
    b'{"type":"ADDED","object":null,"x":"gpushare/"}',
    b'{"type":7,"object":{"metadata":{"resourceVersion":"gpushare/"}}}',
    b'["gpushare/"]',
    b'{"type":"DELETED","object":{"metadata":{"name":[],"uid":{"gpushare/":1}}}}',
    b'{"type":"ADDED","object":{"metadata":7,"spec":{"containers":[{"resources":'
    b'{"limits":{"gpushare/gpu-mem":{}}}}]}}}',
    b'{"type":"ERROR","object":{"code":"gpushare/","message":[]}}',
    b'{"type":"ERROR","object":{"code":500,"message":"etcd is away, gpushare/"}}',
    b'{"type":"MODIFIED","object":"gpushare/' + b"x" * 300_000 + b'"}',
    b"\xff\xfegpushare/\x00",
]
BODIES = [
    b"", b"null", b"[]", b"7", b'"x"', b"{", b'{"Pod":', b"\xff", b"[" * 5000, b"{}",
    b'{"Pod":{"metadata":[],"spec":7},"NodeNames":["t4-1"]}',
    b'{"pod":{"spec":{"containers":[{"resources":{"limits":{"gpushare/gpu-mem":"-1"}}}]}},'
    b'"nodenames":["t4-1",""]}',
    b'{"Pod":{},"NodeNames":"t4-1"}', b'{"Pod":{},"Nodes":{"Items":[7]}}',
    b'{"PodName":"pod-1","PodNamespace":"jupyter","PodUID":"other","Node":"t4-1"}',
    b'{"podname":"pod-1","podnamespace":"..","poduid":"u","node":"' + b"n" * 100_000 + b'"}',
    b'{"Pod":{},"NodeNameToMetaVictims":{"t4-1":{"Pods":[{"UID":7}]}}}',
    b'{"Pod":{},"NodeNameToVictims":[]}',
]  # fmt: skip
NODES = {
    "t4-1": (t4("t4-1", 0), t4("t4-1", 1)),
    "a10-1": tuple(a10("a10-1", i) for i in range(4)),
    "mix-1": (t4("mix-1", 0), a10("mix-1", 1)),
}


def some_pods() -> st.SearchStrategy[Object]:
    """A pod of each kind that people write."""

    def named(number: int) -> str:
        return f"pod-{number}"

    names = st.integers(0, 11).map(named)
    mem, percent = st.sampled_from([1, 3, 7, 11, 15, 22]), st.sampled_from([10, 25, 50, 100, 200])
    return st.one_of(
        st.builds(lambda n, m: pod(n, mem=m), names, mem),
        st.builds(lambda n, p: pod(n, percent=p), names, percent),
        st.builds(lambda n, m: pod(n, mem=m, percent=30), names, mem),
        st.builds(
            lambda n, a, b: pod(n, container("a", mem=a), container("b", mem=b)), names, mem, mem
        ),
        st.builds(lambda n, a, b: pod(n, mem=a, init=[container("i", mem=b)]), names, mem, mem),
        st.builds(lambda n, m: pod(n, mem=m, annotations={NAMES.cards: "2"}), names, mem),
        st.builds(lambda n: pod(n, mem=3, annotations={NAMES.card_model: "A10"}), names),
        st.builds(lambda n: pod(n, percent=150), names),
    )


class ExtenderMachine(RuleBasedStateMachine):
    """One cluster with one extender."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.api = ApiDouble()
        self.clock = HandClock()
        self.stack = contextlib.AsyncExitStack()
        self.extender: Extender
        # uid -> what its containers hold of which card, whatever the API says about them.
        self.runs: dict[str, dict[str, tuple[int, int]]] = {}
        self.by_hand: set[str] = set()
        self.uids = 0
        # uid -> when the object of a pod that runs was deleted
        self.orphans: dict[str, float] = {}
        self.tampered = False
        self.unreadable: set[str] = set()
        self.shrunk = False
        self.faults: dict[str, list[Fault]] = {}
        self.wall = 1_700_000_000.0

    @initialize()
    def begin(self) -> None:
        for name, published in NODES.items():
            self.api.put("nodes", node(name, *published))
        for number in range(8):
            its = pod(f"pod-{number}", mem=(3, 7, 15)[number % 3])
            self._fresh_uid(its)
            self.api.put("pods", its)
        self.api.faults = self._fault
        self.runner.run(self._start())

    def teardown(self) -> None:
        self.faults.clear()
        if hasattr(self, "extender"):
            self.runner.run(self.stack.aclose())
        self.runner.close()

    # Nothing is drawn that depends on the state: what a race decides must not change what is drawn.

    # -- the scheduler ---------------------------------------------------------------------------

    @rule(several=st.lists(some_pods(), min_size=1, max_size=6))
    def create(self, several: list[Object]) -> None:
        """New pods; one of that name that is still there is deleted by force first."""
        for its in several:
            key = (its["metadata"]["namespace"], its["metadata"]["name"])
            if key in self.api.objects["pods"]:
                self.api.delete("pods", *key)
            self._fresh_uid(its)
            self.api.put("pods", its)
        self._settle()

    @rule(
        picks=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6),
        heed=st.booleans(),
        binding=st.lists(st.sampled_from(FAULTS), max_size=4),
        reading=st.lists(st.sampled_from(FAULTS), max_size=3),
    )
    def schedule(
        self,
        picks: list[tuple[int, int]],
        heed: bool,
        binding: list[Fault],
        reading: list[Fault],
    ) -> None:
        """Filter and bind pods, several at once; now and then without heeding the filter.

        The first binds, and the first reads of pods, may go wrong.
        """
        names = sorted(name for _, name in self.api.objects["nodes"])
        binds = []
        for number, where in picks:
            its = _pick(self._pending(), number)
            if its is None or not names:
                continue
            passed = self.extender.filter(its, *names).get("NodeNames")
            if passed:
                scores = list(self.extender.prioritize(its, *passed).values())
                assert scores.count(10) == 1
            name = _pick(passed if heed else [*names, "unknown"], where)
            if name is not None:
                binds.append((its, name))
        self.faults = {"binding": list(binding), "reading": list(reading)}
        self.runner.run(self._bind(binds))
        self._settle()

    @rule(number=NUMBERS)
    def bind_again(self, number: int) -> None:
        its = _pick(self._bound(), number)
        if its is not None and its["metadata"]["uid"] not in self.by_hand:
            before = len(self.api.bindings)
            self.runner.run(self._bind([(its, its["spec"]["nodeName"])]))
            assert len(self.api.bindings) == before
            self._settle()

    # -- the nodes -------------------------------------------------------------------------------

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=5))
    def start(self, numbers: list[int]) -> None:
        """Kubelet and device plugin start pods' containers, where their placement is good."""
        for number in numbers:
            its = _pick(self._bound(), number)
            footprint = self._granted(its) if its else None
            if its and footprint is not None and its["metadata"]["uid"] not in self.runs:
                self.runs[its["metadata"]["uid"]] = footprint
                self._edit(its, started)

    @rule(number=NUMBERS, phase=st.sampled_from(["Succeeded", "Failed"]))
    def finish(self, number: int, phase: str) -> None:
        its = _pick(self._bound(), number)
        if its is not None:
            self.runs.pop(its["metadata"]["uid"], None)
            self._edit(its, lambda obj: finished(obj, phase))

    @rule(number=NUMBERS)
    def delete_gracefully(self, number: int) -> None:
        """Marked first; gone when the kubelet has ended the containers."""
        key = _pick(sorted(self.api.objects["pods"]), number)
        if key is None:
            return
        its = self.api.objects["pods"][key]
        if not its["metadata"].get("deletionTimestamp") and its["spec"].get("nodeName"):
            self._edit(its, _mark)
            return
        self.runs.pop(its["metadata"]["uid"], None)
        if its["spec"].get("nodeName"):
            self._edit(its, finished)
        self.api.delete("pods", *key)
        self._settle()

    @rule(number=NUMBERS)
    def delete_by_force(self, number: int) -> None:
        """The object is gone at once; what ran runs on for its grace period."""
        key = _pick(sorted(self.api.objects["pods"]), number)
        if key is not None:
            self.api.delete("pods", *key)
            self._settle()

    @rule(seconds=st.sampled_from([1, 30, 50]))
    def time_passes(self, seconds: int) -> None:
        """The kubelet ends what was deleted by force within its grace period, 30 s, or soon after."""
        over = self.clock.time + seconds - 35
        for uid in [uid for uid, since in self.orphans.items() if since <= over]:
            del self.orphans[uid]
            self.runs.pop(uid, None)

        async def pass_by() -> None:
            self.clock.pass_by(seconds)

        self.runner.run(pass_by())
        self._settle()

    @rule(
        name=st.sampled_from(sorted(NODES)),
        what=st.sampled_from(["healthy", "sick", "fewer", "smaller", "garbage", "none"]),
        text=st.text(max_size=5),
    )
    def change_cards(self, name: str, what: str, text: str) -> None:
        """Cards turn unhealthy, vanish, shrink, come back; the annotation may be garbage."""
        its: tuple[Card, ...] = NODES[name]
        if what == "sick":
            its = (replace(its[0], health="XID 79"), *its[1:])
        elif what == "fewer":
            its = its[1:]
        elif what == "smaller":
            its = tuple(replace(card, memory=8192) for card in its)
        self.shrunk = self.shrunk or what == "smaller"
        obj = node(name, *its) if what != "none" else node(name)
        if what == "garbage":
            obj["metadata"]["annotations"][NAMES.cards] = text
        known = self.api.objects["nodes"].get(("", name))
        obj["metadata"]["uid"] = known["metadata"]["uid"] if known else f"{name}-{self.api.version}"
        self.api.put("nodes", obj)
        self._settle()

    @rule(name=st.sampled_from(sorted(NODES)))
    def delete_node(self, name: str) -> None:
        if ("", name) in self.api.objects["nodes"]:
            self.api.delete("nodes", "", name)
            self._settle()

    # -- tenants who write what they should not --------------------------------------------------

    @rule(its=some_pods(), name=st.sampled_from(sorted(NODES)), forgery=NUMBERS)
    def bind_by_hand(self, its: Object, name: str, forgery: int) -> None:
        """spec.nodeName set by the tenant, with no placement or one of any kind."""
        if (its["metadata"]["namespace"], its["metadata"]["name"]) in self.api.objects["pods"]:
            return
        self._fresh_uid(its)
        others = [
            p["metadata"]["annotations"][NAMES.placement]
            for p in self._bound()
            if NAMES.placement in p["metadata"]["annotations"]
        ]
        text = _pick([None, "{}", self._perfect(its, name), *others], forgery)
        its["status"]["conditions"] = [self.api.scheduled()]
        self.by_hand.add(its["metadata"]["uid"])
        self.api.put("pods", bound(its, name, text))
        self._settle()

    @rule(number=NUMBERS, text=st.sampled_from([None, "", "{}", "x"]))
    def tamper(self, number: int, text: str | None) -> None:
        """The annotation of a bound pod is changed."""
        its = _pick(self._bound(), number)
        if its is not None:
            self.tampered = True
            self._edit(its, lambda obj: _rewrite(obj, text))

    # -- the API's own troubles ------------------------------------------------------------------

    @rule(what=st.sampled_from(["cut", "expire", "repeat pods", "repeat nodes"]), n=NUMBERS)
    def watches(self, what: str, n: int) -> None:
        if what == "cut":
            self.api.cut()
        elif what == "expire":
            self.api.expire()
        else:
            self.api.repeat(what.split()[1], n)
        self._settle()

    @rule(
        kind=st.sampled_from(["nodes", "pods"]),
        lines=st.lists(st.integers(0, len(LINES) - 1), max_size=3),
    )
    def spoilt_lines(self, kind: str, lines: list[int]) -> None:
        """The watch says what no API server says."""
        for line in lines:
            self.api.garble(kind, LINES[line])
        self._settle()

    @rule(answers=st.lists(st.sampled_from(["lost", "truncated", "wrong", 503, 429]), max_size=6))
    def api_restarts(self, answers: list[Fault]) -> None:
        """The server goes away, answers nonsense while it starts, and is back."""
        self.faults["listing"] = list(answers)
        self.api.expire()
        self.runner.run(until(lambda: not self.faults["listing"], "the server is back"))
        self._settle()

    @rule(seconds=st.sampled_from([-1e9, -3600.0, 3600.0, 1e8]))
    def clocks_jump(self, seconds: float) -> None:
        """The time of day, here and at the API server."""
        self.wall += seconds
        self.api.skew = seconds

    @rule(
        body=st.integers(0, len(BODIES) - 1),
        verb=st.sampled_from(["filter", "prioritize", "preempt"]),
    )
    def nonsense_is_asked(self, body: int, verb: str) -> None:
        verbs = self.extender.service.verbs
        assert json.loads(getattr(verbs, verb)(BODIES[body])) is not None
        assert json.loads(self.runner.run(verbs.bind(BODIES[body])))["Error"]
        self._settle()

    @rule()
    def restart(self) -> None:
        """A new process: all that it knows comes from the API."""
        self.faults.clear()
        for uid in [uid for uid in self.runs if uid not in self._uids()]:
            # What was deleted by force is forgotten; the device plugin's own check stands for it.
            del self.runs[uid]

        async def again() -> None:
            await self.stack.aclose()
            await self._start()

        self.runner.run(again())
        self._settle()

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def no_card_is_promised_twice(self) -> None:
        sums: dict[str, tuple[int, int]] = {}
        for held in self.runs.values():
            for card, (mib, percent) in held.items():
                have = sums.get(card, (0, 0))
                sums[card] = (have[0] + mib, have[1] + percent)
        memory = {card.uuid: card.memory for its in NODES.values() for card in its}
        for card, (mib, percent) in sums.items():
            assert mib <= memory[card], card
            assert percent <= 100, card
        if hasattr(self, "extender") and not self.shrunk and not self.tampered:
            assert not list(self.extender.service.view.ledger.overbooked())

    @invariant()
    def what_runs_is_in_the_ledger(self) -> None:
        if not hasattr(self, "extender"):
            return
        view = self.extender.service.view
        slices = view.ledger.slices
        for uid, held in self.runs.items():
            fact = view.pods.get(uid)
            account = view.ledger.nodes.get(fact.node) if fact else None
            if uid in view.doubts and not (account and account.cards):
                # Its annotation is spoilt and its node shows no cards, so it can't be entered; nor
                # can anything be placed there. With the first card it is entered again.
                self.unreadable.add(uid)
                continue
            if fact is None and uid in self.unreadable:
                # Deleted by force before that: nothing says any more what it holds. The device
                # plugin, which knows, starts nobody on top of it.
                continue
            self.unreadable.discard(uid)
            entered = slices[uid].placement.footprint() if uid in slices else {}
            for card, (mib, percent) in held.items():
                assert entered.get(card, (0, 0)) >= (mib, percent), uid

    @invariant()
    def nothing_is_leaked(self) -> None:
        if not hasattr(self, "extender"):
            return
        view = self.extender.service.view
        live = {p["metadata"]["uid"] for p in self._bound()}
        for uid in view.ledger.slices:
            assert uid in live or view.held_after_deletion(uid), uid
        assert set(view.pods) == self._uids(unfinished=True)

    @invariant()
    def rebuilt_equals_live(self) -> None:
        if not hasattr(self, "extender"):
            return
        view = self.extender.service.view
        held = any(view.held_after_deletion(uid) for uid in view.ledger.slices)
        if held or view.doubts or self.by_hand & self._uids():
            return
        fresh = ClusterView(RULES, HandClock())
        fresh.replace_nodes([READER.node(n) for n in self.api.objects["nodes"].values()])
        facts = [READER.pod(p) for p in self.api.objects["pods"].values()]
        fresh.replace_pods([f for f in facts if f], version=self.api.version, since=0)
        if fresh.doubts:
            # A pod was placed before its card changed, and has not started: unsure by nature.
            return
        assert fresh.ledger.snapshot() == view.ledger.snapshot()

    @invariant()
    def the_arrays_say_what_the_ledger_says(self) -> None:
        if not hasattr(self, "extender"):
            return
        view, ask = self.extender.service.view, pod("probe", mem=3)
        request, _ = READER.request(ask)
        names = [name for _, name in sorted(self.api.objects["nodes"])]
        passed, failed = view.fit_many(names, request) if names else ([], {})
        for name in names:
            single = view.fit(name, "probe", request)
            assert (name in passed) == isinstance(single, Placement)
            assert failed.get(name, single) == single

    # -- helpers ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        self.extender = await self.stack.enter_async_context(running(self.api, clock=self.clock))
        self.extender.service.ranking.wall = lambda: self.wall
        self.api.faults = self._fault

    async def _bind(self, binds: list[tuple[Object, str]]) -> None:
        await asyncio.gather(*(self.extender.bind(its, name) for its, name in binds))

    def _settle(self) -> None:
        """Let the extender see everything, and forget about faults that were not met."""
        self.faults.clear()
        for uid in self.runs.keys() - self._uids():
            self.orphans.setdefault(uid, self.clock.time)

        async def settle() -> None:
            await self.extender.service.binder.drain(10)
            await self.extender.caught_up()

        self.runner.run(settle())

    def _fault(self, method: str, path: str) -> Fault:
        kind = "binding" if path.endswith("/binding") else ""
        if method == "GET":
            kind = "reading" if "/namespaces/" in path else "listing"
        if not self.faults.get(kind):
            return ""
        fault = self.faults[kind].pop(0)
        # A call without an answer has outlived the server's own limit.
        self.clock.time += 10
        return fault

    def _fresh_uid(self, its: Object) -> None:
        """As the API gives them: never twice."""
        self.uids += 1
        its["metadata"]["uid"] = f"pod-uid-{self.uids}"

    def _edit(self, its: Object, edit: Any) -> None:
        metadata = its["metadata"]
        self.api.change("pods", metadata["namespace"], metadata["name"], edit)
        self._settle()

    def _pending(self) -> list[Object]:
        return [p for _, p in sorted(self.api.objects["pods"].items())
                if not p["spec"].get("nodeName") and not _finished(p)]  # fmt: skip

    def _bound(self) -> list[Object]:
        return [p for _, p in sorted(self.api.objects["pods"].items())
                if p["spec"].get("nodeName") and not _finished(p)]  # fmt: skip

    def _uids(self, *, unfinished: bool = False) -> set[str]:
        return {
            p["metadata"]["uid"]
            for p in self.api.objects["pods"].values()
            if not (unfinished and _finished(p))
        }

    def _granted(self, its: Object) -> dict[str, tuple[int, int]] | None:
        """What the device plugin would give, or None where it refuses.

        It checks uid, node, cards and amounts; and for pods that the extender did not place also
        the sum on the card. Of those that it did place the sum must be right by itself.
        """
        fact, known = READER.pod(its), self.api.objects["nodes"].get(("", its["spec"]["nodeName"]))
        if fact is None or fact.placement is None or known is None or fact.deleting:
            return None
        try:
            its_cards = cards.decode(known["metadata"]["annotations"].get(NAMES.cards, ""))
        except ValueError:
            return None
        by_uuid = {card.uuid: card for card in its_cards.cards}
        placed = fact.placement
        if (placed.uid, placed.node) != (fact.ref.uid, fact.node):
            return None
        if mismatch(fact.request, placed, by_uuid, exact=True):
            return None
        footprint = placed.footprint()
        if fact.ref.uid in self.by_hand or self.tampered or self.shrunk:
            for card, (mib, percent) in footprint.items():
                running = [held[card] for held in self.runs.values() if card in held]
                if sum(m for m, _ in running) + mib > by_uuid[card].memory:
                    return None
                if sum(p for _, p in running) + percent > 100:
                    return None
                if percent == 100 and running:
                    return None
        return footprint

    def _perfect(self, its: Object, name: str) -> str:
        """A forgery that is right in every point but that nobody granted it."""
        request, _ = READER.request(its)
        card = NODES[name][0]
        containers = tuple(
            ContainerPlacement(c.name, c.role, (Share(card.uuid, *c.demand.on(card)),))
            for c in request.containers
        )
        return placement.encode(Placement(its["metadata"]["uid"], name, containers))


def _pick(choices: list[Any], number: int) -> Any:
    return choices[number % len(choices)] if choices else None


def _finished(its: Object) -> bool:
    return its["status"]["phase"] in ("Succeeded", "Failed")


def _mark(its: Object) -> None:
    its["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z"


def _rewrite(its: Object, text: str | None) -> None:
    its["metadata"]["annotations"].pop(NAMES.placement, None)
    if text is not None:
        its["metadata"]["annotations"][NAMES.placement] = text


def _with(card: Card, **changes: Any) -> Card:
    return replace(card, **changes)


@pytest.fixture(autouse=True, scope="module")
def _impatient() -> Any:
    """Reconnect at once, and leave the garbage alone: the machine cuts and restarts often."""
    tidy, service.gc = (
        service.gc,
        SimpleNamespace(collect=int, freeze=int, set_threshold=lambda *_: None),
    )
    patient = (reflector._BACKOFF_FIRST, reflector._BACKOFF_MOST)
    reflector._BACKOFF_FIRST, reflector._BACKOFF_MOST = 0.001, 0.002
    yield
    reflector._BACKOFF_FIRST, reflector._BACKOFF_MOST = patient
    service.gc = tidy


class AnotherMachine(ExtenderMachine):
    """The same once more, so that two processes can share the steps."""


TestExtenderMachine = ExtenderMachine.TestCase
TestAnotherMachine = AnotherMachine.TestCase
TestExtenderMachine.settings = TestAnotherMachine.settings = settings(
    # A sequence has 15 steps or so on average, 50 at most.
    max_examples=max(1, STEPS // 2 // 15),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A failing sequence is worth its minutes of shrinking only when somebody looks at it.
    phases=[phase for phase in Phase if phase is not Phase.shrink or STEPS > 1000],
)
