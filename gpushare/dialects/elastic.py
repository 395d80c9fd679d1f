"""nano-gpu and what became of it, Elastic GPU: per cent of a card, later with memory beside it.

Their agents hand a container its cards by device nodes that they make up from a hash (``GPU``); the
hash is given here as well, the cards come the same way as for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpushare.demand import Demand
from gpushare.dialects.claims import GROUP
from gpushare.dialects.dialect import (
    Annotations,
    Ask,
    Bound,
    Dialect,
    Resource,
    Seat,
    index_list,
    memory,
    percent_demand,
    whole_cards,
)
from gpushare.units import Unit

Told = Callable[[Mapping[str, object], Sequence[str]], Mapping[str, tuple[int, ...]]]


def _container_key(prefix: str, name: str) -> str:
    return f"{prefix}/container-{name}"


def _indexes_told(prefix: str) -> Told:
    def told(
        annotations: Mapping[str, object], containers: Sequence[str]
    ) -> Mapping[str, tuple[int, ...]]:
        found = {c: index_list(annotations.get(_container_key(prefix, c))) for c in containers}
        return {name: indexes for name, indexes in found.items() if indexes}

    return told


def _nano(name: str, prefix: str) -> Dialect:
    """One resource, 100 for each card. Containers without a card are told so: '-1'."""
    resource, assumed = f"{prefix}/gpu-percent", f"{prefix}/assume"

    def read(dialect: Dialect, ask: Ask) -> Demand:
        return percent_demand(resource, ask.of(resource))

    def annotations(dialect: Dialect, bound: Bound) -> Annotations:
        seated = {_container_key(prefix, seat.name): seat.indexes for seat in bound.seats}
        others = {_container_key(prefix, name): "-1" for name in bound.containers}
        return {assumed: "true"} | others | seated

    def environment(dialect: Dialect, bound: Bound, seat: Seat, digest: str) -> Mapping[str, str]:
        return {"GPU": digest[:8], "ku": str(seat.counts.get(resource, 0))}

    return Dialect(
        name=name,
        resources=(Resource(resource),),
        read=read,
        annotations=annotations,
        labels={assumed: "true"},
        protected=(assumed, f"{prefix}/container-*"),
        environment=environment,
        told=_indexes_told(prefix),
        routes="scheduler",
    )


def _elastic(name: str, prefix: str) -> Dialect:
    """Per cent of a card (core) and MiB; 100 or more of core are whole cards, with all their memory."""
    core, mem = f"{prefix}/gpu-core", f"{prefix}/gpu-memory"
    marks = GROUP  # on pods it is the same for both prefixes of resources

    def read(dialect: Dialect, ask: Ask) -> Demand:
        if ask.of(core) >= 100:
            return whole_cards(core, ask.of(core) // 100)
        if not ask.of(mem):
            return percent_demand(core, ask.of(core))
        return Demand(memory(mem, ask.of(mem), dialect.unit), ask.of(core))

    def annotations(dialect: Dialect, bound: Bound) -> Annotations:
        seated = {_container_key(marks, seat.name): seat.indexes for seat in bound.seats}
        return {f"{marks}/assumed": "true"} | seated

    def environment(dialect: Dialect, bound: Bound, seat: Seat, digest: str) -> Mapping[str, str]:
        return {"GPU": digest[:8]}

    return Dialect(
        name=name,
        resources=(Resource(mem, unit=Unit(1)), Resource(core)),
        read=read,
        annotations=annotations,
        labels={f"{marks}/assumed": "true"},
        protected=(f"{marks}/assumed", f"{marks}/container-*"),
        environment=environment,
        told=_indexes_told(marks),
        routes="scheduler",
        claims=GROUP if prefix == GROUP else "",
    )


NANO = _nano("nano", "nano-gpu")
# What nano-gpu was called for a while before it became Elastic GPU.
NANO_RENAMED = _nano("elastic-gpu", "elastic-gpu")
ELASTIC = _elastic("elastic", "elasticgpu.io")
ELASTIC_COM = _elastic("elastic-com", "elasticgpu.com")
