"""Device ids: what the kubelet counts, grants and hands back.

An id means one unit of a resource and nothing else. Which card a container gets is written in its
pod's placement, because the kubelet grants any free id to any pod. So the ids of one resource form
one pool for the whole node, and they are short, as the kubelet's messages carry all of them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from gpushare.cards import Card
from gpushare.names import Names
from gpushare.units import Unit

# The kubelet's gRPC client accepts no larger answer to ListAndWatch (gRPC's own default).
MAX_MESSAGE = 4 * 1024 * 1024
# On the wire: tag and length of the device, of its id and of its health, and "Unhealthy".
_BYTES_PER_DEVICE = 2 + 2 + 2 + len("Unhealthy")
_HASH_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Resource:
    """One extended resource: its full name, the letter its ids begin with, units of each card.

    Where it counts no memory it has ``per_card`` units of each card.
    """

    name: str
    letter: str
    unit: Unit | None
    per_card: int = 100

    def units(self, card: Card) -> int:
        """How many units ``card`` has."""
        return self.per_card if self.unit is None else self.unit.units(card.memory)

    def pool(self, size: int) -> list[str]:
        """The node's ids when its cards have ``size`` units together."""
        return [f"{self.letter}{number}" for number in range(size)]


def memory_resource(names: Names, unit: Unit) -> Resource:
    """Units of card memory."""
    return Resource(names.gpu_mem, "m", unit)


def percent_resource(names: Names) -> Resource:
    """Per cent of a card."""
    return Resource(names.gpu_percent, "p", None)


def served(names: Names, unit: Unit) -> tuple[Resource, ...]:
    """All resources that this node serves: our two, then those of the dialects."""
    foreign = (
        Resource(r.name, "p" if r.unit is None else "m", r.unit, r.per_card)
        for dialect in names.spoken
        for r in dialect.counted
    )
    return (memory_resource(names, unit), percent_resource(names), *foreign)


def slice_hash(resource: str, ids: Iterable[str]) -> str:
    """The name of what a container was granted: the same ids give the same name in any order."""
    return _hash(resource, frozenset(ids))


# A node's holders are named at each container start; each name is computed once.
@functools.lru_cache(4096)
def _hash(resource: str, ids: frozenset[str]) -> str:
    text = "\n".join((resource, *sorted(ids)))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def cdi_device(names: Names, digest: str) -> str:
    """The fully qualified CDI device name that stands for a granted set of ids."""
    return f"{names.cdi_kind}={digest}"


@dataclass(frozen=True, slots=True)
class Held:
    """Ids that one container holds, and the cards that its placement puts it on.

    No cards: the pod's placement is not known (yet).
    """

    ids: frozenset[str]
    cards: frozenset[str] = frozenset()


def nominal_free(resource: Resource, cards: Collection[Card], held: Iterable[Held]) -> int:
    """Units of the healthy cards that no id is granted for."""
    healthy = {card.uuid for card in cards if card.healthy}
    total = sum(resource.units(card) for card in cards if card.healthy)
    return total - sum(len(h.ids) for h in held if h.cards <= healthy)


def true_free(
    resource: Resource,
    cards: Collection[Card],
    used: Mapping[str, tuple[int, int]],
    held: Iterable[Held],
) -> int:
    """Units that could really be given away now: memory that one kind of request took is gone for
    the other kind too.

    ``used``: (MiB, per cent) of each card that started pods hold, whatever they asked for it with.
    Ids of pods that have not started are granted and not used yet: they come off as well. So a pod
    that is on its way here always finds its ids free, as what it will use is not in ``used``.
    """
    free = 0
    for card in cards:
        mib, percent = used.get(card.uuid, (0, 0))
        if not card.healthy:
            continue
        left = max(0, card.memory - mib)
        if resource.unit is not None:
            free += resource.unit.units(left)
        else:
            share = max(0, min(100 - percent, left * 100 // max(1, card.memory)))
            free += share * resource.per_card // 100
    return max(0, free - sum(len(holder.ids) for holder in held if not holder.cards))


def offer(
    resource: Resource, cards: Collection[Card], held: Iterable[Held], free: int
) -> dict[str, bool]:
    """The node's ids, and whether each is healthy.

    An id that is held is as healthy as the cards its holder really is on, so that the kubelet
    reports the truth in that pod's status. Of the others, ``free`` are healthy: the kubelet admits
    pods as long as it finds healthy ids that nobody holds.
    """
    held = list(held)
    sick = {card.uuid for card in cards if not card.healthy}
    ids = dict.fromkeys(resource.pool(sum(resource.units(card) for card in cards)), False)
    taken: dict[str, bool] = {}
    for holder in held:
        taken.update(dict.fromkeys(holder.ids, not holder.cards & sick))
    for id in ids:
        if id not in taken and free > 0:
            ids[id] = True
            free -= 1
    # Held ids beyond the pool stay listed: the kubelet restarts no container whose ids are gone.
    return ids | taken


def message_size(resource: Resource, units: int) -> int:
    """At most this many bytes has a ListAndWatch answer with ``units`` ids of ``resource``."""
    size, first, digits = 0, 0, 1
    while first < units:
        last = min(units, 10**digits)
        size += (last - first) * (_BYTES_PER_DEVICE + len(resource.letter) + digits)
        first, digits = last, digits + 1
    return size


def size_problem(resource: Resource, cards: Collection[Card]) -> str | None:
    """Why the kubelet could not be told of ``cards`` in this unit, with the fix; or None."""
    units = sum(resource.units(card) for card in cards)
    size = message_size(resource, units)
    if size <= MAX_MESSAGE or resource.unit is None:
        return None
    coarser = resource
    while message_size(coarser, sum(coarser.units(card) for card in cards)) > MAX_MESSAGE:
        assert coarser.unit is not None
        coarser = replace(coarser, unit=Unit(coarser.unit.mib * 2))
    return (
        f"unit {resource.unit}: {units} units of {resource.name} make a message of {size} bytes, "
        f"and the kubelet accepts {MAX_MESSAGE}; set the unit to '{coarser.unit}' or more, here and "
        "in the scheduler"
    )
