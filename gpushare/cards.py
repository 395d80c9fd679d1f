"""A physical card as a node publishes it, and the annotation that carries all of a node's cards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gpushare.fields import mapping, printable, versioned_object, whole
from gpushare.fields import text as text_field
from gpushare.units import GIB, Unit

HEALTHY = "ok"
_MAX_CARDS = 64
_LONGEST = 200  # characters of any text
_TOKEN = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Card:
    """One card of one node.

    ``memory`` is in MiB. ``index`` is NVML's, ``minor`` is the number in /dev/nvidiaN; they may
    differ, so the card's identity is its ``uuid``. ``health`` is "ok" or the reason why it is not.
    ``taken`` is what processes outside of any slice hold of the memory, in MiB.
    """

    uuid: str
    index: int
    minor: int
    model: str
    memory: int
    health: str = HEALTHY
    taken: int = 0

    @property
    def healthy(self) -> bool:
        return self.health == HEALTHY

    @property
    def short_model(self) -> str:
        """The model as people say it: 'T4', 'A10', 'A100-SXM4-40GB'."""
        return re.sub(r"^((NVIDIA|Tesla|GeForce|Quadro)\s+)+", "", self.model) or self.model

    def is_model(self, wanted: str) -> bool:
        """Whether ``wanted`` names this model: 'A10' is an 'NVIDIA A10' but no 'NVIDIA A100'."""
        return _names(wanted, self.model)


@lru_cache(maxsize=4096)
def _names(wanted: str, model: str) -> bool:
    """A form asks this for each of a thousand nodes' cards, of which there are a few models."""
    have, want = _TOKEN.findall(model.lower()), _TOKEN.findall(wanted.lower())
    if not want:
        return False
    return any(have[i : i + len(want)] == want for i in range(len(have) - len(want) + 1))


@dataclass(frozen=True, slots=True)
class NodeCards:
    """What one node offers: its cards, and the unit its device plugin counts memory in.

    ``also`` are the resources of other systems' dialects that it serves.
    """

    cards: tuple[Card, ...]
    unit: Unit = GIB
    also: tuple[str, ...] = ()


def encode(node: NodeCards) -> str:
    """The node annotation's text. Deterministic, so an unchanged node is never patched."""
    cards = [
        {
            "uuid": c.uuid,
            "index": c.index,
            "minor": c.minor,
            "model": c.model,
            "memory": c.memory,
            "health": c.health,
            **({"taken": c.taken} if c.taken else {}),
        }
        for c in sorted(node.cards, key=lambda c: c.index)
    ]
    also = {"also": list(node.also)} if node.also else {}
    return json.dumps(
        {"v": 1, "unit": node.unit.mib, "cards": cards, **also}, separators=(",", ":")
    )


def decode(text: str) -> NodeCards:
    """Read the node annotation. Raises ValueError that says what is wrong with it."""
    data = versioned_object(text)
    cards = data.get("cards")
    if not isinstance(cards, list) or len(cards) > _MAX_CARDS:
        raise ValueError(f"'cards' is not a list of at most {_MAX_CARDS} cards")
    decoded = tuple(_decode_card(c) for c in cards)
    if len({c.uuid for c in decoded}) != len(decoded):
        raise ValueError("two cards have one uuid")
    return NodeCards(decoded, Unit(whole(data, "unit")), _decode_also(data.get("also", [])))


def _decode_also(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MAX_CARDS:
        raise ValueError(f"'also' is not a list of at most {_MAX_CARDS} resources")
    return tuple(printable(name, "a resource", _LONGEST) for name in value)


def _decode_card(value: object) -> Card:
    data = mapping(value, "a card")
    return Card(
        uuid=text_field(data, "uuid", _LONGEST),
        index=whole(data, "index"),
        minor=whole(data, "minor"),
        model=text_field(data, "model", _LONGEST),
        memory=whole(data, "memory"),
        health=text_field(data, "health", _LONGEST),
        taken=whole(data, "taken") if "taken" in data else 0,
    )


def models(cards: Iterable[Card]) -> tuple[str, ...]:
    """The short models among ``cards``, each once, in order of appearance."""
    return tuple(dict.fromkeys(c.short_model for c in cards))
