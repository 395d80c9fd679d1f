"""What the state API answers, version 1. Sizes are in MiB, times in seconds."""

from __future__ import annotations

from pydantic import BaseModel, Field


class SliceState(BaseModel):
    """What one pod holds of one card."""

    namespace: str
    pod: str
    uid: str
    user: str = Field(description="the JupyterHub user, or empty")
    mib: int = Field(description="memory that is held, in MiB")
    percent: int = Field(description="compute that is held, in per cent; 0 is best effort")
    reserved: bool = Field(description="the pod is being bound at this moment")
    leaving: bool = Field(description="the pod is deleted, but its containers may still run")


class CardState(BaseModel):
    """One card."""

    uuid: str
    index: int
    model: str = Field(description="as NVML says it: Tesla T4, NVIDIA A10")
    short_model: str = Field(description="as people say it: T4, A10")
    memory_mib: int
    health: str = Field(description="'ok', or what is wrong with the card")
    allocated_mib: int
    allocated_percent: int
    free_mib: int
    free_percent: int
    empty: bool = Field(description="no pod holds any part of it")
    taken_mib: int = Field(description="memory that processes outside of any slice hold")
    used_mib: int | None = Field(description="memory that is really used; null where not measured")
    slices: list[SliceState]


class NodeState(BaseModel):
    """One node that publishes cards, or on which slices are."""

    name: str
    unit_mib: int = Field(description="what one gpu-mem is on this node, in MiB")
    problem: str = Field(description="why its cards cannot be used, or empty")
    takes_pods: bool = Field(description="ready and not cordoned")
    cards: list[CardState]


class WaitingPod(BaseModel):
    """A pod that asks for a slice and is not bound."""

    namespace: str
    pod: str
    uid: str
    wants: str = Field(description="in words: '7 GiB on one card'")
    seconds: float = Field(description="how long it has waited")


class Totals(BaseModel):
    """Sums over all healthy and unhealthy cards."""

    nodes: int
    cards: int
    memory_mib: int
    allocated_mib: int
    waiting: int


class Nodes(BaseModel):
    """GET /v1/nodes."""

    unit_mib: int
    totals: Totals
    nodes: list[NodeState]
    waiting: list[WaitingPod]


class Problem(BaseModel):
    """Every answer that is not 2xx."""

    detail: str
