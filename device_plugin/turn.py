"""Which container starts, where several of one pod hold the same ids. Pure.

The kubelet lets app containers reuse the ids of plain init containers, which have ended by then.
So one set of ids can stand for an init container first and for an app container later, and where
their placements differ only the pod's progress tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from device_plugin.pod import init_state
from gpushare.placement import ContainerPlacement
from gpushare.request import Role


def whose_turn(
    candidates: Sequence[ContainerPlacement], pod: Mapping[str, Any], last_started: str | None
) -> ContainerPlacement | None:
    """The one of ``candidates`` that starts now; None if the pod's status is not there yet.

    ``last_started`` is the container that these ids were last handed to on this node.
    """
    if all(c.shares == candidates[0].shares for c in candidates):
        return candidates[0]  # they get the same thing
    inits = [c for c in candidates if c.role is Role.INIT]
    others = [c for c in candidates if c.role is not Role.INIT]
    for container in inits:
        state, code = init_state(pod, container.name)
        if (state, code) == ("terminated", 0):
            continue
        failed = state == "terminated" or (state == "waiting" and container.name == last_started)
        if failed or container.name != last_started:
            return container
        return None  # it was started; whether it has ended well, the API server does not say yet
    return others[0] if len(others) == 1 else None
