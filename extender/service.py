"""The whole extender, wired: watches, view, binder, waking, events and both web applications."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from fastapi import FastAPI

from extender import state, verbs
from extender.admission.review import Webhook
from extender.admission.settings import Webhook as WebhookSettings
from extender.api import KubeApi
from extender.auth import Gate
from extender.binder import Binder
from extender.changes import Changes
from extender.claims.controller import Controller
from extender.clock import Clock, LoopClock
from extender.drift import Drift
from extender.events import Announcer
from extender.facts import NodeFact, PodFact
from extender.fits import Fitting
from extender.fitting import Rules
from extender.history import History
from extender.learning import Learned
from extender.metrics import CardPage, CountCollector, Metrics, ViewCollector, admission_counts
from extender.planning import Planner
from extender.ranking import Ranking
from extender.reflector import Reflector, Sink
from extender.scoring import Workload
from extender.unhealthy_maps import UnhealthyMaps
from extender.usage import Gatherer, Usage, UsageSettings
from extender.verbs import Verbs
from extender.view import ClusterView
from extender.waiting import Fairness, Waiting
from extender.waking import Waker
from extender.why import Explainer
from gpushare.names import Names

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Learning:
    """What the scores start from, and where they keep what they learn ('': nowhere)."""

    workload: Workload = field(default_factory=Workload)
    where: str = ""


class Service:
    """All parts of one extender. ``run`` follows the cluster until cancelled."""

    def __init__(
        self,
        api: KubeApi,
        rules: Rules,
        max_hold: float = 90,
        clock: Clock | None = None,
        learning: Learning | None = None,
        fairness: Fairness | None = None,
        plugins: UsageSettings | None = None,
    ) -> None:
        learning = learning or Learning()
        self.api = api
        self.clock = clock or LoopClock()
        self.view = ClusterView(rules, self.clock, max_hold)
        self.metrics = Metrics()
        self.ranking = Ranking(self.view.fleet, rules.policy, learning.workload)
        self.learned = Learned(api, self.ranking, learning.where)
        self.binder = Binder(api, self.view, rules.names, self.ranking)
        self.verbs = Verbs(self.view, self.binder, self.metrics)
        self.waker = Waker(api, rules.names.prefix)
        self.waiting = Waiting(self.view, self.waker, fairness)
        self.usage = Usage(self.clock)
        self.plugins = plugins or UsageSettings()
        self.gatherer = Gatherer(api, self.plugins, self.usage)
        self.changes = Changes(self.view, self.waiting)
        self.history = History(self.view, self.waiting, self.usage)
        self.usage.on_change.append(self.changes.usage)
        self.drift = Drift(self.view)
        self.announcer = Announcer(api, self.view, rules.names.event_source)
        self.gate = Gate(api, self.clock)
        self.nodes = Reflector[NodeFact](
            api,
            "/api/v1/nodes",
            Sink(
                self.view.reader.node,
                self.view.replace_nodes,
                self.view.apply_node,
                lambda fact: self.view.remove_node(fact.name, fact.uid),
            ),
            self.clock,
        )
        self.pods = Reflector[PodFact](
            api,
            "/api/v1/pods",
            Sink(
                self.view.reader.pod,
                self.view.replace_pods,
                self.view.apply_pod,
                self.view.remove_pod,
            ),
            self.clock,
            marker=_markers(rules.names),
        )
        self.claims = (
            Controller(api, self.view, self.clock)
            if any(dialect.claims for dialect in rules.names.spoken)
            else None
        )
        self.unhealthy_maps = [
            UnhealthyMaps(api, self.view, dialect.unhealthy_map, self.clock)
            for dialect in rules.names.spoken
            if dialect.unhealthy_map
        ]
        # Parts beside this one that /readyz waits for: each says why it is not up yet, or ''.
        self.starting: list[Callable[[], str]] = []
        self._progress = {"nodes": self.nodes.progress, "pods": self.pods.progress}
        self.verbs.on_refused += [self._refused, self.announcer.refused]
        self.metrics.cards = CardPage(self.view, self.usage)
        self.metrics.registry.register(ViewCollector(self.view))
        self.metrics.registry.register(self._counts())
        self.verbs_app: FastAPI = verbs.application(self.verbs)
        sources = state.Sources(
            view=self.view,
            waiting=self.waiting,
            usage=self.usage,
            changes=self.changes,
            history=self.history,
            explainer=Explainer(self.view, self.waiting),
            fitting=Fitting(self.view, self.ranking.scores),
            planner=Planner(self.view, self.waiting, self.usage),
            unready=self.unready,
            starting=self._starting,
        )
        self.state_app: FastAPI = state.application(sources, self.gate, self.metrics)

    def webhook(self, settings: WebhookSettings) -> Webhook:
        """The admission webhook, for a port of its own."""
        claims = self.claims
        made = Webhook(
            self.view,
            settings.wishes,
            self.unready,
            refuse_too_large=settings.refuse_too_large,
            claims=(lambda: claims.claims) if claims is not None else None,
        )
        self.metrics.registry.register(admission_counts(made))
        return made

    def unready(self) -> str:
        """Why the extender cannot answer yet, or ''."""
        for what, progress in self._progress.items():
            if not progress.synced.is_set():
                problem = progress.problem
                return f"the {what} are not read yet" + (f": {problem}" if problem else "")
        return ""

    def _starting(self) -> str:
        """What else is not up yet, or ''."""
        return next((why for part in self.starting if (why := part())), "")

    async def run(self) -> None:
        """Follow the cluster, wake and tell pods. Ends only by cancellation."""
        # The first lists make millions of objects that stay; looking through them again and again for
        # garbage would be a third of the work.
        gc.set_threshold(50_000, 20, 100)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.nodes.run())
            for maps in self.unhealthy_maps:
                tasks.create_task(maps.run())
            # Placements are judged against the cards of their nodes, so the nodes come first.
            await self.nodes.progress.synced.wait()
            tasks.create_task(self.pods.run())
            await self.pods.progress.synced.wait()
            self._ready()
            if self.claims is not None:
                tasks.create_task(self.claims.run())
            tasks.create_task(self.waiting.run())
            tasks.create_task(self.announcer.run())
            tasks.create_task(self.history.run())
            tasks.create_task(self.drift.run())
            if self.plugins.service:
                tasks.create_task(self.gatherer.run())
            tasks.create_task(self.learned.run())

    def _ready(self) -> None:
        self.verbs.ready = True
        self.waiting.resume()
        self.changes.begin()
        log.info(
            "ready: %d nodes with cards, %d slices, %d pods waiting",
            len(self.view.ledger.nodes), len(self.view.ledger.slices), len(self.waiting.pods),
        )  # fmt: skip
        # What was read at the start stays; the collector need not walk it again in each pause.
        gc.collect()
        gc.freeze()
        gc.set_threshold(700, 10, 10)

    def _refused(self, fact: PodFact, nodes: Sequence[str]) -> None:
        if fact.request:
            self.waiting.refused(fact, nodes)

    def _counts(self) -> CountCollector:
        return CountCollector(
            counters={
                "gpushare_binds": (
                    "Binds by result",
                    "result",
                    lambda: {k: float(v) for k, v in asdict(self.binder.counts).items()},
                ),
                "gpushare_lists": (
                    "Full lists read from the API",
                    "resource",
                    lambda: {k: float(p.lists) for k, p in self._progress.items()},
                ),
                "gpushare_wakeups": (
                    "Waiting pods that were touched because a slice became free",
                    "kind",
                    lambda: {"touched": float(self.waker.woken)},
                ),
            },
            gauges={
                "gpushare_watch_age_seconds": (
                    "Time since the watch last said anything",
                    "resource",
                    lambda: {
                        k: max(0.0, self.clock.now() - p.heard) for k, p in self._progress.items()
                    },
                ),
                "gpushare_waiting_pods": (
                    "Unbound pods that ask for a slice",
                    "state",
                    lambda: {"all": float(len(self.waiting.pods))},
                ),
                "gpushare_longest_wait_seconds": (
                    "How long the pod that waits longest has waited, as far as we saw it",
                    "state",
                    lambda: {"all": self.waiting.longest()},
                ),
                "gpushare_ledger_drift_slices": (
                    "Slices or cards whose entry in the ledger differs from a fresh one; should be 0",
                    "state",
                    lambda: {"all": float(self.drift.found)},
                ),
                "gpushare_usage_age_seconds": (
                    "Time since the node last said what its slices use",
                    "node",
                    self.usage.ages,
                ),
                "gpushare_usage_silent_nodes": (
                    "Nodes that do not say what their slices use",
                    "state",
                    lambda: {"all": float(len(self.usage.problems()))},
                ),
            },
        )


def _markers(names: Names) -> tuple[bytes, ...]:
    """One of these is in every pod that asks for cards."""
    foreign = (f'"{resource.name}"' for resource in names.foreign)
    return tuple(text.encode() for text in (f'"{names.prefix}/', *foreign))
