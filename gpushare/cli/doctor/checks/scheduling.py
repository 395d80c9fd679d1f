"""Scheduling: pods that went past the extender, or will never meet it."""

from __future__ import annotations

from collections.abc import Iterator

from gpushare.cli.doctor.facts import Facts, Object, containers, name, notes
from gpushare.cli.doctor.finding import Check, Finding, error, warning

# More would hide the rest of the page; the number says how many.
_SHOWN = 5


def state(facts: Facts) -> Iterator[Finding]:
    """Whether the extender answers."""
    if "state" in facts.missing:
        yield error(
            f"the state API does not answer: {facts.missing['state']}",
            f"kubectl -n {facts.namespace} logs deploy/gpushare-user-scheduler -c extender",
        )


def placements(facts: Facts) -> Iterator[Finding]:
    """Bound without a placement: some scheduler counts our resources without asking the extender."""
    # Pods of another system that were taken over have no placement of ours, and hold their cards.
    holders = {
        held["uid"]
        for node in facts.state.get("nodes") or []
        for card in node["cards"]
        for held in card.get("slices") or []
    }
    past = [
        pod
        for pod in facts.asking()
        if pod["spec"].get("nodeName")
        and facts.names.placement not in notes(pod)
        and pod["metadata"].get("uid") not in holders
    ]
    for pod in past[:_SHOWN]:
        who = pod["spec"].get("schedulerName") or "default-scheduler"
        yield error(
            f"{name(pod)} was bound to {pod['spec']['nodeName']} by {who} without being placed on a "
            "card: its containers cannot start",
            _extender_fix(facts, who),
        )
    if len(past) > _SHOWN:
        yield error(f"and {len(past) - _SHOWN} more", "as above")


def _extender_fix(facts: Facts, who: str) -> str:
    if who in facts.scheduler_names:
        return (
            f"the scheduler {who} does not call the extender: its configuration must list it under "
            "extenders with both resources as managedResources"
        )
    return (
        f"delete it and start it with spec.schedulerName: {facts.scheduler_names[0]}, "
        "or let that scheduler call the extender"
    )


def scheduler_names(facts: Facts) -> Iterator[Finding]:
    """Pods that wait for a scheduler that does not know our cards, or that is not there."""
    wrong = [
        pod
        for pod in facts.asking()
        if not pod["spec"].get("nodeName")
        and (pod["spec"].get("schedulerName") or "default-scheduler") not in facts.scheduler_names
    ]
    for pod in wrong[:_SHOWN]:
        yield error(
            f"{name(pod)} asks for a slice from {pod['spec'].get('schedulerName')!r}, which is not "
            "gpushare's scheduler",
            f"set spec.schedulerName: {facts.scheduler_names[0]} in what makes the pod (a notebook: the "
            "spawner's gpu_scheduler_name), or let the chart's webhook set it",
        )
    if len(wrong) > _SHOWN:
        yield error(f"and {len(wrong) - _SHOWN} more", "as above")


def resources(facts: Facts) -> Iterator[Finding]:
    """The scheduler's list of what the extender decides on, against the names in use."""
    managed = {
        resource["name"]
        for extender in facts.scheduler.get("extenders") or []
        for resource in extender.get("managedResources") or []
    }
    lacking = set(facts.names.all_resources) - managed
    if facts.scheduler and lacking:
        yield error(
            f"the scheduler does not ask the extender about {', '.join(sorted(lacking))}: such pods are "
            "bound without a card",
            "set prefix once, at the top of the chart's values, and upgrade the release",
        )
    for extender in facts.scheduler.get("extenders") or []:
        if extender.get("ignorable") is True:
            yield error(
                "the extender is ignorable: while it is away pods are bound without a card",
                "set ignorable: false in the scheduler's configuration",
            )


def own_variables(facts: Facts) -> Iterator[Finding]:
    """NVIDIA_VISIBLE_DEVICES in a pod's own manifest."""
    for pod in facts.asking():
        if any(_visible(container) for container in containers(pod)):
            yield warning(
                f"{name(pod)} sets NVIDIA_VISIBLE_DEVICES itself",
                "take it out: with the classic nvidia runtime it decides which cards the pod sees",
            )


def _visible(container: Object) -> bool:
    """Whether it says so itself; a value from the placement is the webhook's."""
    return any(
        one.get("name") == "NVIDIA_VISIBLE_DEVICES"
        and one.get("value") not in (None, "void", "none")
        for one in container.get("env") or []
    )


CHECKS = (
    Check("state", "the extender answers", state),
    Check("placements", "every bound pod was placed", placements, ("pods",)),
    Check("scheduler-name", "pods name our scheduler", scheduler_names, ("pods",)),
    Check("resources", "the scheduler asks the extender", resources, ("configurations",)),
    Check("variables", "no pod chooses its cards itself", own_variables, ("pods",)),
)
