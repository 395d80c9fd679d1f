"""Every name that another program can see, written once.

Resource names, annotation keys and the like all grow from one prefix, so that a cluster can run
under another one. Names of things that never leave a program stay in that program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpushare.dialects.dialect import Dialect, Resource
from gpushare.dialects.table import spoken

DEFAULT_PREFIX = "gpushare"
SCHEDULER_NAME = "gpushare-user-scheduler"

# A DNS subdomain, as Kubernetes demands of the part before the slash of a resource name.
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Names:
    """The names under one prefix, and the other systems' dialects that are spoken beside it.

    Raises ValueError for a prefix that Kubernetes would not accept, and for an unknown dialect.
    """

    prefix: str = DEFAULT_PREFIX
    dialects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.prefix) > 200 or not _PREFIX.fullmatch(self.prefix):
            raise ValueError(
                f"prefix {self.prefix!r} is not a DNS subdomain: use lower-case letters, digits, "
                "'-' and '.', for example 'gpushare' or 'gpu.example.org'"
            )
        spoken(self.dialects)

    @property
    def spoken(self) -> tuple[Dialect, ...]:
        """The dialects that are switched on."""
        return spoken(self.dialects)

    @property
    def foreign(self) -> tuple[Resource, ...]:
        """The extended resources of the dialects."""
        return tuple(r for dialect in self.spoken for r in dialect.resources)

    @property
    def all_resources(self) -> tuple[str, ...]:
        """Every extended resource that asks for a slice: our two, and the dialects'."""
        return (*self.resources, *(resource.name for resource in self.foreign))

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

    def visible(self, container: str) -> str:
        """On a bound pod: the uuids of one container's cards. Written with the placement.

        The container's name is the part after the slash, as that may be 63 characters long, too.
        """
        return f"visible.{self.prefix}/{container}"

    @property
    def in_force(self) -> str:
        """On a node: how its containers get cards and by what slices are held there, as JSON."""
        return f"{self.prefix}/in-force"

    @property
    def choice(self) -> str:
        """On a notebook's pod: which choice of the catalogue it is, as 'profile/slice'."""
        return f"{self.prefix}/choice"

    @property
    def idle(self) -> str:
        """On a notebook's pod: when it may be ended for lack of use, as JSON, in minutes."""
        return f"{self.prefix}/idle"

    @property
    def gpu_mem_limit(self) -> str:
        """On a pod: units of memory that a slice may use while nobody else was given them."""
        return f"{self.prefix}/gpu-mem-limit"

    @property
    def enforcement(self) -> str:
        """On a pod: how strictly its slice is held, as JSON; bounded by the node's settings."""
        return f"{self.prefix}/enforcement"

    @property
    def cordon(self) -> str:
        """On a node: comma list of cards (uuid or index) that take nothing new. An operator's word."""
        return f"{self.prefix}/cordon"

    @property
    def ended(self) -> str:
        """On a Job or Deployment: why the culler ended it, as JSON."""
        return f"{self.prefix}/ended"

    @property
    def node_problem(self) -> str:
        """On a node: why its device plugin cannot share its cards. Absent where it can."""
        return f"{self.prefix}/problem"

    @property
    def feature_labels(self) -> str:
        """On a node: which of gpu-feature-discovery's labels its device plugin wrote in its place."""
        return f"{self.prefix}/feature-labels"

    @property
    def shared(self) -> str:
        """Label of a node whose cards are shared."""
        return f"{self.prefix}/shared"

    @property
    def driver(self) -> str:
        """Label of such a node: the version of its NVIDIA driver."""
        return f"{self.prefix}/driver"

    @property
    def cuda(self) -> str:
        """Label of such a node: the newest CUDA that its driver serves, as '12.8'."""
        return f"{self.prefix}/cuda"

    @property
    def model_label(self) -> str:
        """Prefix of a node's labels that say how many cards of a model it has: '…/model.T4': '2'."""
        return f"{self.prefix}/model."

    @property
    def cdi_kind(self) -> str:
        """Kind of the CDI devices that stand for slices."""
        return f"{self.prefix}/slice"

    @property
    def event_source(self) -> str:
        """Component name on the Events that we write."""
        return self.prefix
