"""A slice on its way back: from the decision until the node says that it is free.

A server counts as freed only when its pod is gone from Kubernetes, the extender offers its slice
again, and the node has measured, later than that, that no process of the pod is left on a card.
Where one of these does not come true in time, there is an alarm that says which and why. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hub_integration.culling.memory import Reclaim, State
from hub_integration.culling.observed import Pod, Server, View

# A node that was not heard for so long is lost, in seconds.
LOST = 60.0


class Trouble(StrEnum):
    """Why a slice does not come back. The values are part of the API and of the metrics."""

    HUB = "hub-did-not-stop"
    FINALIZER = "stuck-finalizer"
    NODE = "lost-node"
    PROCESS = "process-lives"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of one reclaimed pod now. None: could not be asked.

    ``running``: the Hub runs that very start of the server and does not stop it. ``held``: the
    extender counts its slice. ``processes``: how many of it are on cards, measured ``measured_at``.
    ``node_silent``: the node takes nothing, or has not said for long what its cards do.
    ``pods_missing``: Kubernetes can be asked, and did not answer this time.
    """

    running: bool | None = None
    pod: Pod | None = None
    pods_known: bool = False
    pods_missing: bool = False
    held: bool | None = None
    processes: int | None = None
    used_mib: int = 0
    measured_at: float = 0.0
    node_silent: bool = False


def sight(
    reclaim: Reclaim,
    servers: Mapping[tuple[str, str], Server] | None,
    pods: Iterable[Pod] | None,
    view: View | None,
    now: float,
) -> Sight:
    """What these observations say of one reclaim."""
    running = None
    if servers is not None:
        server = servers.get((reclaim.user, reclaim.server))
        same = server is not None and abs(server.started.timestamp() - reclaim.started) < 1
        running = bool(same and server and not server.pending)
    pod = next((p for p in pods or () if p.uid == reclaim.uid), None)
    seen = Sight(running, pod, pods is not None)
    if view is None or not reclaim.uid:
        return replace(seen, held=False if view is not None else None)
    held = any(h.uid == reclaim.uid for card in view.cards for h in card.slices)
    usage, age = view.usage.get(reclaim.node), view.ages.get(reclaim.node, 0.0)
    silent = reclaim.node in view.silent_nodes or (bool(reclaim.node) and age > LOST)
    if usage is None:
        return replace(seen, held=held, node_silent=silent)
    mine = [s for s in usage.slices if s.uid == reclaim.uid]
    strays = [s for s in usage.strays if s.pod_uid == reclaim.uid]
    processes = sum(c.processes for s in mine for c in s.containers) + len(strays)
    used = sum(s.used_mib for s in mine) + sum(s.used_mib for s in strays)
    return replace(
        seen,
        held=held,
        processes=max(processes, 1 if used else 0),
        used_mib=used,
        measured_at=now - age,
        node_silent=silent,
    )


def follow(reclaim: Reclaim, seen: Sight, now: float, alarm_after: float) -> Reclaim:
    """The reclaim as it is after this sight. ``alarm_after``: seconds from the decision."""
    reclaim = _stopped(reclaim, seen, now)
    missing = _missing(reclaim, seen, now)
    if missing is None:
        confirmed = seen.processes is not None or not reclaim.mib
        return replace(reclaim, state=State.FREED, freed_at=now, confirmed=confirmed, alarm="",
                       alarm_text="", alarm_since=None)  # fmt: skip
    if now - reclaim.decided_at < alarm_after:
        return reclaim
    trouble, text = missing
    since = reclaim.alarm_since if reclaim.alarm else now
    return replace(
        reclaim, state=State.STUCK, alarm=trouble.value, alarm_text=text, alarm_since=since
    )


def _stopped(reclaim: Reclaim, seen: Sight, now: float) -> Reclaim:
    """The moment when the Hub began to stop it, or its pod was on the way out."""
    going = seen.running is False or (seen.pod is not None and seen.pod.deleting)
    vanished = bool(reclaim.uid) and seen.pods_known and seen.pod is None
    if reclaim.state is State.STOPPING and (going or vanished):
        return replace(reclaim, state=State.LEAVING, stopped_at=now)
    return reclaim


def _missing(reclaim: Reclaim, seen: Sight, now: float) -> tuple[Trouble, str] | None:
    """What is missing until the slice is free, and in whose hands that is; None: nothing."""
    pod, node = seen.pod, reclaim.node or "its node"
    if seen.pods_missing:
        return Trouble.UNKNOWN, "Kubernetes does not say whether its pod is gone; see the log"
    if pod is None and seen.running:
        return Trouble.HUB, (
            "the Hub was asked to stop the server and it still runs; see the Hub's log"
        )
    if pod is not None and not pod.deleting:
        return Trouble.HUB, (
            f"pod {pod.namespace}/{pod.name} is still there and nothing deletes it; "
            "see the Hub's log"
        )
    if seen.processes and (pod is None or pod.finished):
        return Trouble.PROCESS, (
            f"{seen.processes} of its processes are still on a card of {node} with "
            f"{seen.used_mib} MiB; on the node, see `nvidia-smi` and end them, or drain the card"
        )
    if pod is not None and seen.node_silent and not pod.finished:
        return Trouble.NODE, (
            f"node {node} does not answer, so nobody can say that the pod's processes have ended; "
            f"bring the node back, or when it is really off, `kubectl delete node {node}`"
        )
    if pod is not None and pod.finalizers:
        return Trouble.FINALIZER, (
            f"pod {pod.namespace}/{pod.name} is kept by the finalizer "
            f"{', '.join(pod.finalizers)}; see why its controller does not remove it"
        )
    if pod is not None:
        return Trouble.UNKNOWN, (
            f"pod {pod.namespace}/{pod.name} is being deleted on {node} and does not end; "
            f"see `kubectl -n {pod.namespace} describe pod {pod.name}`"
        )
    unknown = seen.held is None and reclaim.mib > 0
    if unknown or seen.running is None:
        who = "the extender" if unknown else "the Hub"
        return Trouble.UNKNOWN, f"{who} does not answer, so it is not known whether it is free"
    if seen.held:
        return Trouble.UNKNOWN, "the pod is gone, but the extender still counts its slice"
    if reclaim.mib and seen.processes is not None:
        gone_since = reclaim.stopped_at or reclaim.decided_at
        if seen.node_silent:
            return Trouble.NODE, (
                f"node {node} does not answer, so nobody can say whether its processes have ended"
            )
        if seen.measured_at <= gone_since:
            return Trouble.UNKNOWN, f"node {node} has not measured its cards since the stop"
    return None
