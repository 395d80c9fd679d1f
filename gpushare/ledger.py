"""Who holds what of which card: the one book that every answer is read from.

The book is kept per card in MiB and per cent, and per pod by uid. It can be rebuilt at any time
from the annotations of nodes and bound pods; ``Ledger.snapshot`` is what a rebuilt one is compared
by. Amounts are plain signed integers: a card that shrinks under its slices shows a debt, never a
huge free amount.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from gpushare.assignment import CardState
from gpushare.cards import Card, NodeCards
from gpushare.placement import Placement
from gpushare.pods import PodRef
from gpushare.units import GIB, Unit


@dataclass(frozen=True, slots=True)
class Slice:
    """What one pod holds. ``reserved`` while its bind is in flight, until the watch confirms it."""

    pod: PodRef
    placement: Placement
    reserved: bool = False


@dataclass(slots=True)
class CardAccount:
    """One card's sums. ``holders`` maps pod uids to (MiB, per cent)."""

    used_mib: int = 0
    used_percent: int = 0
    holders: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class NodeAccount:
    """One node: the cards it publishes now, and the accounts of all cards that slices are on.

    A card may have slices and be published no more (it fell off the bus), and a node may hold
    slices before it publishes anything (the plugin restarts); neither is ever forgotten.
    """

    name: str
    unit: Unit = GIB
    cards: dict[str, Card] = field(default_factory=dict)
    accounts: dict[str, CardAccount] = field(default_factory=dict)
    problem: str = ""

    def states(self) -> list[CardState]:
        """Each published card with what is free on it, by index."""
        return [self._state(card) for card in self.cards.values()]

    def without(self, uids: Collection[str]) -> NodeAccount:
        """The node as it would be if these pods held nothing."""
        accounts = {}
        for card, book in self.accounts.items():
            holders = {uid: held for uid, held in book.holders.items() if uid not in uids}
            if holders:
                mib = sum(held[0] for held in holders.values())
                accounts[card] = CardAccount(mib, sum(h[1] for h in holders.values()), holders)
        return replace(self, accounts=accounts)

    def _state(self, card: Card) -> CardState:
        account = self.accounts.get(card.uuid)
        if account is None:
            return CardState(card, card.memory - card.taken, 100, empty=True)
        return CardState(
            card,
            card.memory - card.taken - account.used_mib,
            100 - account.used_percent,
            empty=not account.holders,
        )


@dataclass(slots=True)
class Ledger:
    """All nodes and all slices.

    ``on_change`` is called with the name of each node whose states may differ after a call.
    """

    nodes: dict[str, NodeAccount] = field(default_factory=dict)
    slices: dict[str, Slice] = field(default_factory=dict)
    on_change: Callable[[str], None] | None = None

    def publish(self, node: str, cards: NodeCards) -> None:
        """The node's annotation was read: these are its cards now."""
        if not cards.cards:
            self.withdraw(node)
            return
        account = self._node(node)
        ordered = sorted(cards.cards, key=lambda card: card.index)
        account.cards = {card.uuid: card for card in ordered}
        account.unit, account.problem = cards.unit, ""
        self._changed(node)

    def distrust(self, node: str, problem: str) -> None:
        """The node's annotation cannot be read: nothing new goes there, what is there stays."""
        account = self._node(node)
        account.cards, account.unit, account.problem = {}, GIB, problem
        self._changed(node)

    def withdraw(self, node: str) -> None:
        """The node is gone, or publishes no cards. Slices on it stay until their pods are gone."""
        account = self.nodes.get(node)
        if account is None:
            return
        account.cards, account.unit, account.problem = {}, GIB, ""
        self._forget_if_empty(account)
        self._changed(node)

    def hold(self, pod: PodRef, placement: Placement, *, reserved: bool = False) -> None:
        """Enter a slice, in place of whatever this pod held before."""
        known = self.slices.get(pod.uid)
        entry = Slice(pod, placement, reserved)
        if known == entry:
            return
        if known is not None:
            self._take_out(known)
            if known.placement.node != placement.node:
                self._changed(known.placement.node)
        self.slices[pod.uid] = entry
        account = self._node(placement.node)
        for card, (mib, percent) in placement.footprint().items():
            book = account.accounts.setdefault(card, CardAccount())
            book.holders[pod.uid] = (mib, percent)
            book.used_mib += mib
            book.used_percent += percent
        self._changed(placement.node)

    def release(self, uid: str) -> Slice | None:
        """Strike out what the pod held; None if it held nothing. Harmless when repeated."""
        entry = self.slices.pop(uid, None)
        if entry is None:
            return None
        self._take_out(entry)
        self._changed(entry.placement.node)
        return entry

    def overbooked(self) -> Iterator[tuple[str, Card, CardAccount]]:
        """Cards that hold more than they have. Only a shrinking card can bring that about."""
        for node in self.nodes.values():
            for card in node.cards.values():
                account = node.accounts.get(card.uuid)
                if account and (account.used_mib > card.memory or account.used_percent > 100):
                    yield node.name, card, account

    def snapshot(self) -> dict[str, object]:
        """All that counts, as plain values: two ledgers that answer alike have equal snapshots."""
        return {
            "nodes": {
                node.name: {
                    "unit": node.unit.mib,
                    "cards": sorted(node.cards.values(), key=lambda c: c.uuid),
                    "held": {
                        uuid: dict(sorted(book.holders.items()))
                        for uuid, book in sorted(node.accounts.items())
                    },
                }
                for node in sorted(self.nodes.values(), key=lambda n: n.name)
            },
            "slices": {uid: (s.pod, s.placement) for uid, s in sorted(self.slices.items())},
        }

    def _node(self, name: str) -> NodeAccount:
        return self.nodes.setdefault(name, NodeAccount(name))

    def _take_out(self, entry: Slice) -> None:
        account = self.nodes[entry.placement.node]
        for card in entry.placement.footprint():
            book = account.accounts[card]
            mib, percent = book.holders.pop(entry.pod.uid)
            book.used_mib -= mib
            book.used_percent -= percent
            if not book.holders:
                del account.accounts[card]
        self._forget_if_empty(account)

    def _forget_if_empty(self, account: NodeAccount) -> None:
        if not account.cards and not account.accounts and not account.problem:
            self.nodes.pop(account.name, None)

    def _changed(self, node: str) -> None:
        if self.on_change is not None:
            self.on_change(node)
