"""The sentences of refusals: what is not possible, and one thing to do next."""

from __future__ import annotations

import json

from hub_integration.availability import Offer
from hub_integration.hub_versions import SpawnRefused, Why
from hub_integration.pod_state import Stage
from profiles.choice import ChoiceError

_MAX = 500


def invalid(error: ChoiceError) -> SpawnRefused:
    return SpawnRefused(Why.INVALID, f"{error} Choose again on the start page.")


def empty_link() -> SpawnRefused:
    return SpawnRefused(
        Why.INVALID, "The link that brought you here names no kind of server; choose one below."
    )


def no_catalogue() -> SpawnRefused:
    return SpawnRefused(
        Why.CATALOGUE,
        "The list of servers cannot be read, so none can be started; please tell your admin "
        "(the Hub's log says what is wrong with it).",
    )


def full(wanted: Offer, instead: Offer | None) -> SpawnRefused:
    return SpawnRefused(
        Why.CAPACITY, f"{_first_up(wanted.choice.title)}: none is free now. {_next(instead)}"
    )


def impossible(wanted: Offer, instead: Offer | None) -> SpawnRefused:
    return SpawnRefused(
        Why.CAPACITY,
        f"{_first_up(wanted.choice.title)}: no card here could hold it, even when empty. "
        f"{_next(instead)}",
    )


def quota(title: str, objection: str) -> SpawnRefused:
    return SpawnRefused(Why.QUOTA, f"{_first_up(title)} is more than you may have now. {objection}")


def unknown_capacity(title: str) -> SpawnRefused:
    return SpawnRefused(
        Why.CAPACITY,
        f"{_first_up(title)}: what is free cannot be found out right now, and this Hub starts no "
        "GPU server without knowing. Try again in a minute, or tell your admin.",
    )


def too_slow(
    wanted: Offer, stage: Stage, obstacle: str, seconds: float, instead: Offer | None
) -> SpawnRefused:
    """The server did not start in time: for want of room, or for something else."""
    title, time = _first_up(wanted.choice.title), _time(seconds)
    if stage is Stage.UNSCHEDULED:
        text = f"{title}: nothing large enough became free within {time}. {_next(instead)}"
        return SpawnRefused(Why.CAPACITY, text)
    if stage is Stage.UNSEEN:
        text = f"{title}: Kubernetes did not show the server within {time}. Try again."
        return SpawnRefused(Why.TIMEOUT, text)
    why = f": {_cut(obstacle)}" if obstacle else "; its image may still be on the way"
    return SpawnRefused(
        Why.TIMEOUT,
        f"The slice was there, but the server did not start within {time}{why}. Try again.",
    )


def rejected(reason: str) -> SpawnRefused:
    """The kubelet would not take the pod."""
    return SpawnRefused(
        Why.ADMISSION,
        f"The node could not start the server: {_cut(reason)}. Try again; if it happens again, "
        "please tell your admin.",
    )


def denied(status: int, body: str | bytes | None) -> SpawnRefused:
    """The API server would not take the pod: a quota of the namespace, or a rule of the cluster."""
    return SpawnRefused(
        Why.ADMISSION,
        f"Kubernetes does not allow this server: {_cut(api_message(body) or f'status {status}')}. "
        "Choose something else, or ask your admin.",
    )


def api_message(body: str | bytes | None) -> str:
    """The ``message`` of a Status object that the API server answered with."""
    try:
        message = json.loads(body or "").get("message", "")
    except (ValueError, AttributeError):
        return ""
    return str(message)


def _next(instead: Offer | None) -> str:
    if instead is None:
        return "Try again later, or choose another card or size."
    return f"{_first_up(instead.choice.title)} is free now."


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cut(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= _MAX else text[: _MAX - 1] + "…"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
