"""What changes, as a stream: the last thousand changes, and whoever waits for the next.

Slices, cards and nodes are compared with what was told before, once per turn of the loop, so that a
bind that is reserved and confirmed is one change and not two.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from time import time
from typing import Any

import orjson

from extender.view import ClusterView
from extender.waiting import Waiter, Waiting
from gpushare.waiting import rfc3339

_KEPT = 1000
_HEARTBEAT = 15.0
# A stream ends after so many seconds, so that whoever may read no more does not read on.
_LONGEST = 3600.0


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the stream, ready to send."""

    number: int
    data: bytes

    def sent(self) -> bytes:
        return b"event: change\nid: %d\ndata: %s\n\n" % (self.number, self.data)


@dataclass(slots=True)
class _Known:
    """What was told of a node: its cards and their state, and who is on which card."""

    cards: dict[str, tuple[str, int]] = field(default_factory=dict)
    slices: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    takes_pods: bool = False


class Changes:
    """The ring of changes. Nothing is noted before ``begin``."""

    def __init__(
        self, view: ClusterView, waiting: Waiting, now: Callable[[], float] = time
    ) -> None:
        self.view = view
        self._now = now
        # Numbers of another process must not look like ours: a reader may come from there.
        self._number = secrets.randbits(30) << 22
        self._ring: deque[Change] = deque(maxlen=_KEPT)
        self._known: dict[str, _Known] = {}
        self._dirty: dict[str, None] = {}
        self._readers: set[asyncio.Event] = set()
        self._begun = False
        view.on_change.append(self._node_changed)
        waiting.on_change.append(self._line_changed)

    def begin(self) -> None:
        """The cluster is read: from now on differences are changes."""
        for name in self.view.ledger.nodes:
            self._known[name] = self._look(name)
        self._dirty.clear()
        self._begun = True

    def usage(self) -> None:
        """What is used was measured anew."""
        self._note("usage")

    async def follow(self, after: str) -> AsyncIterator[bytes]:
        """The stream from behind the change ``after`` ('' for now), for an hour at most."""
        reader = asyncio.Event()
        self._readers.add(reader)
        try:
            number, gone = self._start(after)
            yield b": gpushare\nretry: 1000\n\n"
            if gone:
                yield b"event: reset\nid: %d\ndata: {}\n\n" % number
            until = asyncio.get_running_loop().time() + _LONGEST
            while asyncio.get_running_loop().time() < until:
                reader.clear()
                ready = [change for change in self._ring if change.number > number]
                if ready and ready[0].number > number + 1:
                    # It read too slowly: what it missed is not kept any more.
                    number = ready[-1].number
                    yield b"event: reset\nid: %d\ndata: {}\n\n" % number
                    continue
                if ready:
                    number = ready[-1].number
                    yield b"".join(change.sent() for change in ready)
                    continue
                try:
                    await asyncio.wait_for(reader.wait(), _HEARTBEAT)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._readers.discard(reader)

    def _start(self, after: str) -> tuple[int, bool]:
        """Where a reader begins, and whether changes that it has not seen are lost."""
        if not after:
            return self._number, False
        number = int(after) if after.isdecimal() and len(after) < 20 else -1
        oldest = self._ring[0].number - 1 if self._ring else self._number
        if oldest <= number <= self._number:
            return number, False
        return self._number, True

    def _node_changed(self, name: str) -> None:
        if not self._begun:
            return
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._compare)
        self._dirty[name] = None

    def _compare(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for name in dirty:
            old, new = self._known.get(name), self._look(name)
            if name in self.view.ledger.nodes:
                self._known[name] = new
            else:
                self._known.pop(name, None)
            if old is None or old.takes_pods != new.takes_pods:
                self._note("node", node=name)
            old = old or _Known()
            for key in old.slices.keys() - new.slices.keys():
                self._slice("released", name, key, old.slices[key])
            for key in new.slices.keys() - old.slices.keys():
                self._slice("placed", name, key, new.slices[key])
            for uuid in old.cards.keys() | new.cards.keys():
                if old.cards.get(uuid) != new.cards.get(uuid):
                    self._note("card", node=name, card=uuid)

    def _look(self, name: str) -> _Known:
        account, fact = self.view.ledger.nodes.get(name), self.view.node_fact(name)
        known = _Known(takes_pods=bool(fact and fact.takes_pods))
        if account is not None:
            known.cards = {
                uuid: (card.health, card.memory - card.taken)
                for uuid, card in account.cards.items()
            }
            for uuid, book in account.accounts.items():
                for uid in book.holders:
                    ref = self.view.ledger.slices[uid].pod
                    known.slices[uid, uuid] = (ref.namespace, ref.name)
        return known

    def _slice(self, kind: str, node: str, key: tuple[str, str], ref: tuple[str, str]) -> None:
        self._note(kind, node=node, card=key[1], namespace=ref[0], pod=ref[1], uid=key[0])

    def _line_changed(self, kind: str, waiter: Waiter) -> None:
        ref = waiter.ref
        self._note(kind, namespace=ref.namespace, pod=ref.name, uid=ref.uid)

    def _note(self, kind: str, **about: Any) -> None:
        if not self._begun:
            return
        self._number += 1
        data = orjson.dumps({"at": rfc3339(self._now()), "kind": kind, **about})
        self._ring.append(Change(self._number, data))
        for reader in self._readers:
            reader.set()
