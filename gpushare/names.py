"""Every name that another program can see, written once.

Resource names, annotation keys and the like all grow from one prefix, so that a cluster can run
under another one. Names of things that never leave a program stay in that program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_PREFIX = "gpushare"
SCHEDULER_NAME = "gpushare-user-scheduler"

# A DNS subdomain, as Kubernetes demands of the part before the slash of a resource name.
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Names:
    """The names under one prefix.

    Raises ValueError for a prefix that Kubernetes would not accept.
    """

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if len(self.prefix) > 200 or not _PREFIX.fullmatch(self.prefix):
            raise ValueError(
                f"prefix {self.prefix!r} is not a DNS subdomain: use lower-case letters, digits, "
                "'-' and '.', for example 'gpushare' or 'gpu.example.org'"
            )

    @property
    def gpu_mem(self) -> str:
        """Extended resource: units of memory on one card."""
        return f"{self.prefix}/gpu-mem"

    @property
    def gpu_percent(self) -> str:
        """Extended resource: per cent of one card, or multiples of 100 for whole cards."""
        return f"{self.prefix}/gpu-percent"

    @property
    def resources(self) -> tuple[str, str]:
        """Both extended resources."""
        return (self.gpu_mem, self.gpu_percent)

    @property
    def cards(self) -> str:
        """On a node: its cards, as JSON. On a pod: on how many cards a gpu-mem slice is wanted."""
        return f"{self.prefix}/cards"

    @property
    def card_model(self) -> str:
        """On a pod: comma list of models it may run on."""
        return f"{self.prefix}/card-model"

    @property
    def card_uuid(self) -> str:
        """On a pod: comma list of card UUIDs it may run on."""
        return f"{self.prefix}/card-uuid"

    @property
    def policy(self) -> str:
        """On a pod: the placement policy that it wants instead of the cluster's."""
        return f"{self.prefix}/policy"

    @property
    def placement(self) -> str:
        """On a bound pod: which card each container got, as JSON. Ours alone to write."""
        return f"{self.prefix}/placement"

    @property
    def cdi_kind(self) -> str:
        """Kind of the CDI devices that stand for slices."""
        return f"{self.prefix}/slice"

    @property
    def event_source(self) -> str:
        """Component name on the Events that we write."""
        return self.prefix
