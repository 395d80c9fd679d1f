"""What kube-scheduler must be told to ask the extender: complete configurations for the four ways.

    loopback  a kube-scheduler of our own beside the extender, in one pod (what the chart installs)
    mtls      the cluster's own kube-scheduler, by a client certificate over TLS
    proxy     the cluster's own kube-scheduler through the API server's service proxy, for control planes
              from which no pod can be reached
    policy    the cluster's own kube-scheduler before Kubernetes 1.23, over TLS as with mtls

``gpushare-extender --print-scheduler-config=WAY`` prints them. Places in capital letters are to be
filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpushare.names import SCHEDULER_NAME, Names

WAYS = ("loopback", "mtls", "proxy", "policy")
_API = "kubescheduler.config.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Link:
    """How the verbs are reached. ``tls`` are files or data as in a KubeSchedulerConfiguration."""

    url: str = "http://127.0.0.1:39999/scheduler"
    tls: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """What is the same for all ways; the chart has a value for each. Times are in seconds.

    ``ignored``: kube-scheduler leaves counting our resources to the extender. If not, nodes whose sum
    is used up are dropped before the extender is asked, and preemption works for them.
    """

    resources: Sequence[str] = Names().resources
    weight: int = 100
    timeout: int = 10
    ignored: bool = True


MTLS = Link(
    "https://gpushare-extender.gpushare.svc:39998/scheduler",
    {
        "caFile": "/etc/kubernetes/gpushare/ca.crt",
        "certFile": "/etc/kubernetes/gpushare/scheduler.crt",
        "keyFile": "/etc/kubernetes/gpushare/scheduler.key",
    },
)
PROXY = Link(
    "https://API-SERVER:6443/api/v1/namespaces/gpushare/services/https:gpushare-extender:verbs/proxy"
    "/scheduler/SECRET",
    {
        "caFile": "/etc/kubernetes/pki/ca.crt",
        "certFile": "/etc/kubernetes/gpushare/scheduler.crt",
        "keyFile": "/etc/kubernetes/gpushare/scheduler.key",
    },
)


def extender(link: Link, asking: Asking) -> dict[str, Any]:
    """One entry of ``extenders`` in a KubeSchedulerConfiguration."""
    entry: dict[str, Any] = {
        "urlPrefix": link.url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        # The node that the policy wants is ahead of the next by ten times this.
        "weight": asking.weight,
        # The extender watches nodes itself: names suffice.
        "nodeCacheCapable": True,
        "httpTimeout": f"{asking.timeout}s",
        # Without the extender's answer a pod would be bound without a card.
        "ignorable": False,
        "managedResources": [
            {"name": name, "ignoredByScheduler": asking.ignored} for name in asking.resources
        ],
    }
    if link.tls is not None:
        entry |= {"enableHTTPS": True, "tlsConfig": dict(link.tls)}
    return entry


def configuration(
    link: Link, asking: Asking, scheduler_name: str = SCHEDULER_NAME, kubeconfig: str = ""
) -> dict[str, Any]:
    """A whole KubeSchedulerConfiguration. For the cluster's own scheduler the name is
    'default-scheduler', and ``extenders`` and ``percentageOfNodesToScore`` are what is new in it."""
    # A sample of the nodes would do for pods that are all alike; of cards the best one, or the only one
    # that is free, may be outside of it.
    whole = {"percentageOfNodesToScore": 100}
    found: dict[str, Any] = {
        "apiVersion": _API,
        "kind": "KubeSchedulerConfiguration",
        **({"clientConnection": {"kubeconfig": kubeconfig}} if kubeconfig else {}),
        **whole,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "profiles": [{"schedulerName": scheduler_name}],
        "extenders": [extender(link, asking)],
    }
    return found


def policy(link: Link, asking: Asking) -> dict[str, Any]:
    """The legacy Policy file, read by --policy-config-file until Kubernetes 1.22."""
    entry = extender(link, asking)
    entry["httpTimeout"] = asking.timeout * 10**9  # nanoseconds, here
    if entry.pop("enableHTTPS", False):
        entry["enableHttps"] = True
    return {"kind": "Policy", "apiVersion": "v1", "extenders": [entry]}


def example(way: str, asking: Asking) -> dict[str, Any]:
    """One of ``WAYS``. Raises KeyError for another."""
    return {
        "loopback": lambda: configuration(Link(), asking),
        "mtls": lambda: configuration(MTLS, asking, "default-scheduler", _OWN_KUBECONFIG),
        "proxy": lambda: configuration(PROXY, asking, "default-scheduler", _OWN_KUBECONFIG),
        "policy": lambda: policy(MTLS, asking),
    }[way]()


_OWN_KUBECONFIG = "/etc/kubernetes/scheduler.conf"
