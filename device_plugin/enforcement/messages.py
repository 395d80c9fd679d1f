"""What people are told: one sentence or two for each thing that happens to a slice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from device_plugin.enforcement.accounts import Held
from device_plugin.enforcement.rules import Reach, Rules
from device_plugin.enforcement.watchdog import Action, Cleared, End, Evict, Fault, Told
from gpushare.cards import Card
from gpushare.units import human_mib


class Reason(StrEnum):
    """Reasons of our Events about pods, and kinds of the notices in notebooks."""

    OVER = "GPUMemoryExceeded"
    RECALLED = "GPUMemoryRecalled"
    CLEARED = "GPUMemoryWithinSlice"
    ASKED = "GPUProcessEnding"
    KILLED = "GPUProcessEnded"
    EVICTED = "GPUSliceEvicted"
    FAULT = "GPUFaultOfMPS"
    SETTING = "GPUSliceSetting"


# What a Kubernetes Event of each reason is marked as.
_NORMAL = frozenset({Reason.CLEARED})


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence for people, and the kind of thing that it is about."""

    reason: Reason
    text: str

    @property
    def event_type(self) -> str:
        """Kubernetes knows two."""
        return "Normal" if self.reason in _NORMAL else "Warning"


def name_card(card: Card) -> str:
    """A card as its users know it: 'T4 card 0'."""
    return f"{card.short_model} card {card.index}"


def describe(held: Held) -> str:
    """A process as its owner sees it: 'process 57 (python3), 4.2 GiB'."""
    where = f" in container {held.container}" if held.container else ""
    process = held.process
    return (
        f"process {process.own_pid} ({process.name or '?'}){where}, holding "
        f"{human_mib(held.known_mib)}"
    )


def message(action: Action, card: Card, rules: Rules, biggest: Held | None = None) -> Message:
    """What to say of ``action``. ``biggest`` is the process that would be ended next."""
    if isinstance(action, Told):
        return _told(action, card, rules, biggest)
    if isinstance(action, Cleared):
        text = f"uses {human_mib(action.used)} of {name_card(card)}: within its slice again"
        return Message(Reason.CLEARED, text)
    if isinstance(action, End):
        return _end(action, card, rules)
    return _evict(action, card)


def _told(told: Told, card: Card, rules: Rules, biggest: Held | None) -> Message:
    used, where = human_mib(told.used), name_card(card)
    over = human_mib(max(1, told.used - told.limit))
    if told.fault is Fault.RECALLED:
        reason = Reason.RECALLED
        what = (
            f"uses {used} of {where}; a new slice needs memory that this one had borrowed beyond "
            f"its {human_mib(told.slice)}"
        )
    else:
        reason = Reason.OVER
        what = f"uses {used} of {where}; its slice is {human_mib(told.slice)}"
    if rules.reach is Reach.REPORT:
        return Message(reason, f"{what}. {over} too much: free it, others were promised it")
    which = f": {describe(biggest)}" if biggest else ""
    seconds = max(1, round(told.deadline))
    consequence = f"or its biggest GPU process is ended{which}"
    return Message(reason, f"{what}. Free {over} within {seconds} s, {consequence}")


def _end(end: End, card: Card, rules: Rules) -> Message:
    which = describe(end.held)
    why = (
        f"the pod used {human_mib(end.used)} of {name_card(card)}, "
        f"{human_mib(end.limit)} is its limit"
    )
    if end.hard:
        return Message(Reason.KILLED, f"ended {which}, which did not end when asked to: {why}")
    seconds = f"{rules.term_grace:g} s"
    return Message(Reason.ASKED, f"asked {which}, to end within {seconds}: {why}")


def _evict(evict: Evict, card: Card) -> Message:
    text = (
        f"evicted: {evict.ended} GPU processes of the pod were ended, and it still used "
        f"{human_mib(evict.used)} of {name_card(card)}, {human_mib(evict.limit)} is its limit. "
        "Ask for a larger slice, or use less memory in each kernel"
    )
    return Message(Reason.EVICTED, text)
