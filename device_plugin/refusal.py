"""Why a container may not start, as data; and the one place that turns it into a sentence.

The sentence reaches people in `kubectl describe pod`, through the kubelet's event, so it says what
is wrong and what to do about it.
"""

from __future__ import annotations

from enum import StrEnum

from gpushare.names import SCHEDULER_NAME


class Code(StrEnum):
    """What kind of refusal it is: a metric's label, and what tests compare."""

    NOT_FOUND = "not-found"
    UNDECIDED = "undecided"
    NO_KUBELET = "no-kubelet"
    NO_API = "no-api"
    NOT_PLACED = "not-placed"
    BAD_PLACEMENT = "bad-placement"
    OTHER_POD = "other-pod"
    OTHER_NODE = "other-node"
    NOT_IN_PLACEMENT = "not-in-placement"
    BAD_REQUEST = "bad-request"
    OTHER_AMOUNTS = "other-amounts"
    OTHER_IDS = "other-ids"
    NO_CARD = "no-card"
    SICK_CARD = "sick-card"
    WRONG_CARD = "wrong-card"
    FULL_CARD = "full-card"
    NO_DRIVER = "no-driver"
    NO_EDITS = "no-edits"
    NO_CDI = "no-cdi"
    OWN_VISIBLE = "own-visible"
    OTHER_VISIBLE = "other-visible"
    NOT_NOW = "not-now"
    NOT_WRITTEN = "not-written"


_ANEW = "delete the pod, so that it is placed anew"
_SENTENCES: dict[Code, str] = {
    Code.NOT_FOUND: (
        "the kubelet names no container on {node} that holds these ids of {resource}; "
        "it tries again by itself"
    ),
    Code.UNDECIDED: (
        "containers {containers} of {pod} hold the same ids on different cards, and the pod's "
        "status does not say yet which of them starts; the kubelet tries again by itself"
    ),
    Code.NO_KUBELET: (
        "the kubelet does not say who holds the ids ({problem}); it tries again by itself. If this "
        "lasts, check that {socket} is mounted into the device plugin"
    ),
    Code.NO_API: (
        "the API server cannot be asked about the pod ({problem}), and the node does not know it "
        "yet; the kubelet tries again by itself"
    ),
    Code.NOT_PLACED: (
        f"the pod was not placed by the gpushare scheduler: set schedulerName: {SCHEDULER_NAME} "
        "and leave spec.nodeName out, then create the pod again"
    ),
    Code.BAD_PLACEMENT: "annotation {annotation} cannot be read: {problem}; " + _ANEW,
    Code.OTHER_POD: (
        "annotation {annotation} was written for another pod (uid {uid}); only the gpushare "
        "scheduler writes it: leave it out and create the pod again"
    ),
    Code.OTHER_NODE: "the pod is placed on node {there}, and this is node {node}; " + _ANEW,
    Code.NOT_IN_PLACEMENT: "the placement has no card for container {container}; " + _ANEW,
    Code.BAD_REQUEST: "container {container} cannot be served: {problem}",
    Code.OTHER_AMOUNTS: (
        "container {container} asks for {wanted}, its placement holds {placed}; " + _ANEW
    ),
    Code.OTHER_IDS: (
        "container {container} asks for {wanted} of {resource}, the kubelet granted {granted}; "
        + _ANEW
    ),
    Code.NO_CARD: "card {card} of the placement is not on {node} any more; " + _ANEW,
    Code.SICK_CARD: "card {card} is unhealthy: {problem}; " + _ANEW,
    Code.WRONG_CARD: "the pod wants {wanted}, its placement is on {card}; " + _ANEW,
    Code.FULL_CARD: (
        "card {card} has {has}, other pods on it hold {held}, and container {container} wants "
        "{wanted}; " + _ANEW
    ),
    Code.NO_DRIVER: "the node's cards cannot be used: {problem}",
    Code.NO_EDITS: "card {card} cannot be given to a container: {problem}",
    Code.NO_CDI: (
        "the container runtime of {node} ({runtime}) does not heed CDI, so container {container} "
        "needs the variable NVIDIA_VISIBLE_DEVICES from {field}, which gpushare's webhook adds when a "
        "pod is created: switch CDI on in the runtime, or the webhook, and create the pod again"
    ),
    Code.OWN_VISIBLE: (
        "the container runtime of {node} ({runtime}) lets what a pod or its image says in "
        "NVIDIA_VISIBLE_DEVICES count for more than we do, so container {container} needs that "
        "variable set to void, which gpushare's webhook does when a pod is created: switch the webhook "
        "on, and create the pod again"
    ),
    Code.OTHER_VISIBLE: (
        "annotation {annotation} says {says}, the placement {placed}; only the gpushare scheduler "
        "writes it: leave it out and create the pod again"
    ),
    Code.NOT_NOW: "{problem}",
    Code.NOT_WRITTEN: (
        "the container's card cannot be written to {folder}: {problem}; "
        "check the folder on the node, it must be writable for the device plugin"
    ),
}


class Refused(Exception):
    """The container may not start, and this says why."""

    def __init__(self, code: Code, **values: object) -> None:
        super().__init__(_SENTENCES[code].format_map(values))
        self.code = code
