"""A physical card as a node publishes it, and the annotation that carries all of a node's cards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpushare.units import GIB, Unit

HEALTHY = "ok"
_MAX_CARDS = 64
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
        have, want = _TOKEN.findall(self.model.lower()), _TOKEN.findall(wanted.lower())
        if not want:
            return False
        return any(have[i : i + len(want)] == want for i in range(len(have) - len(want) + 1))


@dataclass(frozen=True, slots=True)
class NodeCards:
    """What one node offers: its cards, and the unit its device plugin counts memory in."""

    cards: tuple[Card, ...]
    unit: Unit = GIB


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
    return json.dumps({"v": 1, "unit": node.unit.mib, "cards": cards}, separators=(",", ":"))


def decode(text: str) -> NodeCards:
    """Read the node annotation. Raises ValueError that says what is wrong with it."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("v") != 1:
        raise ValueError("not an object with v=1")
    cards = data.get("cards")
    if not isinstance(cards, list) or len(cards) > _MAX_CARDS:
        raise ValueError(f"'cards' is not a list of at most {_MAX_CARDS} cards")
    decoded = tuple(_decode_card(c) for c in cards)
    if len({c.uuid for c in decoded}) != len(decoded):
        raise ValueError("two cards have one uuid")
    return NodeCards(decoded, Unit(_whole(data, "unit")))


def _decode_card(data: object) -> Card:
    if not isinstance(data, Mapping):
        raise ValueError("a card is not an object")
    return Card(
        uuid=_text(data, "uuid"),
        index=_whole(data, "index"),
        minor=_whole(data, "minor"),
        model=_text(data, "model"),
        memory=_whole(data, "memory"),
        health=_text(data, "health"),
        taken=_whole(data, "taken") if "taken" in data else 0,
    )


def _whole(data: Mapping[str, object], key: str) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"{key!r} is not a whole number")
    return value


def _text(data: Mapping[str, object], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise ValueError(f"{key!r} is not a printable text of 1 to 200 characters")
    return value


def models(cards: Iterable[Card]) -> tuple[str, ...]:
    """The short models among ``cards``, each once, in order of appearance."""
    return tuple(dict.fromkeys(c.short_model for c in cards))
