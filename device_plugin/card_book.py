"""The node's cards and how each of them is: one place, which tells whoever asked when it changes.

A card that was seen once stays in the book until the program ends. If it is lost, its units stay
on the kubelet's list, unhealthy, and its slices stay explained.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from device_plugin.card_health import LOST, Health, Rules, after_probe, after_xid, pardoned
from device_plugin.physical_card import Driver, PhysicalCard
from gpushare.cards import Card

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which cards of the node are ours: shell patterns for uuid, index, minor, PCI address or model."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def takes(self, card: PhysicalCard) -> bool:
        """Whether ``card`` is one of ours. Exclusion wins."""
        known = (card.uuid, str(card.index), card.pci, card.model)
        included = any(_matches(pattern, known) for pattern in self.include)
        return included and not any(_matches(pattern, known) for pattern in self.exclude)


def _matches(pattern: str, known: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(value.lower(), pattern.lower()) for value in known)


class CardBook:
    """Cards and their health.

    ``problem`` says why there is no driver, '' if there is one; ``asked``: it was looked for.
    """

    def __init__(
        self,
        selection: Selection,
        rules: Rules,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._selection, self._rules, self._clock = selection, rules, clock
        self._cards: dict[str, PhysicalCard] = {}
        self._health: dict[str, Health] = {}
        self._cordoned: frozenset[str] = frozenset()
        self._blamed: dict[str, dict[str, str]] = {}
        self._taken: Mapping[str, int] = {}
        self._listeners: list[Callable[[], None]] = []
        self._last: object = None
        self._shown: tuple[Card, ...] = ()
        self._startable: dict[str, Card] = {}
        self.driver = Driver()
        self.problem = "the cards have not been asked yet"
        self.asked = False

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each change of cards, health or problem."""
        self._listeners.append(listener)

    @property
    def seen(self) -> bool:
        """Whether any card was ever found."""
        return bool(self._cards)

    def physical(self) -> list[PhysicalCard]:
        """All our cards as NVML knows them, by index."""
        return sorted(self._cards.values(), key=lambda card: (card.index, card.uuid))

    def cards(self) -> tuple[Card, ...]:
        """All our cards, as the rest of the cluster is told of them."""
        return self._shown

    def _all(self) -> tuple[Card, ...]:
        return tuple(
            Card(
                uuid=card.uuid,
                index=card.index,
                minor=card.minor,
                model=card.model,
                memory=card.memory,
                health=self.health(card.uuid).text(),
                taken=self._taken.get(card.uuid, 0),
            )
            for card in self.physical()
        )

    def capability(self, uuid: str) -> str:
        """The card's CUDA compute capability, as '7.5'; '' where it is not known."""
        card = self._cards.get(uuid)
        return card.capability if card else ""

    def startable(self) -> dict[str, Card]:
        """By uuid, for containers that are placed already: a cordon does not hold them back."""
        return self._startable

    def health(self, uuid: str) -> Health:
        """How the card is."""
        health = self._health.get(uuid, Health())
        card = self._cards.get(uuid)
        names = {uuid, str(card.index)} if card else {uuid}
        blamed = "; ".join(self._blamed.get(uuid, {}).values())
        return replace(health, cordoned=bool(names & self._cordoned), blamed=blamed)

    def found(self, driver: Driver, cards: Sequence[PhysicalCard]) -> None:
        """A probe of all cards came through."""
        self.driver, self.problem, self.asked = driver, "", True
        ours = {card.uuid: card for card in cards if self._selection.takes(card)}
        for uuid, card in ours.items():
            if uuid not in self._cards:
                log.info(
                    "card %d: %s, %s, %d MiB, PCI %s, /dev/nvidia%d",
                    *(card.index, card.model, uuid, card.memory, card.pci, card.minor),
                )
            self._cards[uuid] = card
        for uuid in self._cards:
            problem = ours[uuid].problem if uuid in ours else LOST
            self._probed(uuid, problem)
        if not ours and not self._cards:
            self.problem = "the driver counts no card that the settings include"
        self._tell()

    def failed(self, problem: str) -> None:
        """The driver cannot be asked: no card can be trusted until it can."""
        if problem != self.problem:
            log.warning("the node's cards cannot be used: %s", problem)
        self.problem, self.asked = problem, True
        for uuid in self._cards:
            self._probed(uuid, problem)
        self._tell()

    def xid(self, uuid: str, xid: int) -> None:
        """The driver reported an error; of all cards, where it did not say which."""
        for one in [uuid] if uuid in self._cards else [] if uuid else list(self._cards):
            self._judge(one, lambda h: after_xid(h, xid, self._clock(), self._rules))
            if xid in self._rules.ignored:
                log.info("card %s: XID %d, an error of a program, is ignored", one, xid)
        self._tell()

    def cordon(self, names: Iterable[str]) -> None:
        """Exactly these cards (uuid or index) take nothing new.

        Who takes a cordon back has looked at the card: that ends an XID's verdict as well.
        """
        before, self._cordoned = self._cordoned, frozenset(names)
        for card in self.physical():
            known = {card.uuid, str(card.index)}
            if known & before and not known & self._cordoned:
                self._judge(card.uuid, pardoned)
        self._tell()

    def verdicts(self) -> dict[str, tuple[int, datetime]]:
        """The XID that speaks against a card, and when it came, by uuid."""
        return {
            uuid: (health.xid, health.xid_at)
            for uuid, health in self._health.items()
            if health.xid and health.xid_at
        }

    def recall(self, verdicts: Mapping[str, tuple[int, datetime]]) -> None:
        """An earlier run of this program left these verdicts."""
        for uuid, (xid, at) in verdicts.items():
            self._health[uuid] = Health(xid=xid, xid_at=at)
            log.warning("card %s: XID %d from before this start still counts", uuid, xid)

    def blame(self, source: str, problems: Mapping[str, str]) -> None:
        """What another part of this program holds against cards (by uuid): exactly these problems."""
        have = {uuid: known[source] for uuid, known in self._blamed.items() if source in known}
        for uuid in have.keys() | problems.keys():
            known = self._blamed.setdefault(uuid, {})
            known.pop(source, None)
            if problems.get(uuid):
                known[source] = problems[uuid]
                if have.get(uuid) != problems[uuid]:
                    log.error("card %s: %s", uuid, problems[uuid])
        self._tell()

    def set_taken(self, taken: Mapping[str, int]) -> None:
        """MiB of cards (by uuid) that processes outside of any slice hold."""
        self._taken = dict(taken)
        self._tell()

    def _probed(self, uuid: str, problem: str) -> None:
        now = self._clock()
        self._judge(uuid, lambda health: after_probe(health, problem, now, self._rules))

    def _judge(self, uuid: str, change: Callable[[Health], Health]) -> None:
        before = self._health.get(uuid, Health())
        self._health[uuid] = after = change(before)
        if after.usable != before.usable:
            level = logging.INFO if after.usable else logging.ERROR
            log.log(
                level, "card %s is %s", uuid, after.text() if not after.usable else "well again"
            )

    def _tell(self) -> None:
        # Made once for each change: containers that start and looks at cards ask all the time.
        self._shown = self._all()
        self._startable = {
            card.uuid: replace(card, health="ok") if self.health(card.uuid).usable else card
            for card in self._shown
        }
        now = (self._shown, self.problem)
        if now != self._last:
            self._last = now
            for listener in self._listeners:
                listener()
