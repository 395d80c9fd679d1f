"""Servers, cards and waiting pods for the tests of the culler."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gpushare.usage import CardUse, ContainerUse, NodeUsage, SliceUse, StrayUse
from gpushare.waiting import WaitingPod
from hub_integration.culling.memory import Reclaim, State
from hub_integration.culling.observed import CardView, Held, Pod, Server, View
from hub_integration.culling.policy import IdlePolicy
from hub_integration.culling.rules import ServerRules

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RULES = ServerRules(
    IdlePolicy(
        idle=30 * MINUTE,
        pressed_idle=15 * MINUTE,
        gpu_idle=20 * MINUTE,
        warn=5 * MINUTE,
        guaranteed=10 * MINUTE,
        max_age=None,
    ),
    kernel_idle=10 * MINUTE,
    hold=30 * MINUTE,
)


def at(minutes: float) -> datetime:
    return START + minutes * MINUTE


def server(user: str, used: float = 0, *, name: str = "") -> Server:
    """A server that was started at 0 and used ``used`` minutes later."""
    return Server(user, name, START, at(used), f"/user/{user}/{name}")


def pod(user: str, **more: object) -> Pod:
    fields = {"user": user, "node": "t4-1", "phase": "Running", "ip": "10.0.0.9"}
    return Pod("jupyter", f"jupyter-{user}", f"uid-{user}", **{**fields, **more})  # type: ignore[arg-type]


def held(user: str, gib: int = 3, card: str = "GPU-0", percent: int = 0) -> Held:
    name = f"jupyter-{user}"
    return Held(
        "jupyter", name, f"uid-{user}", user, "t4-1", card, "T4", gib * 1024, percent
    )  # fmt: skip


def card(*slices: Held, name: str = "GPU-0", gib: int = 15, model: str = "T4") -> CardView:
    return CardView(
        node="t4-1",
        uuid=name,
        model=model,
        product=f"Tesla {model}",
        memory_mib=gib * 1024,
        free_mib=gib * 1024 - sum(one.mib for one in slices),
        free_percent=100 - sum(one.percent for one in slices),
        usable=True,
        slices=slices,
    )


def use(
    user: str,
    last: float | None = None,
    mib: int = 1000,
    *,
    watched: float = 0,
    card: str = "GPU-0",
) -> SliceUse:
    """What a slice uses; its last kernel ran ``last`` minutes after the start."""
    kernel = None if last is None else at(last).timestamp()
    return SliceUse(
        "jupyter", f"jupyter-{user}", f"uid-{user}", card, 3072, 3072,
        used_mib=mib, last_kernel=kernel, watched_since=at(watched).timestamp(),
        containers=(ContainerUse("notebook", mib, mib, 1 if mib else 0),),
    )  # fmt: skip


def view(
    *cards: CardView, uses: tuple[SliceUse, ...] = (), age: float = 1.0, **more: object
) -> View:
    strays = more.pop("strays", ())
    node = NodeUsage(
        "t4-1",
        0.0,
        "watchdog",
        tuple(CardUse(c.uuid) for c in cards),
        uses,
        strays,  # type: ignore[arg-type]
    )
    return View(cards, usage={"t4-1": node}, ages={"t4-1": age}, **more)  # type: ignore[arg-type]


def stray(user: str, mib: int) -> StrayUse:
    return StrayUse("GPU-0", 4711, "python", mib, f"uid-{user}")


def waiter(name: str = "w", gib: int = 3, since: float = 0, **more: object) -> WaitingPod:
    entry = WaitingPod(
        "jupyter", name, f"uid-{name}", name, at(since).timestamp(), f"{gib} GiB", gib * 1024,
        0, 1, ("T4",), 1, 1,
    )  # fmt: skip
    return replace(entry, **more)  # type: ignore[arg-type]


def reclaim(user: str = "ann", **more: object) -> Reclaim:
    one = Reclaim(
        "server", user, "", START.timestamp(), "jupyter", f"jupyter-{user}", f"uid-{user}",
        "t4-1", ("T4",), 3072, "idle", "Ended: unused.", State.STOPPING, at(40).timestamp(),
    )  # fmt: skip
    return replace(one, **more)  # type: ignore[arg-type]
