"""What the kubelet counts: plain sums per node, beside the cards' own books.

The kubelet knows our resources only as numbers of devices. It refuses a pod for good when too few
are left, so the scheduling side keeps the same sums and never sends it one pod too many.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpushare.names import Names
from gpushare.reasons import Code, Reason
from gpushare.request import ContainerRequest, PodRequest, Role
from gpushare.units import GIB, Unit


@dataclass(frozen=True, slots=True)
class Amounts:
    """Units of gpu-mem, and per cent of gpu-percent; and of the dialects' resources, by name."""

    mem: int = 0
    percent: int = 0
    foreign: tuple[tuple[str, int], ...] = ()

    def of(self, resource: str) -> int:
        """How many of a dialect's resource."""
        return next((count for name, count in self.foreign if name == resource), 0)

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.mem + other.mem, self.percent + other.percent, _joined(self, other, 1))

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(self.mem - other.mem, self.percent - other.percent, _joined(self, other, -1))


def _joined(a: Amounts, b: Amounts, sign: int) -> tuple[tuple[str, int], ...]:
    if not b.foreign:
        return a.foreign
    counts = dict(a.foreign)
    for name, count in b.foreign:
        counts[name] = counts.get(name, 0) + sign * count
    return tuple(sorted((name, count) for name, count in counts.items() if count))


NONE = Amounts()


def amounts(request: PodRequest, unit: Unit = GIB) -> Amounts:
    """What the kubelet counts for a pod: its steady state, or an init container if that is more.

    Sidecars run beside everything (KEP-753); here they count as if all of them were started before
    the first init container, which is never too little.
    """
    steady, sidecars, inits = NONE, NONE, []
    for container in request.containers:
        own = _devices(container, unit)
        if container.role is Role.INIT:
            inits.append(own)
            continue
        steady += own
        if container.role is Role.SIDECAR:
            sidecars += own
    moments = [steady, *(sidecars + init for init in inits)]
    foreign = {name for moment in moments for name, _ in moment.foreign}
    return Amounts(
        max(m.mem for m in moments),
        max(m.percent for m in moments),
        tuple((name, max(m.of(name) for m in moments)) for name in sorted(foreign)),
    )


def _devices(container: ContainerRequest, unit: Unit) -> Amounts:
    demand = container.demand
    if container.dialect:
        return Amounts(foreign=container.devices)
    if demand.whole:
        return Amounts(percent=100 * demand.cards)
    # With several cards the limit on the pod is what is wanted of each, so that is all that the
    # kubelet hears of.
    return Amounts(0 if demand.mib is None else demand.mib // unit.mib, demand.percent)


def shortage(want: Amounts, offered: Amounts, asked: Amounts, names: Names) -> Reason | None:
    """Why the kubelet of a node would refuse the pod, or None.

    ``offered`` is the node's status.allocatable, ``asked`` the sum over the pods bound to it.
    """
    for resource, wanted, offers, others in (
        (names.gpu_mem, want.mem, offered.mem, asked.mem),
        (names.gpu_percent, want.percent, offered.percent, asked.percent),
        *((name, count, offered.of(name), asked.of(name)) for name, count in want.foreign),
    ):
        values: dict[str, int | str] = {"resource": resource, "want": wanted}
        if wanted > offers:
            return Reason(Code.NOT_OFFERED, {**values, "most": offers})
        if wanted > offers - others:
            return Reason(Code.KUBELET_FULL, {**values, "most": max(0, offers - others)})
    return None
