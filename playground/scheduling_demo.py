"""The demo where no container can run: real control plane, real scheduler, simulated nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpushare.cli import table
from gpushare.names import SCHEDULER_NAME, Names
from playground.cluster import Cluster, PlaygroundError
from playground.demo_people import PEOPLE, Person
from playground.host_scheduler import HostScheduler

if TYPE_CHECKING:
    from playground.demo import Clock

NAMESPACE = "notebooks"
_PATIENCE = 60.0


def show_scheduling(cluster: Cluster, clock: Clock) -> None:
    """Eight pods on six simulated cards, placed by the real scheduler and extender."""
    with clock.step("Kubernetes: a real control plane, two simulated nodes"):
        cluster.up(simulated=True)
    scheduler = HostScheduler(cluster)
    with clock.step("gpushare: kube-scheduler and extender"):
        scheduler.start()
    clock.out("")
    clock.out(_table(scheduler.state()))
    with clock.step("Eight pods with the limits that notebooks would have"):
        _create_pods(cluster)
        placed = _await_placed(cluster)
        for person in PEOPLE:
            clock.say(f"  {person.name:6} on {placed[person.name]}")
    clock.out("")
    clock.out(_table(scheduler.state()))
    with clock.step(f"{PEOPLE[0].name}'s pod is deleted, as a culler would have it"):
        _delete(cluster, PEOPLE[0])
        _await_free(scheduler, PEOPLE[0])
    clock.out("")
    clock.out(_table(scheduler.state()))
    clock.out("")
    clock.out(f"export KUBECONFIG={cluster.kubeconfig()}; take it all down: make down")


def _table(state: dict[str, Any]) -> str:
    lines = table.plain(table.COLUMNS, table.rows(state["nodes"]))
    return "\n".join([*lines, table.summary(state, state["nodes"])])


def _create_pods(cluster: Cluster) -> None:
    api = cluster.api()
    api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for person in PEOPLE:
        _delete(cluster, person)
        _await_gone(cluster, person)
        api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", _pod(person))


def _pod(person: Person) -> dict[str, Any]:
    limits = {resource: str(amount) for resource, amount in person.limits.items()}
    return {
        "metadata": {
            "name": f"jupyter-{person.name}",
            "annotations": {
                Names().card_model: person.model,
                "hub.jupyter.org/username": person.name,
            },
        },
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "notebook", "image": "none.invalid/none", "resources": {"limits": limits}}
            ],
        },
    }


def _pods(cluster: Cluster) -> dict[str, dict[str, Any]]:
    listed = cluster.api().get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return {pod["metadata"]["name"]: pod for pod in listed}


def _await_placed(cluster: Cluster) -> dict[str, str]:
    """Wait until every pod has a node and a placement; the node of each person's pod."""
    deadline = time.monotonic() + _PATIENCE
    key = Names().placement
    while True:
        pods = _pods(cluster)
        waiting = [
            person.name
            for person in PEOPLE
            if key not in pods[f"jupyter-{person.name}"]["metadata"].get("annotations", {})
        ]
        if not waiting:
            return {p.name: pods[f"jupyter-{p.name}"]["spec"]["nodeName"] for p in PEOPLE}
        if time.monotonic() > deadline:
            raise PlaygroundError(
                f"the pods of {', '.join(waiting)} were not placed within {_PATIENCE:.0f} s; "
                f"logs: {cluster.folders.logs}"
            )
        time.sleep(0.2)


def _delete(cluster: Cluster, person: Person) -> None:
    from playground.api import ApiError

    path = f"/api/v1/namespaces/{NAMESPACE}/pods/jupyter-{person.name}"
    try:
        cluster.api().delete(path)
    except ApiError as error:
        if error.status != 404:
            raise


def _await_gone(cluster: Cluster, person: Person) -> None:
    deadline = time.monotonic() + _PATIENCE
    while f"jupyter-{person.name}" in _pods(cluster):
        if time.monotonic() > deadline:
            raise PlaygroundError(f"the pod of {person.name} does not go away")
        time.sleep(0.2)


def _await_free(scheduler: HostScheduler, person: Person) -> None:
    deadline = time.monotonic() + _PATIENCE
    while any(
        held["pod"] == f"jupyter-{person.name}"
        for node in scheduler.state()["nodes"]
        for card in node["cards"]
        for held in card["slices"]
    ):
        if time.monotonic() > deadline:
            raise PlaygroundError(f"the slice of {person.name} is not free again")
        time.sleep(0.2)
