"""Where each container of a pod sits: the one durable record that gpushare keeps.

It is written as an annotation of the Binding, so that binding and placement are one write, and read
back by the extender (to rebuild its ledger) and by the device plugin (to make the container).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpushare.demand import Role
from gpushare.fields import mapping, printable, versioned_object, whole
from gpushare.fields import text as text_field

_MAX_CONTAINERS = 256
_MAX_SHARES = 64
_LONGEST = 253  # characters of a Kubernetes name
_ROLE_KEYS = {Role.APP: "containers", Role.SIDECAR: "sidecars", Role.INIT: "init"}


@dataclass(frozen=True, slots=True)
class Share:
    """``mib`` MiB and ``percent`` per cent of one card."""

    card: str
    mib: int
    percent: int


@dataclass(frozen=True, slots=True)
class ContainerPlacement:
    """One container and its shares, each on another card."""

    name: str
    role: Role
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """All shares of one pod on one node. ``uid`` ties it to that very pod."""

    uid: str
    node: str
    containers: tuple[ContainerPlacement, ...]

    def container(self, name: str) -> ContainerPlacement | None:
        """The named container's placement, or None if it has no card."""
        return next((c for c in self.containers if c.name == name), None)

    def footprint(self) -> dict[str, tuple[int, int]]:
        """(MiB, per cent) that the pod holds of each card, at its peak.

        App containers and sidecars add up. A plain init container runs before the app containers,
        beside sidecars, so it only raises the peak.
        """
        return _footprint(self.containers)


@dataclass(slots=True)
class _Sums:
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, shares: Iterable[Share]) -> None:
        for share in shares:
            mib, percent = self.totals.get(share.card, (0, 0))
            self.totals[share.card] = (mib + share.mib, percent + share.percent)


def _footprint(containers: Iterable[ContainerPlacement]) -> dict[str, tuple[int, int]]:
    steady, sidecars, inits = _Sums(), _Sums(), []
    for container in containers:
        if container.role is Role.INIT:
            inits.append(container)
            continue
        steady.add(container.shares)
        if container.role is Role.SIDECAR:
            sidecars.add(container.shares)
    peak = dict(steady.totals)
    for container in inits:
        moment = _Sums(dict(sidecars.totals))
        moment.add(container.shares)
        for card, (mib, percent) in moment.totals.items():
            have_mib, have_percent = peak.get(card, (0, 0))
            peak[card] = (max(have_mib, mib), max(have_percent, percent))
    return peak


def encode(placement: Placement) -> str:
    """The annotation's text."""
    data: dict[str, object] = {"v": 1, "uid": placement.uid, "node": placement.node}
    for container in placement.containers:
        group = data.setdefault(_ROLE_KEYS[container.role], {})
        assert isinstance(group, dict)
        group[container.name] = [
            {"card": share.card, "mib": share.mib, "percent": share.percent}
            for share in container.shares
        ]
    return json.dumps(data, separators=(",", ":"))


def decode(text: str) -> Placement:
    """Read the annotation. Raises ValueError that says what is wrong with it."""
    data = versioned_object(text)
    containers: list[ContainerPlacement] = []
    for role, key in _ROLE_KEYS.items():
        containers += (
            ContainerPlacement(
                printable(name, "a container's name", _LONGEST), role, _decode_shares(shares)
            )
            for name, shares in mapping(data.get(key, {}), repr(key)).items()
        )
    if not containers or len(containers) > _MAX_CONTAINERS:
        raise ValueError(f"not 1 to {_MAX_CONTAINERS} containers")
    if len({c.name for c in containers}) != len(containers):
        raise ValueError("one container stands in it twice")
    uid, node = (text_field(data, key, _LONGEST) for key in ("uid", "node"))
    return Placement(uid, node, tuple(containers))


def _decode_shares(data: object) -> tuple[Share, ...]:
    if not isinstance(data, list) or not 1 <= len(data) <= _MAX_SHARES:
        raise ValueError(f"shares are not a list of 1 to {_MAX_SHARES}")
    shares = tuple(_decode_share(item) for item in data)
    if len({share.card for share in shares}) != len(shares):
        raise ValueError("one container has two shares on one card")
    return shares


def _decode_share(value: object) -> Share:
    data = mapping(value, "a share")
    return Share(
        text_field(data, "card", _LONGEST), whole(data, "mib"), whole(data, "percent", below=101)
    )
