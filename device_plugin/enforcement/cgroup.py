"""Which pod and container a process belongs to, from /proc/PID/cgroup. Pure.

Understood: cgroup v1 and v2; the kubelet's cgroupfs and systemd drivers; containerd, CRI-O and
Docker (dockershim and cri-dockerd); the mixed form that containerd makes when only the kubelet
uses systemd; any parent above the kubelet's own (``--cgroup-root``, nested clusters); and paths
relative to a reader in a cgroup namespace of its own, which begin with ``/../..`` and may lack
everything above the pod.

Of several pods in a path the outermost that this node knows counts. What stands below it was made
inside the pod: by Docker in Docker, by a systemd in the container, or by a tenant who would like
to be somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

# A pod's uid: a UUID, with '_' for '-' under systemd; a static pod's is an MD5 in hex.
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"(?:[A-Za-z0-9_.-]*-)?pod(?P<uid>{_UID})(?:\.slice)?")
# 'ID', 'cri-containerd-ID.scope', 'crio-ID.scope', 'docker-ID.scope', 'crio-ID'
_CONTAINER = re.compile(r"(?:(?P<runtime>[a-z][a-z-]*)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")
# One segment for both: 'kubepods-podUID.slice:cri-containerd:ID'
_JOINED = re.compile(
    rf"(?:[A-Za-z0-9_.-]*-)?pod(?P<uid>{_UID})\.slice:[a-z-]+:(?P<id>[0-9a-f]{{64}})"
)
# CRI-O's monitor of a container has the container's id, and is not in the container.
_MONITORS = frozenset({"crio-conmon", "libpod-conmon"})
# Where controllers of v1 disagree, those that a container can least be moved out of are believed.
_TRUSTED = ("devices", "memory", "pids", "cpu")


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod and one of its containers (the runtime's id; '' for the pod's own processes)."""

    pod_uid: str
    container_id: str = ""


def owners(text: str) -> tuple[Owner, ...]:
    """The pods around a process whose /proc/PID/cgroup reads ``text``, outermost first.

    More than one only where a pod holds a cluster of its own (kind in a pod) or pretends to.
    """
    for path in _paths(text):
        found = owners_of_path(path)
        if found:
            return found
    return ()


def owners_of_path(path: str) -> tuple[Owner, ...]:
    """The pods around the processes in one cgroup, outermost first."""
    segments = [segment for segment in path.split("/") if segment not in ("", "..")]
    found = []
    for i, segment in enumerate(segments):
        joined = _JOINED.fullmatch(segment)
        if joined:
            found.append(Owner(_uuid(joined["uid"]), joined["id"]))
            continue
        pod = _POD.fullmatch(segment)
        if pod:
            found.append(Owner(_uuid(pod["uid"]), _container(segments[i + 1 : i + 2])))
    return tuple(found)


def choose(candidates: tuple[Owner, ...], known: Collection[str]) -> Owner | None:
    """The owner that counts: the outermost of the pods that this node knows, else the outermost."""
    for candidate in candidates:
        if candidate.pod_uid in known:
            return candidate
    return candidates[0] if candidates else None


def _container(segments: list[str]) -> str:
    match = _CONTAINER.fullmatch(segments[0]) if segments else None
    if match is None or match["runtime"] in _MONITORS:
        return ""
    return match["id"]


def _paths(text: str) -> Iterator[str]:
    """The paths in order of trust. A line is 'ID:CONTROLLERS:PATH'; v2's has no controllers."""
    lines = [line.split(":", 2) for line in text.splitlines()]
    rows = [(row[1].split(","), row[2]) for row in lines if len(row) == 3]

    def trust(row: tuple[list[str], str]) -> int:
        ranks = [_TRUSTED.index(c) for c in row[0] if c in _TRUSTED]
        return min(ranks, default=len(_TRUSTED))

    for _, path in sorted(rows, key=trust):
        yield path


def _uuid(text: str) -> str:
    return text.replace("_", "-")
