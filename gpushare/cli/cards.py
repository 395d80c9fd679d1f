"""Which card is meant, and taking one out of service: the cordon annotation of its node."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpushare.cli.cluster import Connection, NoState, Refused, message
from gpushare.names import DEFAULT_PREFIX, Names

# How often the node may have changed between our reading and our writing.
_ATTEMPTS = 5


@dataclass(frozen=True)
class Chosen:
    """One card, and the pods that hold slices of it."""

    node: str
    index: int
    uuid: str
    model: str
    slices: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        return f"{self.node}/{self.index} ({self.model}, {self.uuid})"


def choose(state: Mapping[str, Any], text: str) -> Chosen:
    """The card that ``text`` names, as NODE/INDEX or by its UUID. Raises NoState."""
    cards = [
        Chosen(
            node["name"],
            card["index"],
            card["uuid"],
            card.get("short_model") or card["model"],
            tuple(card["slices"]),
        )
        for node in state["nodes"]
        for card in node["cards"]
    ]
    found = [one for one in cards if text in (one.uuid, f"{one.node}/{one.index}")]
    if len(found) != 1:
        have = ", ".join(f"{one.node}/{one.index}" for one in cards) or "none"
        raise NoState(f"no card {text!r}; name one as NODE/INDEX or by its UUID. There are: {have}")
    return found[0]


def names(connection: Connection, said: str | None) -> Names:
    """The names in use: what the user says, else what the installed extender is set to."""
    if said:
        return Names(said)
    path = f"/api/v1/namespaces/{connection.namespace}/configmaps/gpushare-extender"
    try:
        settings = json.loads(connection.get(path)["data"]["config.json"])
        return Names(settings["Extender"]["prefix"])
    except (Refused, KeyError, TypeError, ValueError):
        return Names(DEFAULT_PREFIX)


def cordon(connection: Connection, names: Names, card: Chosen) -> bool:
    """Let nothing new onto ``card``; False where it was so already. Raises NoState."""
    return _change(connection, names, card, lambda listed: {*listed, card.uuid})


def uncordon(connection: Connection, names: Names, card: Chosen) -> bool:
    """Take the cordon back; False where there was none. Raises NoState."""
    said = {card.uuid, str(card.index)}
    return _change(connection, names, card, lambda listed: {*listed} - said)


def _change(
    connection: Connection,
    names: Names,
    card: Chosen,
    change: Callable[[frozenset[str]], set[str]],
) -> bool:
    path = f"/api/v1/nodes/{card.node}"
    for _ in range(_ATTEMPTS):
        try:
            metadata = connection.get(path)["metadata"]
            text = (metadata.get("annotations") or {}).get(names.cordon, "")
            listed = frozenset(part.strip() for part in text.split(",") if part.strip())
            wanted = change(listed)
            if wanted == listed:
                return False
            annotations = {names.cordon: ",".join(sorted(wanted)) or None}
            # With the version that was read: two operators at once must not undo each other.
            version = metadata["resourceVersion"]
            connection.patch(
                path, {"metadata": {"resourceVersion": version, "annotations": annotations}}
            )
            return True
        except Refused as refused:
            if refused.status != 409:
                raise NoState(
                    f"the node {card.node} cannot be changed: {message(refused.message)}\n"
                    "It needs the rights to get and patch nodes."
                ) from None
    raise NoState(f"the node {card.node} changes all the time; try again")
