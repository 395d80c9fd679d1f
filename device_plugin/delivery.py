"""What a container with a slice is given: its CDI edits. Pure but for the node's specs.

Two ways, found out by what the node has:
cdi   the node's own NVIDIA CDI spec says what a card needs (nodes, libraries, hooks); it is copied.
      NVIDIA_VISIBLE_DEVICES is void, as NVIDIA's tools write it into their specs: where the nvidia
      runtime is a node's default, anything else would make it inject the cards a second time.
env   NVIDIA_VISIBLE_DEVICES alone, with the uuids; the node's classic nvidia runtime does the rest.
GPUSHARE_CARDS has the uuids. With containerd these variables replace what pod and image say. With
CRI-O (tried: 1.34) they do not, so there the pod itself must say 'void', or name its own cards.

Where the container runtime does not heed CDI, none of this reaches a container. Then its variable
NVIDIA_VISIBLE_DEVICES, which the kubelet fills from an annotation, is all there is: 'downward'
(gpushare/visibility.py; verification.check_visible).
CUDA_VISIBLE_DEVICES is left alone: the container sees no card but its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from device_plugin.edits import Edits, env_edits, join, spec
from device_plugin.enforcement.advisory import advisory_environment
from device_plugin.node_specs import CardEdits, NodeSpec, NodeSpecs, NoEdits, card_edits
from device_plugin.refusal import Code, Refused
from device_plugin.slice_specs import VARIABLE, Record
from device_plugin.verification import describe
from gpushare.cards import Card
from gpushare.placement import Share
from gpushare.visibility import VARIABLE as VISIBLE
from gpushare.visibility import VOID

log = logging.getLogger(__name__)

DOWNWARD = "downward"


class Way(StrEnum):
    """How a container gets its cards."""

    AUTO = "auto"
    CDI = "cdi"
    ENV = "env"


@dataclass(frozen=True, slots=True)
class Start:
    """One container that is about to start.

    ``own_env``: variables that its pod sets itself. ``more``: edits that enforcement wants.
    """

    record: Record
    shares: Sequence[Share]
    cards: Mapping[str, Card]
    own_env: frozenset[str] = frozenset()
    more: Edits = field(default_factory=dict)


def slice_env(start: Start, visible: str | None = None) -> dict[str, str]:
    """The variables of the slice itself, which no pod may set otherwise, and advice on its size."""
    uuids = ",".join(share.card for share in start.shares)
    return {
        **advisory_environment(
            card_memory_mib=min(start.cards[share.card].memory for share in start.shares),
            slice_mib=min(share.mib for share in start.shares),
            percent=min(share.percent for share in start.shares),
            cards=len(start.shares),
            own=start.own_env,
        ),
        VISIBLE: visible or uuids,
        "GPUSHARE_CARDS": uuids,
        VARIABLE: start.record.encode(),
    }


def container_edits(start: Start, cards: Iterable[CardEdits]) -> tuple[dict[str, Any], list[str]]:
    """The edits for a container, and the CDI versions of the specs that they come from.

    ``cards`` are what the node's specs say of its cards; none: the nvidia runtime does it all.
    """
    cards = list(cards)
    specs = {card.spec.path: card.spec for card in cards}
    parts: list[Edits] = [s.common for s in specs.values()]
    parts += [card.device for card in cards]
    parts += [env_edits(slice_env(start, VOID if cards else None)), start.more]
    return join(parts), [s.version for s in specs.values()]


class Delivery:
    """Builds the CDI spec of a container."""

    def __init__(self, kind: str, way: Way, node_specs: NodeSpecs) -> None:
        self._kind, self._way, self._node_specs = kind, way, node_specs
        self._said: Way | None = None

    def way(self, specs: Sequence[NodeSpec] | None = None) -> Way:
        """The way in use now. ``specs``: the node's, where they were just read."""
        specs = self._node_specs.specs() if specs is None else specs
        found = Way.CDI if specs else Way.ENV
        way = found if self._way is Way.AUTO else self._way
        if way is not self._said:
            self._said = way
            if way is Way.CDI:
                sources = ", ".join(s.path for s in specs) or "none yet"
                log.info("containers get their cards as the node's CDI specs say: %s", sources)
            else:
                log.info(
                    "containers get %s alone (no NVIDIA CDI spec on this node, or set so): the "
                    "nvidia container runtime must be theirs",
                    VISIBLE,
                )
        return way

    def full(self, digest: str, start: Start) -> dict[str, Any]:
        """The spec that gives the container its cards. Raises Refused."""
        specs = self._node_specs.specs()
        found = []
        if self.way(specs) is Way.CDI:
            for share in start.shares:
                card = start.cards[share.card]
                try:
                    found.append(card_edits(specs, card))
                except NoEdits as error:
                    raise Refused(Code.NO_EDITS, card=describe(card), problem=error) from None
        edits, versions = container_edits(start, found)
        return spec(self._kind, digest, edits, versions)

    def inert(self, digest: str, start: Start) -> dict[str, Any]:
        """A spec that gives nothing: for the second resource of a container that asks for both.

        The runtime applies both in no certain order, so they must not differ in any variable.
        """
        return spec(self._kind, digest, env_edits({VARIABLE: start.record.encode()}))
