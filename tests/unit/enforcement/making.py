"""Short ways to say what a test is about."""

from __future__ import annotations

from device_plugin.enforcement.accounts import Held, ProcessInfo
from device_plugin.enforcement.cgroup import Owner
from device_plugin.enforcement.slices import Slice
from gpushare.placement import Share
from gpushare.pods import PodRef

CARD = "GPU-11111111-1111-1111-1111-111111111111"
OTHER_CARD = "GPU-22222222-2222-2222-2222-222222222222"


def uid(n: int) -> str:
    return f"00000000-0000-0000-0000-{n:012d}"


def container_id(n: int) -> str:
    return f"{n:064x}"


def process(pid: int, pod: int | None = None, container: int = 0, *, start: int = 0) -> ProcessInfo:
    """A process of pod ``pod``; None: of the host."""
    owners = () if pod is None else (Owner(uid(pod), container_id(container or pod)),)
    return ProcessInfo(pid, start or pid, "python3", own_pid=pid % 100 or 7, owners=owners)


def held(pid: int, mib: int | None, pod: int = 1) -> Held:
    return Held(process(pid, pod), mib)


def pod_slice(n: int, mib: int = 1024, card: str = CARD, percent: int = 0, **more: object) -> Slice:
    return Slice(
        PodRef("jupyter", f"jupyter-user{n}", uid(n)),
        {card: (mib, percent)},
        {"notebook": (Share(card, mib, percent),)},
        {container_id(n): "notebook"},
        **more,  # type: ignore[arg-type]
    )
