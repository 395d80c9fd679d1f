"""Keeping Elastic GPU's objects: looks at the world when it may have changed, and writes.

Several replicas may do so at once: names are fixed, and what would overwrite another's word carries a
precondition, so a write that loses is found unnecessary at the next look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from extender.api import ApiError, KubeApi, NoAnswer
from extender.claims.wanted import API, CardFact, Holder, User, World, Write, writes
from extender.clock import Clock
from extender.facts import PodFact
from extender.reflector import Reflector, Sink
from extender.view import ClusterView
from gpushare.dialects.claims import Claims
from gpushare.ledger import NodeAccount

log = logging.getLogger(__name__)

Object = Mapping[str, Any]
_KINDS = ("gpus", "elasticgpus", "elasticgpuclaims", "elasticgpuclasses")
_SETTLE = 0.2
_RETRY = 3.0
# Whoever wrote first is seen at the next look.
_PASSING = frozenset({404, 409})


class Controller:
    """``run`` ends only by cancellation. ``claims`` is what the webhook asks."""

    def __init__(self, api: KubeApi, view: ClusterView, clock: Clock) -> None:
        self.api = api
        self.view = view
        self._objects: dict[str, dict[tuple[str, str], Object]] = {kind: {} for kind in _KINDS}
        self._changed = asyncio.Event()
        self._said = ""
        self.reflectors = [self._follow(kind, clock) for kind in _KINDS]
        for listeners in (view.on_room, view.on_cards):
            listeners.append(lambda _node: self._changed.set())
        view.on_pod.append(lambda _uid, _fact: self._changed.set())

    @property
    def claims(self) -> Claims:
        """The claims and classes, as last seen."""
        classes = {name: obj for (_, name), obj in self._objects["elasticgpuclasses"].items()}
        return Claims(self._objects["elasticgpuclaims"], classes)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for reflector in self.reflectors:
                tasks.create_task(reflector.run())
            for reflector in self.reflectors:
                await reflector.progress.synced.wait()
            tasks.create_task(self._keep())

    async def _keep(self) -> None:
        self._changed.set()
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SETTLE)  # one look for all changes of one moment
            self._changed.clear()
            if not await self.look():
                await asyncio.sleep(_RETRY)
                self._changed.set()

    async def look(self) -> bool:
        """Write what is wanted; whether all of it was taken."""
        problem = ""
        for write in list(writes(self.world())):
            try:
                await self._write(write)
            except ApiError as error:
                if error.status not in _PASSING:
                    problem = f"{write.method} {write.path}: {error}"
            except NoAnswer as error:
                problem = f"{write.method} {write.path}: {error}"
                break
        if problem and problem != self._said:
            log.warning("%s; trying again", problem)
        self._said = problem
        return not problem

    def world(self) -> World:
        """What there is now."""
        return World(
            claims=self.claims,
            gpus={name: obj for (_, name), obj in self._objects["gpus"].items()},
            slices={name: obj for (_, name), obj in self._objects["elasticgpus"].items()},
            cards=list(self._cards()),
            users=self._users(),
        )

    async def _write(self, write: Write) -> None:
        if write.method == "POST":
            await self.api.post(write.path, dict(write.body))
        elif write.method == "PATCH":
            await self.api.merge_patch(write.path, dict(write.body))
        else:
            await self.api.delete(write.path, dict(write.body))

    def _cards(self) -> Iterator[CardFact]:
        for name in self.view.node_names():
            account = self.view.ledger.nodes[name]
            for state in account.states():
                yield CardFact(name, state, tuple(self._holders(account, state.card.uuid)))

    def _holders(self, account: NodeAccount, uuid: str) -> Iterator[Holder]:
        book = account.accounts.get(uuid)
        for uid in book.holders if book else ():
            held = self.view.ledger.slices[uid]
            for container in held.placement.containers:
                for share in container.shares:
                    if share.card == uuid:
                        yield Holder(held.pod, container.name, share)

    def _users(self) -> dict[tuple[str, str], User]:
        """Of several pods that name one claim the one that was placed first has it."""
        users: dict[tuple[str, str], User] = {}
        order = sorted(
            (fact for fact in self.view.pods.values() if fact.claims),
            key=lambda f: (not f.node, f.bound, f.created, f.ref.uid),
        )
        for fact in order:
            for container, claim in fact.claims:
                users.setdefault((fact.ref.namespace, claim), self._user(fact, container))
        return users

    def _user(self, fact: PodFact, container: str) -> User:
        held = self.view.slice_of(fact.ref.uid)
        placed = held.placement.container(container) if held and not held.reserved else None
        return User(fact.ref, fact.node, placed.shares) if placed else User(fact.ref)

    def _follow(self, kind: str, clock: Clock) -> Reflector[Object]:
        known = self._objects[kind]

        def replace(objects: list[Object], _version: int, _since: float) -> None:
            known.clear()
            known.update((_key(obj), obj) for obj in objects)
            self._changed.set()

        def apply(obj: Object) -> None:
            known[_key(obj)] = obj
            self._changed.set()

        def remove(obj: Object) -> None:
            known.pop(_key(obj), None)
            self._changed.set()

        return Reflector[Object](
            self.api, f"{API}/{kind}", Sink(_read, replace, apply, remove), clock
        )


def _key(obj: Object) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _read(obj: Object) -> Object:
    """The object without what only the API server needs."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return {**obj, "metadata": metadata}
