"""The demo on a cluster that the user already has: eight pods as notebooks would make them.

It checks an installation with the cards that are really there: each pod is placed, sees the card
of its placement and no other, and gives its slice back. All of it happens in a namespace of its
own, which is deleted at the end. The Hub belongs into such a cluster, not beside it: see
helm-values/zero-to-jupyterhub.yaml.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpushare import placement
from gpushare.names import SCHEDULER_NAME, Names
from playground.demo_people import Person, guests
from playground.existing import server_version

if TYPE_CHECKING:
    from kubernetes import client

    from playground.demo import Clock

NAMESPACE = "gpushare-demo"
PAUSE = "registry.k8s.io/pause:3.10"
_NAMES = Names()
_PLACED = 60  # seconds until every pod that fits has a card
_STARTED = 300  # seconds until they run: images may have to be pulled
_RELEASED = 60

# Run where an image with Python and nvidia-ml-py is given: the cards that NVIDIA's library shows.
LOOK = """
import json, pynvml, signal, sys
pynvml.nvmlInit()
cards = range(pynvml.nvmlDeviceGetCount())
uuids = [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in cards]
print(json.dumps(uuids), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
"""


class NotThere(Exception):
    """The cluster lacks what the demo needs; the text says what to do."""


def show_existing(kubeconfig: Path, image: str | None, clock: Clock) -> None:
    """Raises NotThere, ClusterSilent or DemoFailed."""
    from kubernetes import client, config

    from playground.demo import DemoFailed

    with clock.step(f"The cluster of {kubeconfig}"):
        clock.say(f"  Kubernetes {server_version(kubeconfig)}")
        state = _state(kubeconfig)
        people = guests([card["model"] for node in state["nodes"] for card in node["cards"]])
        if not people:
            raise NotThere(
                "no node of this cluster publishes shared cards; label the GPU nodes as the "
                "chart's NOTES say, and look at `gpushare inspect`"
            )
    clock.out("")
    clock.out(_inspect(kubeconfig))
    core = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    with _namespace(core, clock.say):
        with clock.step(f"{len(people)} pods with the limits that notebooks would have"):
            for person in people:
                core.create_namespaced_pod(NAMESPACE, _pod(person, image))
            placed = _await_placed(core, people)
            for person in people:
                clock.say(f"  {person.name:6} {placed.get(person.name) or _why(core, person)}")
            if not placed:
                raise DemoFailed(
                    "no pod was placed; see `gpushare inspect` for what the cards hold, and the "
                    "log of the Deployment gpushare-user-scheduler"
                )
        if image:
            with clock.step("Which cards does NVIDIA's library show in each of them?"):
                for name in placed:
                    seen = _look(core, name)
                    clock.say(f"  {name:6} {', '.join(sorted(seen))}")
                clock.say("  every pod sees the card that it was placed on, and no other")
        clock.out("")
        clock.out(_inspect(kubeconfig))
        first = next(iter(placed))
        with clock.step(f"{first}'s pod is deleted, as a culler would have it"):
            core.delete_namespaced_pod(f"jupyter-{first}", NAMESPACE)
            clock.say(f"  its slice is free again after {_await_free(kubeconfig, first):.1f} s")
    clock.out("")
    clock.out(_inspect(kubeconfig))


@contextmanager
def _namespace(core: client.CoreV1Api, say: Callable[[str], None]) -> Iterator[None]:
    from kubernetes.client import ApiException

    from playground.demo import DemoFailed

    try:
        core.create_namespace({"metadata": {"name": NAMESPACE}})
    except ApiException as error:
        reason = (
            f"there is a namespace {NAMESPACE} already, maybe of a demo that was killed: "
            f"kubectl delete namespace {NAMESPACE}"
            if error.status == 409
            else f"the namespace {NAMESPACE} can't be made: {error.reason}"
        )
        raise DemoFailed(reason) from None
    try:
        yield
    finally:
        say(f"deleting the namespace {NAMESPACE}")
        core.delete_namespace(NAMESPACE)


def _pod(person: Person, image: str | None) -> dict[str, Any]:
    limits = {resource: str(amount) for resource, amount in person.limits.items()}
    container: dict[str, Any] = {
        "name": "notebook",
        "image": image or PAUSE,
        "resources": {"limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if image:
        container["command"] = ["python3", "-c", LOOK]
    annotations = {"hub.jupyter.org/username": person.name}
    if person.model:
        annotations[_NAMES.card_model] = person.model
    return {
        "metadata": {"name": f"jupyter-{person.name}", "annotations": annotations},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [container],
        },
    }


def _await_placed(core: client.CoreV1Api, people: Sequence[Person]) -> dict[str, str]:
    """Who got which card ('a10-1, GPU-…'); whoever is told why not gets none."""
    from kubernetes import watch

    placed: dict[str, str] = {}
    told: set[str] = set()
    names = {f"jupyter-{person.name}": person.name for person in people}
    stream = watch.Watch().stream(core.list_namespaced_pod, NAMESPACE, timeout_seconds=_PLACED)
    for event in stream:
        pod = event["object"]
        name = names[pod.metadata.name]
        text = (pod.metadata.annotations or {}).get(_NAMES.placement)
        if text is not None:
            placed[name] = f"{pod.spec.node_name}, {', '.join(sorted(_cards(text)))}"
        elif any(c.type == "PodScheduled" and c.status == "False" for c in _conditions(pod)):
            told.add(name)
        if placed.keys() | told == set(names.values()):
            break
    return {name: placed[name] for name in names.values() if name in placed}


def _conditions(pod: client.V1Pod) -> list[Any]:
    return list(pod.status.conditions or [])


def _cards(annotation: str) -> frozenset[str]:
    container = placement.decode(annotation).container("notebook")
    return frozenset(share.card for share in container.shares) if container else frozenset()


def _why(core: client.CoreV1Api, person: Person) -> str:
    pod = core.read_namespaced_pod(f"jupyter-{person.name}", NAMESPACE)
    reasons = [c.message for c in _conditions(pod) if c.type == "PodScheduled" and c.message]
    return f"waits: {reasons[0]}" if reasons else "waits, and nobody has said why"


def _look(core: client.CoreV1Api, name: str) -> frozenset[str]:
    """What the pod's container sees; checked against its placement. Raises DemoFailed."""
    from kubernetes import watch

    from playground.demo import DemoFailed

    pod_name = f"jupyter-{name}"
    stream = watch.Watch().stream(
        core.list_namespaced_pod,
        NAMESPACE,
        field_selector=f"metadata.name={pod_name}",
        timeout_seconds=_STARTED,
    )
    for event in stream:
        if event["object"].status.phase != "Pending":
            break
    else:
        raise DemoFailed(
            f"{pod_name} does not start: kubectl -n {NAMESPACE} describe pod {pod_name}"
        )
    lines = watch.Watch().stream(
        core.read_namespaced_pod_log, pod_name, NAMESPACE, _request_timeout=_PLACED
    )
    printed = next(iter(lines), "")
    try:
        seen = frozenset(str(uuid) for uuid in json.loads(printed))
    except (ValueError, TypeError):
        raise DemoFailed(
            f"{pod_name} printed something else than cards: {printed[:300]!r}; does the image "
            "have Python and nvidia-ml-py?"
        ) from None
    pod = core.read_namespaced_pod(pod_name, NAMESPACE)
    wanted = _cards(pod.metadata.annotations[_NAMES.placement])
    if seen != wanted:
        raise DemoFailed(
            f"{pod_name} sees {', '.join(sorted(seen)) or 'no card'}, but was placed on "
            f"{', '.join(sorted(wanted))}"
        )
    return seen


def _await_free(kubeconfig: Path, name: str) -> float:
    """Seconds until the extender offers the slice again. Raises DemoFailed."""
    from playground.demo import DemoFailed

    began = time.monotonic()
    while _holds(_state(kubeconfig), f"jupyter-{name}"):
        if time.monotonic() - began > _RELEASED:
            raise DemoFailed(f"jupyter-{name} is deleted, but its slice is not free again")
        time.sleep(0.2)  # the state API has no call that waits
    return time.monotonic() - began


def _holds(state: Mapping[str, Any], pod: str) -> bool:
    return any(
        (held["namespace"], held["pod"]) == (NAMESPACE, pod)
        for node in state["nodes"]
        for card in node["cards"]
        for held in card["slices"]
    )


def _state(kubeconfig: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(_inspect(kubeconfig, "-o", "json"))
    return state


def _inspect(kubeconfig: Path, *arguments: str) -> str:
    """What `gpushare inspect` prints. Raises NotThere with its words."""
    command = [sys.executable, "-m", "gpushare.cli.main", "inspect", *arguments]
    done = subprocess.run(
        [*command, "--kubeconfig", str(kubeconfig)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotThere(
            f"gpushare does not answer in this cluster: {done.stderr.strip()}\n"
            "Install it first: helm install gpushare charts/gpushare --namespace gpushare "
            "--create-namespace --values helm-values/mixed-pool.yaml --wait"
        )
    return done.stdout.rstrip()
