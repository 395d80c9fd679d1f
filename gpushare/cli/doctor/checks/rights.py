"""Rights: what our accounts may, what keeps others from forging, and who may look."""

from __future__ import annotations

from collections.abc import Iterator

from gpushare.cli.doctor.facts import Facts, Right
from gpushare.cli.doctor.finding import Check, Finding, error, warning

_POLICIES = ("placement", "cards", "agents")


def wanted(
    namespace: str, scheduler: str, agent: str, prefix_path: str = "/v1/nodes"
) -> list[Right]:
    """What the accounts of the scheduler and of the device plugins must be allowed to do."""
    extender = f"system:serviceaccount:{namespace}:{scheduler}"
    plugin = f"system:serviceaccount:{namespace}:{agent}"
    reader = f"system:serviceaccount:{namespace}:gpushare-state-reader"
    return [
        *(Right(extender, verb, what) for what in ("nodes", "pods") for verb in ("list", "watch")),
        Right(extender, "create", "pods/binding"),
        Right(extender, "patch", "pods/status"),
        Right(extender, "create", "events"),
        Right(extender, "create", "tokenreviews", "authentication.k8s.io"),
        Right(extender, "create", "subjectaccessreviews", "authorization.k8s.io"),
        Right(extender, "update", "leases", "coordination.k8s.io", namespace, scheduler),
        *(Right(plugin, verb, "pods") for verb in ("list", "watch")),
        Right(plugin, "patch", "nodes"),
        Right(plugin, "create", "events"),
        Right(reader, "get", path=prefix_path),
    ]


def accounts(facts: Facts) -> Iterator[Finding]:
    for right, allowed in facts.rights.items():
        if not allowed:
            yield error(
                f"{right.user} may not {right}",
                "helm upgrade the release: its roles or bindings were changed or removed",
            )


def admission(facts: Facts) -> Iterator[Finding]:
    """The policies that keep placements and nodes from being forged, and that they are in force."""
    have = {policy["metadata"]["name"] for policy in facts.policies}
    bound = {
        binding["spec"]["policyName"]
        for binding in facts.bindings
        if "Deny" in (binding["spec"].get("validationActions") or [])
    }
    for part in _POLICIES:
        names = {policy for policy in have if policy.endswith(f"-{part}")}
        if not names & bound:
            yield warning(
                f"no admission policy gpushare-{part} is in force: "
                + (
                    "who may create pods may write placements"
                    if part == "placement"
                    else "a stolen token of one node's agent reaches other nodes"
                ),
                "set admissionPolicy.enabled: true in the chart's values and upgrade the release",
            )


CHECKS = (
    Check("rights", "our accounts may do their work", accounts, ("rights",)),
    Check("policies", "admission policies are in force", admission, ("policies",)),
)
