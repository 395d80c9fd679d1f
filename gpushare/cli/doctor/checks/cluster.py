"""The cluster and the installation: versions, our parts, certificates, clocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from gpushare.cli.doctor.certificate import ends
from gpushare.cli.doctor.facts import Facts, condition, name, ours
from gpushare.cli.doctor.finding import Check, Finding, error, warning
from gpushare.cli.words import since

OLDEST = (1, 30)
_DAY = 86400.0
_SOON = 14 * _DAY
# A kubelet renews its lease every 10 s.
_AHEAD, _BEHIND = 5.0, 120.0


def minor(version: str) -> tuple[int, int] | None:
    """(1, 33) of 'v1.33.5-gke.12'."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def versions(facts: Facts) -> Iterator[Finding]:
    server = minor(facts.version)
    if server is not None and server < OLDEST:
        yield error(
            f"Kubernetes {facts.version} has no ValidatingAdmissionPolicy (v1), which keeps "
            "placements from being forged",
            "upgrade the cluster to 1.30 or later",
        )
    for node in facts.nodes:
        kubelet = minor(node["status"].get("nodeInfo", {}).get("kubeletVersion", ""))
        if kubelet is not None and kubelet < OLDEST:
            yield error(
                f"the kubelet of {name(node)} is {kubelet[0]}.{kubelet[1]}: before 1.30 it is not "
                "tried with gpushare",
                "upgrade the node",
            )


def parts(facts: Facts) -> Iterator[Finding]:
    """Whether the release is there and its pods run."""
    pairs = [d for d in facts.deployments if ours(d, "user-scheduler", facts.namespace)]
    if not pairs:
        yield error(
            f"there is no gpushare-user-scheduler in the namespace {facts.namespace}",
            "install the chart, or say with --namespace where it is installed",
        )
    for pair in pairs:
        wanted, ready = pair["spec"].get("replicas", 1), pair["status"].get("readyReplicas", 0)
        if not ready:
            yield error(
                f"no pod of {name(pair)} is ready: nothing is scheduled",
                f"kubectl -n {facts.namespace} describe pods -l "
                "app.kubernetes.io/component=user-scheduler",
            )
        elif ready < wanted:
            yield warning(
                f"{ready} of {wanted} pods of {name(pair)} are ready",
                f"kubectl -n {facts.namespace} get pods",
            )
    agents = facts.agent_set()
    if agents is not None:
        wanted = agents["status"].get("desiredNumberScheduled", 0)
        ready = agents["status"].get("numberReady", 0)
        if ready < wanted:
            yield error(
                f"{ready} of {wanted} device plugins are ready",
                f"kubectl -n {facts.namespace} get pods -o wide -l "
                "app.kubernetes.io/component=device-plugin, and the log of those that are not",
            )


def certificates(facts: Facts) -> Iterator[Finding]:
    """The state API's, the agents', and those that the API server checks our webhook by."""
    for what, pem in facts.certificates.items():
        try:
            left = ends(pem) - facts.now
        except ValueError as problem:
            yield error(f"the certificate of {what}: {problem}", _RENEW)
            continue
        if left <= 0:
            yield error(f"the certificate of {what} ended {since(-left)} ago", _RENEW)
        elif left < _SOON:
            yield warning(f"the certificate of {what} ends in {since(left)}", _RENEW)
    for webhook in facts.webhooks:
        bundle = webhook["ca"]
        authority = webhook.get("signer") or facts.certificates.get(_AUTHORITY)
        if bundle and authority and bundle.strip() != authority.strip():
            yield error(
                f"the webhook {webhook['name']} trusts another authority than the one that signed "
                "the extender's certificate: the API server cannot call it",
                "helm upgrade the release: it writes the authority into the webhook",
            )


_AUTHORITY = "the state API's authority"
_RENEW = (
    "delete the Secret that holds it and helm upgrade the release (with cert-manager: see why it "
    "does not renew); the extender takes up the new one by itself"
)


def clocks(facts: Facts) -> Iterator[Finding]:
    """The kubelet dates its lease by the node's clock, and we know the API server's."""
    for node in facts.nodes:
        lease = facts.leases.get(name(node))
        if lease is None or condition(node, "Ready") != "True":
            continue
        try:
            renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
        except (KeyError, TypeError, ValueError):
            continue
        late = facts.now - renewed.astimezone(UTC).timestamp()
        if late < -_AHEAD:
            yield warning(_CLOCK.format(name(node), since(-late), "ahead of"), _NTP)
        elif late > _BEHIND:
            # The node is Ready, so the lease is renewed all the time, with a wrong time.
            yield warning(_CLOCK.format(name(node), since(late), "behind"), _NTP)


_CLOCK = "the clock of {} is {} {} the API server's: idle times and waiting times are wrong there"
_NTP = "synchronise the clocks (chronyd, systemd-timesyncd)"

CHECKS = (
    Check("versions", "versions of Kubernetes", versions, ("nodes",)),
    Check("parts", "scheduler and device plugins run", parts, ("deployments", "daemonsets")),
    Check("certificates", "certificates are valid", certificates, ("certificates",)),
    Check("clocks", "clocks agree", clocks, ("nodes", "leases", "clock")),
)
