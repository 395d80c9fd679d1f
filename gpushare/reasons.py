"""Why something cannot be, as data; and the one place that turns it into a sentence.

A reason carries a code for programs and the numbers for people. Sentences say what is wanted, what
there is, and where there is one, the thing to do next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpushare.units import human_mib


class Code(StrEnum):
    """What kind of refusal it is. The values are part of the API."""

    BAD_REQUEST = "bad-request"
    NO_CARDS = "no-cards"
    BAD_NODE = "bad-node"
    UNIT_MISMATCH = "unit-mismatch"
    UNKNOWN_NODE = "unknown-node"
    WRONG_MODEL = "wrong-model"
    UNHEALTHY = "unhealthy"
    TOO_LARGE = "too-large"
    TOO_FEW_CARDS = "too-few-cards"
    NO_MEMORY = "no-memory"
    NO_PERCENT = "no-percent"
    NO_WHOLE_CARD = "no-whole-card"
    NOT_ENOUGH_CARDS = "not-enough-cards"
    NO_COMBINATION = "no-combination"
    NOT_OFFERED = "not-offered"
    KUBELET_FULL = "kubelet-full"
    BOUND_ELSEWHERE = "bound-elsewhere"
    NOT_READY = "not-ready"
    KEPT = "kept"


# On such a node the pod will not fit whoever leaves it, so preempting there is useless.
UNRESOLVABLE = frozenset(
    {
        Code.BAD_REQUEST,
        Code.NO_CARDS,
        Code.BAD_NODE,
        Code.UNIT_MISMATCH,
        Code.UNKNOWN_NODE,
        Code.WRONG_MODEL,
        Code.UNHEALTHY,
        Code.TOO_LARGE,
        Code.TOO_FEW_CARDS,
        Code.NOT_OFFERED,
    }
)

Value = int | str


@dataclass(frozen=True, slots=True)
class Reason:
    """One refusal: its code and the values that its sentence needs."""

    code: Code
    values: Mapping[str, Value] = field(default_factory=dict)

    @property
    def resolvable(self) -> bool:
        """Whether somebody else's leaving could change it."""
        return self.code not in UNRESOLVABLE

    def sentence(self) -> str:
        """The reason for people."""
        return _SENTENCES[self.code].format_map(_Humane(self.values))

    def __str__(self) -> str:
        return self.sentence()


class Refusal(ValueError):
    """A request that is refused, with the reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.sentence())
        self.reason = reason


class _Humane(dict[str, object]):
    """Values for the templates: a key that ends in ``_mib`` is written as a size."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__(
            {
                key: human_mib(value) if key.endswith("_mib") and isinstance(value, int) else value
                for key, value in values.items()
            }
        )

    def __missing__(self, key: str) -> str:
        return "?"


_SENTENCES: dict[Code, str] = {
    Code.BAD_REQUEST: "the request is not valid: {problem}; {fix}",
    Code.NO_CARDS: "the node has no shared cards",
    Code.BAD_NODE: "the node's card annotation cannot be read: {problem}; restart its device plugin",
    Code.UNIT_MISMATCH: (
        "the node counts memory in {node_unit}, the scheduler in {unit}; set the same unit for both"
    ),
    Code.UNKNOWN_NODE: "the node is not known yet",
    Code.WRONG_MODEL: "wants {wanted}, the node has {models}",
    Code.UNHEALTHY: "{cards} fitting card(s) unhealthy: {problem}",
    Code.TOO_LARGE: "wants {want_mib} on one card, the largest card here has {most_mib}",
    Code.TOO_FEW_CARDS: "wants {want} cards, the node has {cards} that it may use",
    Code.NO_MEMORY: "wants {want_mib} on one card, the most free on one card is {most_mib}",
    Code.NO_PERCENT: "wants {want} % of a card's compute, the most free on one card is {most} %",
    Code.NO_WHOLE_CARD: "wants {want} whole card(s), {empty} of {cards} empty",
    Code.NOT_ENOUGH_CARDS: "wants {want} cards with {want_mib} free on each, {fitting} have that",
    Code.NO_COMBINATION: (
        "each container would fit alone, but not all together; the most free on one card is {most_mib}"
    ),
    Code.NOT_OFFERED: (
        "the kubelet offers {most} of {resource}, the pod wants {want}; "
        "the node's device plugin is starting or away"
    ),
    Code.KUBELET_FULL: "the kubelet has {most} of {resource} left to give, the pod wants {want}",
    Code.BOUND_ELSEWHERE: "the pod is bound to {node} already",
    Code.KEPT: "room here is kept for {ahead} pod(s) that came earlier in the line",
    Code.NOT_READY: "the extender has not read the cluster yet; it will in a moment",
}


def aggregate(reasons: Iterable[Reason]) -> str:
    """One line for many nodes: '3 nodes: wants 7 GiB …; 1 node: no shared cards'."""
    counted = Counter(reason.sentence() for reason in reasons)
    return "; ".join(
        f"{count} node{'s' if count > 1 else ''}: {text}" for text, count in counted.most_common()
    )
