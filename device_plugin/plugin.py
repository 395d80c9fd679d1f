"""All parts of the daemon, put together, and the order in which they start and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_plugin.card_book import CardBook, Selection
from device_plugin.card_health import Rules, parse_xids
from device_plugin.card_keeper import CardKeeper, Pace
from device_plugin.container_start import ContainerStart
from device_plugin.credentials import Credentials
from device_plugin.delivery import DOWNWARD, Delivery, Way
from device_plugin.edits import Edits
from device_plugin.enforcement.assembly import Enforcing
from device_plugin.enforcement.rules import Level
from device_plugin.enforcement.settings import Enforcement
from device_plugin.events import Events
from device_plugin.feature_labels import feature_labels
from device_plugin.foreign import Foreign
from device_plugin.ids import served
from device_plugin.kube import Kube
from device_plugin.kubelet_state import CHECKPOINT, KubeletState
from device_plugin.node_publisher import NodePublisher, Publication, encode_in_force
from device_plugin.node_specs import NodeSpecs
from device_plugin.nvml import Nvml
from device_plugin.offers import Offers
from device_plugin.patience import wait_at_most
from device_plugin.physical_card import CardSource
from device_plugin.pod_store import PodStore
from device_plugin.pods import Pods
from device_plugin.refusal import Code, Refused
from device_plugin.registration import Registration
from device_plugin.runtime import Runtime
from device_plugin.service import Service
from device_plugin.slice_specs import SliceSpecs, held_by_others
from device_plugin.status_page import Metrics, StatusPage
from device_plugin.verdicts import VerdictFile
from device_plugin.verification import Node, Visible, placement_of
from gpushare.cards import NodeCards
from gpushare.names import Names
from gpushare.placement import ContainerPlacement
from gpushare.units import Unit

if TYPE_CHECKING:
    from device_plugin.app import DevicePlugin

log = logging.getLogger(__name__)

_CLEAN_EVERY = 60.0
_CLEAN_SOON = 1.0
_SYNC_LIMIT = 3.0


class Plugin:
    """The daemon. ``settings`` are the application's traits; ``source`` is for tests."""

    def __init__(
        self, settings: DevicePlugin, credentials: Credentials, source: CardSource | None = None
    ) -> None:
        self.settings = settings
        self.names = Names(settings.prefix, tuple(settings.dialects))
        self.unit = Unit.parse(settings.unit)
        self.metrics = Metrics()
        self.kube = Kube(credentials)
        rules = Rules(parse_xids(settings.ignore_xids, settings.count_xids), settings.recover_after)
        selection = Selection(tuple(settings.include_cards), tuple(settings.exclude_cards))
        self.book = CardBook(selection, rules)
        self.verdicts = VerdictFile(Path(settings.state_dir, "xids.json"))
        self.keeper = CardKeeper(
            source or Nvml(settings.driver_root),
            self.book,
            Pace(settings.probe_seconds, settings.probe_seconds, settings.nvml_timeout),
            self._end,
            listen=settings.xid_events,
        )
        self.specs = SliceSpecs(Path(settings.cdi_spec_dir), self.names.prefix)
        self.kubelet = KubeletState(
            Path(settings.podresources_socket),
            Path(settings.kubelet_dir, CHECKPOINT),
            self.names.all_resources,
        )
        store = PodStore(Path(settings.state_dir, "pods"))
        self._pods_changed = asyncio.Event()
        self.pods = Pods(self.kube, settings.node_name, self.names, self._pod_changed, store)
        self.publisher = NodePublisher(
            self.kube, settings.node_name, self.names, self._wanted, self.book.cordon
        )
        self.enforcing = Enforcing(
            Enforcement(parent=settings),
            settings.node_name,
            self.names,
            self.unit,
            self.kube,
            lambda: self.specs.records.values(),
            lambda: self.pods.watch.objects,
            self.book.cards,
            self.book.capability,
            self._blame_mps,
            driver_root=settings.driver_root,
        )
        self.enforcing.turns.listen(self.publisher.changed)
        self.enforcing.enforcer.on_taken(self.book.set_taken)
        self._mps_problems: dict[str, str] = {}
        self.foreign = Foreign(
            self.kube,
            settings.node_name,
            self.names,
            self.unit,
            lambda: {card.uuid: card for card in self.book.cards()},
            lambda pod: placement_of(pod, self.node()),
        )
        self.runtime = Runtime(
            settings.runtime_cdi,
            self.publisher.node_info,
            self.specs,
            lambda: self.pods.watch.objects,
            Path(settings.state_dir, "cdi"),
        )
        node_specs = NodeSpecs(map(Path, settings.cdi_dirs), settings.cdi_kind)
        self.delivery = Delivery(self.names.cdi_kind, Way(settings.card_edits), node_specs)
        self.start = ContainerStart(
            self.node,
            self.kubelet,
            self.pods,
            self.specs,
            self.delivery,
            hook=self._before_start,
            memory=store,
        )
        self.events = Events(
            self.kube, settings.node_name, self.names, lambda: self.specs.records.values()
        )
        resources = served(self.names, self.unit)
        self.services = [
            Service(r.name, self.names, self._prepare, self.metrics.observe_start)
            for r in resources
        ]
        self.offers = Offers(
            self.book,
            self.kubelet,
            self.pods.alive,
            lambda: self.specs.records,
            list(zip(resources, self.services, strict=True)),
            truthful=settings.true_allocatable,
        )
        self.registration = Registration(
            Path(settings.kubelet_dir), self.services, self._taken_by_others
        )
        self.page = StatusPage(settings.status_address, self.metrics, self.problems, self.notes)
        self._in_force: dict[str, Any] = {}
        self._must_end = asyncio.Event()
        self._exit = 0

    def node(self) -> Node:
        """This node as containers find it when they start."""
        return Node(
            self.settings.node_name,
            self.names,
            self.unit,
            self.book.startable(),
            self.book.problem,
            visible=self._visible(),
            runtime=self.runtime.name,
            adopt_before=self.settings.adopted,
        )

    def in_force(self) -> dict[str, Any]:
        """How containers get their cards here, and by what slices are held."""
        downward = self._visible() is Visible.CARDS
        way = DOWNWARD if downward else self.delivery.way().value
        return {"v": 1, "delivery": way, **self.enforcing.in_force()}

    def _visible(self) -> Visible:
        """What a pod's own variable must be on this node."""
        if not self._cdi():
            return Visible.CARDS
        if not self.runtime.pods_win:
            return Visible.ANY
        return Visible.VOID if self.delivery.way() is Way.CDI else Visible.CARDS

    def _cdi(self) -> bool:
        """Whether containers are given what our specs say.

        Where that is open (containerd 1.7 with a switch that cannot be seen), a node whose NVIDIA
        specs somebody made is taken to use them, until a container shows otherwise.
        """
        known = self.runtime.cdi
        return self.delivery.way() is Way.CDI if known is None else known

    async def _before_start(self, pod: Mapping[str, Any], container: ContainerPlacement) -> Edits:
        whole = all(share.percent == 100 for share in container.shares)
        if self.enforcing.level is Level.MPS and not self._cdi() and not whole:
            problem = (
                "MPS needs a container runtime that heeds CDI, and this node's "
                f"({self.runtime.name}) does not: switch CDI on there, or set Enforcement.level to "
                "'watchdog' on this node"
            )
            raise Refused(Code.NOT_NOW, problem=problem)
        return self.foreign.edits(pod, container, await self.enforcing.before_start(pod, container))

    def problems(self) -> list[str]:
        """Why the node cannot share cards now, one line each."""
        reasons = {
            "cards": self.book.problem or self.offers.problem,
            "kubelet": "" if self.registration.registered else "not registered with the kubelet",
            "node": self.publisher.problem,
            "pods": self.pods.watch.problem,
        }
        return [f"{part}: {text}" for part, text in reasons.items() if text]

    def notes(self) -> list[str]:
        """What else is worth knowing; none of it keeps cards from being shared."""
        return [f"enforcement: {text}" for text in self.enforcing.problems()]

    def _blame_mps(self, uuid: str, problem: str) -> None:
        self._mps_problems[uuid] = problem
        self.book.blame("mps", self._mps_problems)

    def _pod_changed(self, uid: str) -> None:
        self._pods_changed.set()
        self.runtime.changed.set()

    def look_now(self) -> None:
        """Look for cards anew (SIGHUP)."""
        self.keeper.look_now()

    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop``; the answer is the exit status."""
        log.info("gpushare-device-plugin on node %s", self.settings.node_name)
        async with self.kube:
            try:
                await self._get_ready()
            except OSError as error:
                log.error(
                    "%s; DevicePlugin.cdi_spec_dir must be writable, .status_address free", error
                )
                return 1
            tasks = [
                asyncio.create_task(part, name=name) for name, part in self._parts(stop).items()
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._end_all(tasks)
            for task in done:
                if not task.cancelled() and task.exception() is not None:
                    log.error(
                        "part %r ended by a fault", task.get_name(), exc_info=task.exception()
                    )
                    self._exit = 1
        return self._exit

    async def _get_ready(self) -> None:
        self.specs.folder.mkdir(parents=True, exist_ok=True)
        self.specs.load()
        self.book.recall(self.verdicts.load())
        self.book.listen(lambda: self.verdicts.keep(self.book.verdicts()))
        self.metrics.add_cards(
            self.book.cards, lambda: held_by_others(self.specs.records.values(), "")
        )
        self.enforcing.register(self.metrics.registry)
        self.book.listen(self.publisher.changed)
        self.runtime.listen(self.publisher.changed)
        self.book.listen(self.offers.changed)
        self.book.listen(lambda: self.events.cards_changed(self.book.cards()))
        await self.page.start()

    def _parts(self, stop: asyncio.Event) -> dict[str, Coroutine[Any, Any, object]]:
        return {
            "stop": stop.wait(),
            "end": self._must_end.wait(),
            "cards": self.keeper.run(),
            "pods": self.pods.watch.run(),
            "node": self.publisher.watch.run(),
            "publisher": self._publish(),
            "events": self.events.run(),
            "offers": self._offer(),
            "registration": self._register(),
            "cleaning": self._clean(),
            "runtime": self.runtime.run(),
            "foreign": self.foreign.run(),
            **self.enforcing.parts(),
        }

    async def _offer(self) -> None:
        # The kubelet's checkpoint has ids of pods that have ended; the API server tells which.
        # The node tells which runtime it has, and by that what a container must bring itself.
        watches = (self.pods.watch.ready, self.publisher.watch.ready)
        await asyncio.gather(*(wait_at_most(ready, _SYNC_LIMIT) for ready in watches))
        await self.offers.run()

    async def _publish(self) -> None:
        # Versions of kubelet and runtime are the node's to tell, and belong to what is published.
        await self.publisher.watch.ready.wait()
        self.publisher.changed()
        self.runtime.changed.set()
        await self.publisher.run()

    async def _register(self) -> None:
        # The kubelet rejects pods for good where a plugin is there and offers nothing.
        await self.offers.ready.wait()
        await self.registration.run()

    async def _end_all(self, tasks: list[asyncio.Task[object]]) -> None:
        for service in self.services:
            await service.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.page.stop()
        await self.kubelet.close()

    async def _prepare(self, resource: str, ids: frozenset[str]) -> None:
        await self.start.prepare(resource, ids)
        if self._ids_follow_pods():
            self.offers.changed()  # on which cards these ids are has just become known

    def _wanted(self) -> Publication | None:
        if not self.book.asked or not self.publisher.watch.ready.is_set():
            return None  # what an earlier run published stands
        problem = self.book.problem or self.offers.problem
        cards = () if self.offers.problem else self.book.cards()
        physical = self.book.physical() if self.settings.feature_labels else ()
        return Publication(
            NodeCards(cards, self.unit, self._also()),
            problem,
            self.book.driver,
            encode_in_force(self.in_force()),
            features=feature_labels(physical, self.book.driver),
            counts=self.foreign.counts(cards),
        )

    def _also(self) -> tuple[str, ...]:
        """The dialects' resources that this node serves now."""
        offered = self.offers.withheld() | self.registration.taken
        return tuple(s.resource for s in self.services[2:] if s.resource not in offered)

    async def _taken_by_others(self) -> frozenset[str]:
        """The dialects' resources that another plugin offers on this node."""
        foreign = [service.resource for service in self.services[2:]]
        taken = await self.kubelet.of_others(foreign) if foreign else frozenset()
        if taken != self.registration.taken:
            self.publisher.changed()
        return taken

    async def _clean(self) -> None:
        """Remove the specs of gone containers: some time after pods changed, and now and then."""
        while True:
            if await wait_at_most(self._pods_changed, _CLEAN_EVERY):
                await asyncio.sleep(_CLEAN_SOON)
            self._pods_changed.clear()
            await self._look_for_claims()
            if self.specs.records:
                seen_at = self.specs.now()
                self.start.forget_unused(await self.kubelet.see(), seen_at)
            self.offers.changed()
            self._look_what_is_in_force()

    def _look_what_is_in_force(self) -> None:
        now = self.in_force()
        if now != self._in_force:
            self._in_force = now
            self.publisher.changed()

    def _ids_follow_pods(self) -> bool:
        """Whether which ids are healthy depends on who holds them now."""
        sick = any(not card.healthy for card in self.book.cards())
        return sick or bool(self.settings.true_allocatable)

    async def _look_for_claims(self) -> None:
        """No card may be handed out by NVIDIA's own plugin and by us."""
        claims = await self.kubelet.claims(card.uuid for card in self.book.cards())
        if claims is not None:
            problem = "it is handed out as {} too: exclude it here or there".format
            self.book.blame("claims", {uuid: problem(name) for uuid, name in claims.items()})

    def _end(self, why: str) -> None:
        log.warning("ending, to be started anew: %s", why)
        self._exit = 1
        self._must_end.set()
