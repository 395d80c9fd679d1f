"""Whether this node's container runtime gives containers what CDI specs say, and how that is known.

By its version: the kubelet hands CDI device names on since 1.29 (feature DevicePluginCDIDevices);
containerd 2.0 and CRI-O 1.23 heed them as they are installed, containerd 1.7 only with enable_cdi,
older ones and cri-dockerd not at all. And by what became of containers: one that was started with a
slice has the slice's notice board mounted, or its runtime took no note of the spec. What was seen
counts for more than a version. A setting counts for most.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from device_plugin.enforcement.cgroup import Owner
from device_plugin.enforcement.notices import IN_CONTAINER
from device_plugin.enforcement.processes import Processes
from device_plugin.patience import wait_at_most
from device_plugin.slice_specs import SliceSpecs

log = logging.getLogger(__name__)

_LOOK_EVERY = 30.0
_PAUSE = 5.0  # a look reads all of /proc: one for all containers that start in this time
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
# Runtime: the version from which on it heeds CDI, and that from which on it does so unasked.
_RUNTIMES = {"containerd": ((1, 7), (2, 0)), "cri-o": ((1, 23), (1, 23))}
_KUBELET = (1, 29)


def by_version(runtime: str, kubelet: str) -> bool | None:
    """What a v1.Node's containerRuntimeVersion and kubeletVersion let expect; None: either way."""
    kind, _, version = runtime.partition("://")
    if _known(kubelet) and _number(kubelet) < _KUBELET:
        return False
    if kind == "docker":
        return False
    if kind not in _RUNTIMES or not _known(version):
        return None
    able, unasked = _RUNTIMES[kind]
    if _number(version) < able:
        return False
    return True if _number(version) >= unasked else None


def _known(version: str) -> bool:
    return _VERSION.match(version) is not None


def _number(version: str) -> tuple[int, int]:
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def mounts(text: str) -> frozenset[str]:
    """The mount points in /proc/PID/mountinfo (man 5 proc: the fifth field)."""
    return frozenset(line.split()[4] for line in text.splitlines() if len(line.split()) > 4)


class Runtime:
    """What is known of the runtime. ``info`` is the node's status.nodeInfo, as last seen.

    ``memory`` is a file that keeps the answer for a restart while the API server is away.
    """

    def __init__(
        self,
        setting: str,
        info: Callable[[], Mapping[str, Any]],
        specs: SliceSpecs,
        pods: Callable[[], Mapping[str, Mapping[str, Any]]],
        memory: Path,
        proc: Path = Path("/proc"),
    ) -> None:
        self._setting, self._info = setting, info
        self._specs, self._pods, self._proc = specs, pods, proc
        self._memory = memory
        self._processes = Processes(proc)
        self._looked_at: set[Owner] = set()
        self._seen: bool | None = None
        self._listeners: list[Callable[[], None]] = []
        self.changed = asyncio.Event()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when ``cdi`` may have changed."""
        self._listeners.append(listener)

    @property
    def name(self) -> str:
        """The runtime and its version, for people."""
        return str(self._info().get("containerRuntimeVersion") or "unknown")

    @property
    def pods_win(self) -> bool:
        """Whether a pod's or its image's variables replace those of CDI specs.

        With CRI-O they do (seen with 1.34.0), with containerd it is the other way round.
        """
        return str(self._info().get("containerRuntimeVersion", "")).startswith("cri-o://")

    @property
    def cdi(self) -> bool | None:
        """Whether it gives containers their CDI devices; None while that is not known."""
        if self._setting != "auto":
            return self._setting == "yes"
        if self._seen is not None:
            return self._seen
        info = self._info()
        if not info:
            return self._remembered()
        return by_version(self.name, str(info.get("kubeletVersion") or ""))

    async def run(self) -> None:
        """Look at started containers for ever, each once."""
        while True:
            await wait_at_most(self.changed, _LOOK_EVERY)
            self.changed.clear()
            await self.look()
            await asyncio.sleep(_PAUSE)

    async def look(self) -> None:
        """Look at containers that were not looked at."""
        if self._info():
            self._remember(self.cdi)
        wanted = self._boarded()
        self._looked_at &= wanted
        fresh = wanted - self._looked_at
        if not fresh or self._setting != "auto":
            return
        found = await asyncio.to_thread(self._applied, fresh)
        # One that cannot be looked at (it has just ended) is tried again with the next look.
        self._looked_at |= found.keys()
        if found:
            # What the runtime did last is what it does now.
            _, applied = max(found.values())
            self._judge(applied)

    def _remembered(self) -> bool | None:
        try:
            return {"yes": True, "no": False}.get(self._memory.read_text())
        except OSError:
            return None

    def _remember(self, cdi: bool | None) -> None:
        if cdi is None or cdi == self._remembered():
            return
        try:
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            self._memory.write_text("yes" if cdi else "no")
        except OSError as error:
            log.info("%s cannot be written: %s", self._memory, error.strerror)

    def _boarded(self) -> set[Owner]:
        """The running containers whose specs say that they have a notice board."""
        found: set[Owner] = set()
        pods = self._pods()
        for digest, record in self._specs.records.items():
            status = (pods.get(record.uid) or {}).get("status") or {}
            ids = _running(status)
            if record.container not in ids:
                continue
            owner = Owner(record.uid, ids[record.container])
            if owner in self._looked_at or _has_board(self._specs.read(digest)):
                found.add(owner)
        return found

    def _applied(self, containers: Collection[Owner]) -> dict[Owner, tuple[int, bool]]:
        """When each container was started, and whether what its spec says was done."""
        found = {}
        for owner, (start, pid) in self._processes.first_by_container(containers).items():
            with suppress(OSError):
                text = (self._proc / str(pid) / "mountinfo").read_text(errors="replace")
                found[owner] = (start, IN_CONTAINER in mounts(text))
        return found

    def _judge(self, applied: bool) -> None:
        if applied == self._seen:
            return
        self._seen = applied
        if applied:
            log.info("the container runtime (%s) heeds CDI specs", self.name)
        else:
            log.warning(
                "the container runtime (%s) does not heed CDI specs: a container was started without "
                "what its spec says. Switch CDI on there (containerd: enable_cdi = true); until then "
                "containers get their cards from their environment, by the nvidia runtime",
                self.name,
            )
        for listener in self._listeners:
            listener()


def _running(status: Mapping[str, Any]) -> dict[str, str]:
    """The runtime's ids of running containers, by name."""
    statuses: Iterable[Mapping[str, Any]] = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    return {
        str(entry.get("name")): str(entry.get("containerID")).rpartition("//")[2]
        for entry in statuses
        if "running" in (entry.get("state") or {}) and entry.get("containerID")
    }


def _has_board(spec: str) -> bool:
    try:
        edits = json.loads(spec)["devices"][0]["containerEdits"]
        return any(mount.get("containerPath") == IN_CONTAINER for mount in edits.get("mounts", []))
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
