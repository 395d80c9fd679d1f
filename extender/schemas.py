"""What the state API answers, version 1. Sizes are in MiB, times in seconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
    used_mib: int | None = Field(description="memory that it really uses; null where not measured")


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
    address: str = Field("", description="the node's internal IP address")
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


class Obstacle(BaseModel):
    """Why one card does not take a pod now."""

    node: str
    card: str = Field(description="uuid")
    index: int
    model: str
    free_mib: int
    free_percent: int
    reason: str


class Leaver(BaseModel):
    """A slice that is in the way."""

    namespace: str
    pod: str
    user: str
    mib: int
    percent: int


class WayOut(BaseModel):
    """If these slices ended, the pod would fit on that card."""

    node: str
    card: str
    slices: list[Leaver]


class Waiter(BaseModel):
    """A pod that waits, its place in the line, and why."""

    namespace: str
    pod: str
    uid: str
    user: str
    since: str = Field(description="when the pod was made, RFC 3339")
    request: str = Field(description="in words: '7 GiB on one card (T4)'")
    mib: int
    percent: int
    cards: int
    models: list[str]
    place: int = Field(description="1 is next; among pods that compete for the same cards")
    of: int
    reasons: list[Obstacle]
    more: int = Field(description="how many cards 'reasons' leaves out")
    would_end: list[WayOut] = Field(
        description="the fewest slices whose end makes room; may be empty"
    )


class WaitingLine(BaseModel):
    """GET /v1/waiting."""

    waiting: list[Waiter]


class WhyWaiting(Waiter):
    """GET /v1/pods/{namespace}/{pod}/why, of a pod that waits."""

    state: Literal["waiting"]


class PlacedCard(BaseModel):
    """What a bound pod holds of one card."""

    card: str
    index: int
    model: str
    mib: int
    percent: int


class WhyPlaced(BaseModel):
    """The same, of a pod that has its slice."""

    state: Literal["placed"]
    namespace: str
    pod: str
    uid: str
    node: str
    cards: list[PlacedCard]


class WhyRefused(BaseModel):
    """The same, of a pod that can never have what it asks for."""

    state: Literal["refused"]
    namespace: str
    pod: str
    uid: str
    sentence: str


class FitRequest(BaseModel):
    """One question of POST /v1/fit. ``percent`` in hundreds means whole cards."""

    id: str = Field(max_length=200)
    mib: int = Field(default=0, ge=0, lt=1 << 30)
    percent: int = Field(default=0, ge=0, le=6400)
    cards: int = Field(default=1, ge=1, le=64)
    models: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=32)


class FitRequests(BaseModel):
    """The body of POST /v1/fit."""

    requests: list[FitRequest] = Field(max_length=1000)


class Where(BaseModel):
    """Where one would go now."""

    node: str
    card: str


class Fit(BaseModel):
    """One answer of POST /v1/fit."""

    id: str
    count: int = Field(description="how many such pods fit now, one beside the other")
    where: Where | None
    largest_mib: int = Field(description="the most memory free on one card that it may use")


class Fits(BaseModel):
    """POST /v1/fit."""

    fits: list[Fit]


class Restart(BaseModel):
    """One pod that would have to be restarted. ``to`` is null where it would have to stop."""

    pod: str
    idle_seconds: int
    to: str | None


class RoomFor(BaseModel):
    """How one waiting pod would get its place; ``node`` is null where idle pods are not in the way."""

    pod: str
    sentence: str
    node: str | None
    restarts: list[Restart]


class MoreCards(BaseModel):
    """What one more card of ``model`` would do."""

    model: str
    served: int
    waiting: int
    sentence: str


class RoomPlan(BaseModel):
    """GET /v1/plan."""

    pods: list[RoomFor]
    additions: list[MoreCards]
    more: int = Field(description="how many waiting pods are left out")


class UsageReport(BaseModel):
    """GET /v1/usage. ``nodes`` are as the device plugins tell them (gpushare/usage.py)."""

    nodes: list[dict[str, Any]]
    age_seconds: dict[str, float]


class ModelSums(BaseModel):
    """MiB of the cards of one model."""

    capacity_mib: int
    allocated_mib: int
    used_mib: int | None


class Minute(ModelSums):
    """One line of the history."""

    at: str
    waiting: int
    by_model: dict[str, ModelSums]


class Minutes(BaseModel):
    """GET /v1/history."""

    minutes: list[Minute]
