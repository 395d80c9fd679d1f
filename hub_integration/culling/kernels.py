"""Kernels that sit on GPU memory without using it, ended before their whole server is.

The node measures memory by container, not by kernel. So where a slice holds memory and its GPU has
been idle long enough, the kernel that nobody has used for longest is ended, one at each look, until
the memory is given up or no kernel is idle enough. The notebook stays, with its files and tabs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from hub_integration.culling import wording
from hub_integration.culling.culler import Culler, Look
from hub_integration.culling.hub_api import HubFailed, Kernel
from hub_integration.culling.judging import Judged, gpu_idle_for
from hub_integration.culling.memory import Reclaim, State

REASON = "kernel-idle"


def due(judged: Judged, now: datetime) -> timedelta | None:
    """For how long a kernel of this server must have been idle to be ended; None: leave all."""
    limit, gpu = judged.rules.kernel_idle, gpu_idle_for(judged, now)
    if limit is None or gpu is None or gpu < limit or judged.used_mib == 0:
        return None
    standing = judged.standing
    if standing.held_until is not None and now < standing.held_until:
        return None
    if now < standing.started + judged.rules.policy.guaranteed:
        return None
    return limit


def longest_idle(kernels: Sequence[Kernel], limit: timedelta, now: datetime) -> Kernel | None:
    """The kernel to end: not busy, and unused for at least ``limit``.

    One that nobody connected to stays "starting" for ever, so idle is whatever is not busy, as for
    Jupyter's own culling of kernels.
    """
    idle = [
        (kernel.last_activity, kernel.id, kernel)
        for kernel in kernels
        if kernel.state != "busy" and kernel.last_activity is not None
    ]
    chosen = [entry for entry in idle if now - entry[0] >= limit]
    return min(chosen)[2] if chosen else None


class KernelWatch:
    """Shown every look of the culler."""

    def __init__(self, culler: Culler, log: logging.Logger) -> None:
        self.culler = culler
        self.log = log
        self._dry: set[tuple[str, str]] = set()

    async def __call__(self, look: Look, judged: Sequence[Judged]) -> None:
        for one in judged:
            limit = due(one, look.at)
            if limit is not None and one.pod is not None and one.pod.ip:
                try:
                    await self._end_one(one, limit, look.at)
                except HubFailed as error:
                    # Its server may just be ending, or the culler lacks access:servers.
                    self.log.warning("Kernels of %s: %s", one.server, error)

    async def _end_one(self, one: Judged, limit: timedelta, now: datetime) -> None:
        assert one.pod is not None
        # Past the proxy, which would take it for use of the notebook.
        address = f"http://{one.pod.ip}:{one.pod.port}{one.server.url}"
        hub = self.culler.hub
        kernel = longest_idle(await hub.kernels(address), limit, now)
        if kernel is None or kernel.last_activity is None:
            return
        idle = wording.span(now - kernel.last_activity)
        text = f"Kernel {kernel.name} unused for {idle} while its server holds {one.used_mib} MiB."
        dry = self.culler.options.dry_run
        key = (one.pod.uid, kernel.id)
        if dry and key in self._dry:
            return
        self._dry.add(key)
        reclaim = Reclaim(
            kind="kernel",
            user=one.server.user,
            server=one.server.name,
            started=one.clock.started,
            namespace=one.pod.namespace,
            pod=one.pod.name,
            uid=one.pod.uid,
            node=one.pod.node,
            models=tuple(dict.fromkeys(held.model for held in one.held)),
            mib=one.used_mib,
            reason=REASON,
            sentence=text,
            state=State.DRY_RUN if dry else State.FREED,
            decided_at=now.timestamp(),
        )
        if dry:
            self.culler.metrics.dry_runs.labels("kernel", REASON).inc()
        else:
            await hub.end_kernel(address, kernel.id)
            ended = self.culler.now().timestamp()
            reclaim = replace(reclaim, stopped_at=ended, freed_at=ended)
            self.culler.metrics.culls.labels("kernel", REASON).inc()
        self.culler.memory.add(reclaim)
        self.log.info("%s%s: %s", "Dry run: " if dry else "", one.server, text)
