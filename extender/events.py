"""Telling a waiting pod why it waits: a Kubernetes Event under our own name.

kube-scheduler's event counts nodes; ours says what is wanted and what each card has left. One Event
per pod, written when the explanation changes and not at each try.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from extender.api import ApiError, KubeApi, NoAnswer
from extender.facts import PodFact
from extender.view import ClusterView
from gpushare.pods import PodRef
from gpushare.reasons import aggregate
from gpushare.wording import left, wish

log = logging.getLogger(__name__)

REASON = "NoCardFree"
# An Event's message may have 1024 characters.
_LONGEST = 1000
_MOST_CARDS = 16
_REMEMBERED = 10_000
# The same pod is told something new at most this often, in seconds.
_PAUSE = 5.0


@dataclass(slots=True)
class _Told:
    """What a pod was told, and when."""

    name: str = ""
    text: str = ""
    at: float = float("-inf")
    times: int = 0
    first: str = ""


class Announcer:
    """Writes the Events, one after the other, behind the verbs' back."""

    def __init__(self, api: KubeApi, view: ClusterView, source: str) -> None:
        self.api = api
        self.view = view
        self.source = source
        self.written = 0
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._due: dict[str, tuple[PodFact, Sequence[str]]] = {}
        self._stir = asyncio.Event()

    def refused(self, fact: PodFact, nodes: Sequence[str]) -> None:
        """The filter found no place for the pod on these nodes."""
        self._due[fact.ref.uid] = (fact, nodes)
        self._stir.set()

    async def run(self) -> None:
        """Write what is due, until cancelled."""
        while True:
            await self._stir.wait()
            self._stir.clear()
            due, self._due = self._due, {}
            for uid, (fact, nodes) in due.items():
                told = self._told.setdefault(uid, _Told())
                self._told.move_to_end(uid)
                now = self.view.clock.now()
                if now - told.at < _PAUSE:
                    self._due.setdefault(uid, (fact, nodes))
                    self.view.clock.call_later(told.at + _PAUSE - now, self._stir.set)
                    continue
                if self.view.is_gone(uid) or self.view.slice_of(uid):
                    continue
                text = self.explain(fact, nodes)
                if text != told.text:
                    await self._write(fact.ref, told, text)
            while len(self._told) > _REMEMBERED:
                self._told.popitem(last=False)

    def explain(self, fact: PodFact, nodes: Sequence[str]) -> str:
        """Why the pod is not placed, for the person who waits for it."""
        if fact.refusal is not None:
            return _cut(fact.refusal.sentence())
        wants = f"wants {wish(fact.request)}"
        accounts = [
            self.view.ledger.nodes[name] for name in nodes if name in self.view.ledger.nodes
        ]
        cards = sum(len(account.cards) for account in accounts)
        if 0 < cards <= _MOST_CARDS:
            free = "; ".join(
                f"{account.name} {', '.join(left(state) for state in account.states())}"
                for account in sorted(accounts, key=lambda a: a.name)
                if account.cards
            )
            return _cut(f"{wants}; free: {free}")
        _, failed = self.view.fit_many(nodes, fact.request)
        return _cut(f"{wants}; {aggregate(failed.values())}")

    async def _write(self, ref: PodRef, told: _Told, text: str) -> None:
        told.at = self.view.clock.now()
        told.times += 1
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told.first = told.first or now
        path = f"/api/v1/namespaces/{ref.namespace}/events"
        changed = {"message": text, "count": told.times, "lastTimestamp": now}
        try:
            if told.name:
                try:
                    await self.api.merge_patch(f"{path}/{told.name}", changed)
                except ApiError as error:
                    if error.status != 404:
                        raise
                    told.name = ""
            if not told.name:
                name = f"{ref.name[:200]}.{ref.uid[:8]}.{told.times:x}"
                await self.api.post(path, {**self._event(ref, name, told.first), **changed})
                told.name = name
        except (ApiError, NoAnswer) as error:
            log.warning("pod %s: the event %r cannot be written: %s", ref, text[:100], error)
            return
        told.text = text
        self.written += 1

    def _event(self, ref: PodRef, name: str, first: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": ref.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": ref.namespace,
                "name": ref.name,
                "uid": ref.uid,
            },
            "type": "Warning",
            "reason": REASON,
            "firstTimestamp": first,
            "source": {"component": self.source},
            "reportingComponent": self.source,
            "reportingInstance": "",
        }


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
