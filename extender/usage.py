"""What slices really use: asked of every node's device plugin, as metrics-server asks kubelets.

The addresses come from the EndpointSlices of the plugins' headless Service. Each plugin shows the
chart's certificate for the Service's name and is shown our service account's token. A node that does
not answer keeps its last word for a while, with its age.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from extender.api import KubeApi
from extender.clock import Clock
from extender.reflector import Reflector, Sink
from gpushare import usage
from gpushare.usage import NodeUsage, SliceUse

log = logging.getLogger(__name__)

_EVERY = 5.0
_WITHIN = 4.0
_AT_ONCE = 64
_MOST_BYTES = 4 << 20
# After so many seconds without an answer what a node said is no longer told.
_FORGET = 60.0
_SERVICE_LABEL = "kubernetes.io/service-name"
_PORT = 9410


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """Where the plugins are. ``service`` '' switches the gathering off."""

    service: str = ""
    namespace: str = ""
    ca: str = ""

    @property
    def host(self) -> str:
        """The name in the plugins' certificate."""
        return f"{self.service}.{self.namespace}.svc"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One plugin: its node and where it answers."""

    node: str
    address: str
    port: int = _PORT


@dataclass(frozen=True, slots=True)
class Endpoints:
    """One EndpointSlice."""

    name: str
    members: tuple[Endpoint, ...]


@dataclass(slots=True)
class _Said:
    """What a node said last, and when by the clock. ``problem`` is why it says nothing now."""

    usage: NodeUsage | None = None
    body: bytes = b""
    at: float = 0.0
    problem: str = ""
    by_slice: dict[tuple[str, str], SliceUse] = field(default_factory=dict)
    by_card: dict[str, int] = field(default_factory=dict)


class Usage:
    """The nodes' latest answers. ``on_change`` is called after each round."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.on_change: list[Callable[[], None]] = []
        self._said: dict[str, _Said] = {}

    def heard(self, node: str, body: bytes) -> None:
        """A node's answer. Raises ValueError for what is none."""
        told = usage.decode(body)
        if told.node != node:
            raise ValueError(f"it says that it is node {told.node[:100]!r}")
        self._said[node] = _Said(
            told,
            orjson.dumps(orjson.loads(body)),
            self.clock.now(),
            "",
            {(held.uid, held.card): held for held in told.slices},
            {card.uuid: card.used_mib for card in told.cards},
        )

    def failed(self, node: str, problem: str) -> None:
        """A node did not answer. Said once."""
        said = self._said.setdefault(node, _Said())
        if said.problem != problem:
            log.warning(
                "node %s does not say what is used: %s; see the log of its device plugin",
                node, problem,
            )  # fmt: skip
        said.problem = problem

    def keep(self, nodes: Iterable[str]) -> None:
        """These are all nodes with a plugin now."""
        wanted = set(nodes)
        for node in [n for n in self._said if n not in wanted]:
            del self._said[node]

    def card(self, node: str, uuid: str) -> int | None:
        """MiB that are used of a card; None where that is not known."""
        said = self._fresh(node)
        return said.by_card.get(uuid) if said else None

    def slice(self, node: str, uid: str, card: str) -> SliceUse | None:
        """What a pod uses of a card."""
        said = self._fresh(node)
        return said.by_slice.get((uid, card)) if said else None

    def ages(self) -> dict[str, float]:
        """Seconds since each node said something."""
        now = self.clock.now()
        return {node: round(now - said.at, 1) for node, said in self._known()}

    def text(self) -> bytes:
        """GET /v1/usage."""
        bodies = b",".join(said.body for _, said in self._known())
        return b'{"nodes":[' + bodies + b'],"age_seconds":' + orjson.dumps(self.ages()) + b"}"

    def problems(self) -> dict[str, str]:
        """Nodes that do not answer, and why."""
        return {node: said.problem for node, said in self._said.items() if said.problem}

    def _known(self) -> Iterator[tuple[str, _Said]]:
        for node in sorted(self._said):
            said = self._fresh(node)
            if said is not None:
                yield node, said

    def _fresh(self, node: str) -> _Said | None:
        said = self._said.get(node)
        if said is None or said.usage is None or self.clock.now() - said.at > _FORGET:
            return None
        return said


class Gatherer:
    """Asks all plugins every few seconds, until cancelled."""

    def __init__(self, api: KubeApi, settings: UsageSettings, known: Usage) -> None:
        self.api = api
        self.settings = settings
        self.known = known
        self.slices: dict[str, Endpoints] = {}
        self.following = Reflector[Endpoints](
            api,
            f"/apis/discovery.k8s.io/v1/namespaces/{settings.namespace}/endpointslices",
            Sink(self._read, self._replace, self._apply, lambda e: self._remove(e.name)),
            known.clock,
        )
        self._trust: tuple[int, ssl.SSLContext] | None = None

    def members(self) -> dict[str, Endpoint]:
        """The plugin of each node."""
        return {m.node: m for group in self.slices.values() for m in group.members}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.following.run())
            await self.following.progress.synced.wait()
            timeout = aiohttp.ClientTimeout(total=_WITHIN)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                while True:
                    started = self.known.clock.now()
                    await self.round(session)
                    spent = self.known.clock.now() - started
                    await asyncio.sleep(max(0.5, _EVERY - spent))

    async def round(self, session: aiohttp.ClientSession) -> None:
        """Ask everybody once."""
        members = self.members()
        self.known.keep(members)
        few = asyncio.Semaphore(_AT_ONCE)
        try:
            trust = self._context()
        except (OSError, ssl.SSLError) as error:
            for node in members:
                self.known.failed(node, f"Extender.usage_ca={self.settings.ca!r}: {error}")
            return
        headers = await self.api.credentials()

        async def one(member: Endpoint) -> None:
            async with few:
                await self._ask(session, member, trust, headers)

        await asyncio.gather(*(one(member) for member in members.values()))
        for tell in self.known.on_change:
            tell()

    async def _ask(
        self,
        session: aiohttp.ClientSession,
        member: Endpoint,
        trust: ssl.SSLContext,
        headers: Mapping[str, str],
    ) -> None:
        address = f"[{member.address}]" if ":" in member.address else member.address
        try:
            async with session.get(
                f"https://{address}:{member.port}/v1/usage",
                ssl=trust,
                server_hostname=self.settings.host,
                headers=headers,
                allow_redirects=False,
            ) as answer:
                body = await answer.content.read(_MOST_BYTES)
                while not answer.content.at_eof() and len(body) < _MOST_BYTES:
                    body += await answer.content.read(_MOST_BYTES - len(body))
            if answer.status != 200:
                text = body[:200].decode(errors="replace")
                self.known.failed(member.node, f"HTTP {answer.status}: {text}")
                return
            self.known.heard(member.node, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.known.failed(member.node, str(error) or "no answer in time")
        except ValueError as error:
            self.known.failed(member.node, f"its answer cannot be read: {error}")

    def _context(self) -> ssl.SSLContext:
        """Whom to trust; read again when the file changes."""
        age = os.stat(self.settings.ca).st_mtime_ns
        if self._trust is None or self._trust[0] != age:
            self._trust = (age, ssl.create_default_context(cafile=self.settings.ca))
        return self._trust[1]

    def _read(self, item: Mapping[str, Any]) -> Endpoints | None:
        metadata = item["metadata"]
        if (metadata.get("labels") or {}).get(_SERVICE_LABEL) != self.settings.service:
            return None
        ports = [p.get("port") for p in item.get("ports") or () if p.get("name") == "usage"]
        port = ports[0] if ports and isinstance(ports[0], int) else _PORT
        members = tuple(
            Endpoint(str(entry["nodeName"]), str(entry["addresses"][0]), port)
            for entry in item.get("endpoints") or ()
            if entry.get("nodeName") and entry.get("addresses")
        )
        return Endpoints(str(metadata["name"]), members)

    def _replace(self, found: list[Endpoints], _version: int, _since: float) -> None:
        self.slices = {group.name: group for group in found}

    def _apply(self, group: Endpoints) -> None:
        self.slices[group.name] = group

    def _remove(self, name: str) -> None:
        self.slices.pop(name, None)
