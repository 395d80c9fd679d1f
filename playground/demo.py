"""The demo: from nothing to eight notebooks that share six cards, each step checked.

Every step is a function of its own, so that tests drive the same ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpushare import placement
from gpushare.names import Names
from playground import images, packages
from playground.addresses import DEFAULT_NAME
from playground.api import ApiError
from playground.capability import can_run_containers
from playground.cluster import Cluster
from playground.demo_people import PEOPLE, Person
from playground.errors import EXPECTED
from playground.hub import PASSWORD, Hub
from playground.hub_account import NAMESPACE, pod_annotations
from playground.hub_user import HubError, HubUser, stop_server
from playground.images.archive import ImageArchive
from playground.install import InstallError, install
from playground.kernel import CellFailed
from playground.packages import PackagesMissing
from playground.progress import StepFailed

CONTAINER = "notebook"  # what KubeSpawner calls it
_AT_ONCE = 8
_RELEASE = 15.0  # seconds until a stopped server's slice must be free

# What each user runs: the cards that NVIDIA's own library shows in this notebook.
LOOK = """
import json, pynvml
pynvml.nvmlInit()
cards = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
print(json.dumps([[pynvml.nvmlDeviceGetUUID(c), pynvml.nvmlDeviceGetName(c)] for c in cards]))
"""


class DemoFailed(Exception):
    """What was promised did not happen; the text says what, and which log to read."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a notebook shows: (UUID, name) of each card."""

    cards: tuple[tuple[str, str], ...]

    @property
    def uuids(self) -> frozenset[str]:
        return frozenset(uuid for uuid, _ in self.cards)

    def __str__(self) -> str:
        return ", ".join(f"{name} ({uuid})" for uuid, name in self.cards) or "no card"


class Clock:
    """Prints lines with the seconds since the start."""

    def __init__(self, out: Callable[[str], None] = print) -> None:
        self.started = time.monotonic()
        self.out = out

    def say(self, text: str) -> None:
        for line in text.splitlines():
            self.out(f"{time.monotonic() - self.started:6.1f} s  {line}")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A step: its title before, how long it took after."""
        self.out("")
        self.say(title)
        began = time.monotonic()
        yield
        self.say(f"  done in {time.monotonic() - began:.1f} s")


def run(name: str | None = None, out: Callable[[str], None] = print) -> int:
    """The whole demo; the exit status. Never raises for what can go wrong outside of it."""
    clock = Clock(out)
    cluster = Cluster(name, say=clock.say)
    try:
        reason = can_run_containers()
        if reason:
            from playground.scheduling_demo import show_scheduling

            clock.say(f"{reason} So no notebook can run; this is the scheduling half of the demo:")
            show_scheduling(cluster, clock)
        else:
            show_notebooks(cluster, clock)
    except (*EXPECTED, *_FAILURES) as error:
        out("")
        clock.say(f"The demo stops here: {error}")
        clock.say(f"Logs: {cluster.folders.logs}")
        return 1
    return 0


def run_on(kubeconfig: Path, image: str | None, out: Callable[[str], None] = print) -> int:
    """The demo's pods on a cluster that the user has; the exit status."""
    from playground.existing_demo import NotThere, show_existing

    clock = Clock(out)
    try:
        show_existing(kubeconfig, image, clock)
    except (*EXPECTED, *_FAILURES, NotThere) as error:
        out("")
        clock.say(f"The demo stops here: {error}")
        return 1
    return 0


_FAILURES = (
    DemoFailed,
    HubError,
    CellFailed,
    InstallError,
    StepFailed,
    PackagesMissing,
    ApiError,
    OSError,
)


def show_notebooks(cluster: Cluster, clock: Clock) -> None:
    """Everything, with real containers. Raises one of the expected errors."""
    packages.install_missing(clock.say)
    # Compiling Kubernetes waits for the processor, images mostly for the network and the disk.
    with ThreadPoolExecutor(1) as aside:
        made = aside.submit(make_images, clock.say)
        with clock.step("Kubernetes: a control plane and two nodes with simulated cards"):
            cluster.up()
        with clock.step("Images: the product's and JupyterLab's, made here"):
            cluster.import_image(made.result().path)
    with clock.step("gpushare: installed by helm"):
        install(cluster, say=clock.say)
    hub = Hub(cluster, clock.say)
    with clock.step("JupyterHub"):
        hub.start()
        clock.say(f"  answers at {hub.url}")
    with clock.step("Users: log in through the Hub's page"):
        users = log_in(hub, PEOPLE)
        stop_old_servers(users)
    clock.out("")
    clock.out(inspect(cluster))
    with clock.step("Notebooks: eight servers through the Hub's API, all at once"):
        start_servers(users, PEOPLE, clock.say)
    with clock.step("A cell in each notebook: which cards does NVIDIA's library show?"):
        seen = look(users, clock.say)
        check_placements(cluster, seen)
        sharing = check_sharing(seen)
        clock.say("  every notebook sees the card that its pod was placed on, and no other;")
        clock.say(f"  {sharing} share one T4")
    clock.out("")
    clock.out(inspect(cluster))
    culled = PEOPLE[0]
    with clock.step(f"The culler's call: {culled.name}'s server is stopped"):
        freed = cull(cluster, hub, culled)
        clock.say(f"  its slice is free again {freed:.1f} s after the call")
    clock.out("")
    clock.out(inspect(cluster))
    clock.out("")
    clock.out(farewell(hub, clock))


def make_images(say: Callable[[str], None]) -> ImageArchive:
    """The notebooks' image. The product's own, which its installation brings, are made as well."""
    archive = images.build("singleuser", say=say)
    for name in ("extender", "device-plugin"):
        images.build(name, say=say)
    return archive


def log_in(hub: Hub, people: Iterable[Person]) -> dict[str, HubUser]:
    """Everybody, through the login page."""
    return {person.name: HubUser(hub.url, person.name, PASSWORD) for person in people}


def stop_old_servers(users: Mapping[str, HubUser]) -> None:
    """Servers of an earlier demo."""
    running = [user for user in users.values() if user.server() is not None]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(HubUser.stop_server, running))


def start_servers(
    users: Mapping[str, HubUser], people: Iterable[Person], say: Callable[[str], None]
) -> None:
    """All at the same moment. Raises HubError with the Hub's words for the first that fails."""

    def start(person: Person) -> None:
        seconds = users[person.name].start_server(person.options)
        say(f"  {person.name:6} {person.profile}/{person.slice:6} ready after {seconds:.1f} s")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(start, people))


def look(users: Mapping[str, HubUser], say: Callable[[str], None]) -> dict[str, Seen]:
    """What each running notebook sees, through a cell in a kernel of its own."""

    def ask(name: str) -> tuple[str, Seen]:
        seen = parse_look(users[name].run_cell(LOOK))
        say(f"  {name:6} {seen}")
        return name, seen

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(pool.map(ask, users))


def parse_look(printed: str) -> Seen:
    """What LOOK printed. Raises DemoFailed for anything else."""
    try:
        return Seen(tuple((str(uuid), str(name)) for uuid, name in json.loads(printed)))
    except (ValueError, TypeError):
        raise DemoFailed(f"a cell printed something else than cards: {printed[:300]!r}") from None


def check_placements(cluster: Cluster, seen: Mapping[str, Seen]) -> None:
    """Each notebook sees exactly the cards of its pod's placement. Raises DemoFailed."""
    api, names = cluster.api(), Names()
    for name, shown in seen.items():
        pod = f"jupyter-{name}"
        text = pod_annotations(api, pod).get(names.placement)
        if text is None:
            raise DemoFailed(f"{pod} runs, but has no annotation {names.placement}")
        container = placement.decode(text).container(CONTAINER)
        placed = frozenset(share.card for share in container.shares) if container else frozenset()
        if placed != shown.uuids:
            raise DemoFailed(
                f"{name}'s notebook sees {shown}, but its pod was placed on "
                f"{', '.join(sorted(placed)) or 'no card'}; "
                f"the device plugin's log: gpushare playground kubectl -n gpushare logs ds/"
                "gpushare-device-plugin --all-pods"
            )


def check_sharing(seen: Mapping[str, Seen], model: str = "T4") -> str:
    """That two notebooks share one card of ``model``; who they are. Raises DemoFailed."""
    together: dict[str, list[str]] = {}
    for name, shown in seen.items():
        for uuid, card in shown.cards:
            if card.endswith(model):
                together.setdefault(uuid, []).append(name)
    most = max(together.values(), key=len, default=[])
    if len(most) < 2:
        raise DemoFailed(f"no two notebooks share a {model}: {together}")
    return " and ".join(most)


def cull(cluster: Cluster, hub: Hub, person: Person) -> float:
    """Stop a server with an idle culler's token; seconds until its slice is free again."""
    began = time.monotonic()
    stop_server(hub.url, hub.culler_token, person.name)
    while holds_slice(cluster, person.name):
        if time.monotonic() - began > _RELEASE:
            raise DemoFailed(
                f"{person.name}'s server is stopped, but its slice is not free after "
                f"{_RELEASE:.0f} s; the extender's log: gpushare playground kubectl -n gpushare "
                "logs deploy/gpushare-user-scheduler -c extender"
            )
        time.sleep(0.2)
    return time.monotonic() - began


def holds_slice(cluster: Cluster, user: str) -> bool:
    """Whether the extender's state shows a slice of this user's pod."""
    state: dict[str, Any] = json.loads(inspect(cluster, "-o", "json"))
    return any(
        (held["namespace"], held["pod"]) == (NAMESPACE, f"jupyter-{user}")
        for node in state["nodes"]
        for card in node["cards"]
        for held in card["slices"]
    )


def inspect(cluster: Cluster, *arguments: str) -> str:
    """What `gpushare inspect` prints."""
    command = [sys.executable, "-m", "gpushare.cli.main", "inspect", *arguments]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig())}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise DemoFailed(f"`gpushare inspect` failed: {done.stderr.strip()}")
    return done.stdout.rstrip()


def farewell(hub: Hub, clock: Clock) -> str:
    """What the user can do now."""
    people = ", ".join(person.name for person in PEOPLE)
    host = hub.url.removeprefix("http://")
    named = "" if hub.cluster.name == DEFAULT_NAME else f" --name {hub.cluster.name}"
    return "\n".join(
        (
            f"All of it in {time.monotonic() - clock.started:.0f} s. JupyterHub goes on running:",
            "",
            f"  {hub.url}",
            f"  log in as {people} or any other name; the password is {PASSWORD}",
            "",
            f"  from another machine:  ssh -L 8000:{host} THIS-MACHINE, then http://localhost:8000",
            f"  what is where:         KUBECONFIG={hub.cluster.kubeconfig()} gpushare inspect",
            f"  the pods:              gpushare playground{named} kubectl get pods -A",
            f"  take it all down:      gpushare playground{named} down",
        )
    )
