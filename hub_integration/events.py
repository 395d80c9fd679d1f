"""Kubernetes' events in the words of somebody who waits for a notebook.

Translated, never hidden: the original stays beside the translation. An event for which there are no
better words is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

# As the API server caps an event's message; also where somebody else's pod-writing tool does not.
_MAX = 1024


@dataclass(frozen=True, slots=True)
class Rule:
    """Events of ``reason`` whose message matches ``message`` say ``text`` to the user.

    ``{choice}`` is what the user chose; groups of ``message`` go in by name.
    """

    reason: str
    text: str
    message: re.Pattern[str] = re.compile("")


def _rule(reason: str, text: str, message: str = "") -> Rule:
    return Rule(reason, text, re.compile(message, re.DOTALL | re.IGNORECASE))


# Those that tell whether the cluster grows.
SCALE_UP = ("TriggeredScaleUp", "NotTriggerScaleUp")

# The first that matches.
RULES: tuple[Rule, ...] = (
    _rule("NoCardFree", "Waiting for {choice}. Free now: {free}.", r"; free: (?P<free>.+)"),
    _rule(
        "Scheduled", "A place was found, on {node}.", r"Successfully assigned \S+ to (?P<node>\S+)"
    ),
    _rule(
        "FailedScheduling",
        "Waiting for {choice}: nothing is free that is large enough.",
        r"wants .+ on one card|whole card|of a card's compute|gpu-mem|gpu-percent",
    ),
    _rule(
        "FailedScheduling",
        "Waiting for processor time or main memory: the nodes are full.",
        r"Insufficient (cpu|memory)|Too many pods",
    ),
    _rule(
        "FailedScheduling",
        "Waiting for storage: the volume is not there yet.",
        r"PersistentVolumeClaim|volume node affinity",
    ),
    _rule("FailedScheduling", "Waiting for a place: no node can take the server now."),
    _rule("TriggeredScaleUp", "The cluster adds a node for this server; that takes some minutes."),
    _rule(
        "NotTriggerScaleUp", "The cluster cannot add a node for this server; waiting for a place."
    ),
    _rule("Preempted", "The server had to make room for a more important one."),
    _rule("Pulled", "The image is on the node.", r"already present"),
    _rule("Pulled", "The image has arrived."),
    _rule("Pulling", "The image is being fetched; the first time on a node, that takes a while."),
    _rule("Created", "The server's container is ready to start."),
    _rule("Started", "The server has started; waiting for it to answer."),
    _rule("SuccessfulAttachVolume", "The storage is attached."),
    _rule("FailedAttachVolume", "The storage cannot be attached yet; Kubernetes tries again."),
    _rule("FailedMount", "The storage cannot be mounted yet; Kubernetes tries again."),
    _rule(
        "UnexpectedAdmissionError",
        "The node could not give the slice: {message}",
        r"(?P<message>.+)",
    ),
    _rule("Failed", "The image cannot be fetched: {message}", r"(?P<message>.*pull.*)"),
    _rule("Failed", "The container cannot be made: {message}", r"(?:Error: )?(?P<message>.+)"),
    _rule(
        "BackOff",
        "That did not work; Kubernetes tries again after a pause.",
    ),
    _rule("Killing", "The server is being ended."),
)


def translate(event: Mapping[str, Any], choice: str) -> str:
    """The event in plain words."""
    message = str(event.get("message") or "").strip()[:_MAX]
    for rule in RULES:
        match = rule.message.search(message) if event.get("reason") == rule.reason else None
        if match:
            return rule.text.format(choice=choice, **match.groupdict())
    return message or str(event.get("reason") or "")


def progress_event(item: Mapping[str, Any], choice: str) -> dict[str, Any]:
    """One of KubeSpawner's progress items with the event's translation in front.

    Items without an event (KubeSpawner's word of patience) stay as they are. ``html_message`` goes
    into the page unescaped, and an event's text may hold what a user wrote: all of it is escaped.
    """
    event = item.get("raw_event")
    if not isinstance(event, Mapping):
        return dict(item)
    text, original = translate(event, choice), str(item.get("message") or "")[:_MAX]
    html = Markup(
        "{} <details><summary><small>What Kubernetes said</small></summary>"
        "<small><code>{}</code></small></details>"
    ).format(text, original)
    return {**item, "message": text, "html_message": str(html)}
