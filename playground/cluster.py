"""The playground's cluster as one object: up, down, status."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playground import binaries, cgroups, kubeconfigs, network, packages
from playground.addresses import Addresses
from playground.api import Api
from playground.bring_up import BringUp, images_of
from playground.certificates import (
    CLUSTER_CA,
    control_plane_identities,
    issue_all,
    node_identity,
)
from playground.control_plane import CONTROLLER_MANAGER, SCHEDULER, ControlPlane
from playground.description import Description
from playground.folders import Folders, chosen_name
from playground.host import Host
from playground.image_import import read_archive
from playground.locks import exclusive
from playground.mounts import is_pinned, remove_tree, unmount_all
from playground.node_components import node_components
from playground.node_configuration import NodeFiles
from playground.node_space import CARDS, mount_pin
from playground.nodes import DEFAULT_NODES, Node
from playground.processes import Component, Processes, boot_id
from playground.simulated import KWOK, SimulatedBringUp, kwok_component
from playground.status import Status, read_status

Say = Callable[[str], None]


class PlaygroundError(Exception):
    """Something that the caller has to decide or put right; the text says what."""


class Cluster:
    """One playground, found by its name. Nothing happens before a method is called."""

    def __init__(
        self, name: str | None = None, nodes: Sequence[Node] = DEFAULT_NODES, say: Say = print
    ) -> None:
        self.name = chosen_name(name)
        self.folders = Folders.of(self.name)
        self.say = say
        self.processes = Processes(self.folders.processes, self.folders.logs)
        self._wanted_nodes = tuple(nodes)

    # What it is

    @property
    def description(self) -> Description | None:
        """How it was made; None while there is none."""
        return Description.read(self.folders.description)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that it has, or would have."""
        description = self.description
        return description.nodes if description else self._wanted_nodes

    @property
    def simulated(self) -> bool:
        """Whether its nodes are simulated (kwok), so that nothing really runs on them."""
        description = self.description
        return description is not None and description.simulated

    @property
    def plan(self) -> Addresses:
        return Addresses.of(self.name, real=not self.simulated)

    @property
    def group(self) -> str:
        """The control group that holds every process of it."""
        return f"gpushare-playground-{self.name}"

    @property
    def control_plane_group(self) -> str:
        return f"{self.group}/control-plane"

    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig. Raises PlaygroundError when there is no cluster."""
        if not self.folders.kubeconfig.exists():
            raise PlaygroundError(
                f"playground {self.name!r} is not up: run `gpushare playground up`"
            )
        return self.folders.kubeconfig

    def api(self) -> Api:
        """A client with the administrator's rights."""
        return Api(self.kubeconfig())

    def cards_root(self, node: str) -> Path:
        """The folder with a node's simulated cards, for `playground.cards.node_cards`."""
        return self.folders.node(node) / CARDS

    def control_plane(self, programs: Mapping[str, Path]) -> tuple[Component, ...]:
        # Without root there are no control groups; the processes' own records must do.
        group = None if self.simulated else self.control_plane_group
        return ControlPlane(self.plan, self.folders, programs, group).components()

    def node_files(self) -> list[NodeFiles]:
        return [
            NodeFiles(
                node=node,
                index=index,
                plan=self.plan,
                root=self.folders.node(node.name),
                certificates=self.folders.certificates,
                group=f"{self.group}/{node.name}",
            )
            for index, node in enumerate(self.nodes)
        ]

    def components(self) -> list[Component]:
        """Every component that it has when it is up."""
        wanted = (*binaries.CLUSTER, KWOK)
        programs = {name: binaries.available(name) or Path(name) for name in wanted}
        components = list(self.control_plane(programs))
        if self.simulated or KWOK in self.processes.names():
            components.append(kwok_component(self.plan, self.folders, programs))
        if not self.simulated:
            for files in self.node_files():
                components += node_components(files, self.folders, programs)
        return components

    def component(self, name: str) -> Component:
        """The component called ``name``. Raises PlaygroundError with the names there are."""
        components = {c.name: c for c in self.components()}
        if name not in components:
            raise PlaygroundError(f"no component {name!r}; there are: {', '.join(components)}")
        return components[name]

    # Up and down

    def up(self, simulated: bool = False) -> list[str]:
        """Bring everything up that is not. Returns the components that it started.

        ``simulated``: no container ever runs, nodes are simulated; needs no root.
        Raises PlaygroundError, ComponentFailed, CommandFailed, StepFailed, NoGo, PackagesMissing,
        ClusterNotReady or NetworkTaken. What is up then stays, to be looked at; `up` goes on from
        there, and `down` removes it.
        """
        with exclusive(self.folders.lock):
            if not simulated:
                packages.install_missing(self.say)
            self._clear_ruins(simulated)
            fresh = self.description is None
            if fresh:
                Description(simulated, boot_id(), self._wanted_nodes).write(
                    self.folders.description
                )
            needed = binaries.CONTROL_PLANE if simulated else binaries.CLUSTER
            programs = binaries.ensure(needed, self.say)
            began = time.monotonic()
            self._write_identities()
            bring_up = (SimulatedBringUp if simulated else BringUp)(self, programs)
            bring_up.run()
            if fresh:
                self.say(f"the cluster is ready ({time.monotonic() - began:.1f} s)")
            elif bring_up.started:
                self.say(f"started again: {', '.join(bring_up.started)}")
            else:
                self.say("everything is up already")
        return bring_up.started

    def down(self) -> bool:
        """Remove everything; False when there was nothing."""
        with exclusive(self.folders.lock):
            existed = self.folders.root.exists()
            self._remove()
        Host().tidy()
        return existed

    def _clear_ruins(self, simulated: bool) -> None:
        """Remove what a reboot, or a killed `up` or `down`, has left, if it is of no use."""
        description, exists = self.description, self.folders.root.exists()
        if not exists and (simulated or not network.has_interface(self.plan)):
            return
        if description is None or description.boot != boot_id():
            self.say("removing what is left of an earlier playground")
            self._remove()
        elif (description.simulated, description.nodes) != (simulated, self._wanted_nodes):
            kind = "simulated nodes" if description.simulated else "nodes"
            names = ", ".join(node.name for node in description.nodes)
            raise PlaygroundError(
                f"playground {self.name!r} is up with other nodes ({kind} {names}): run "
                "`gpushare playground down` first, or choose another --name"
            )
        elif not simulated and not self._is_whole():
            self.say("the playground is only half there: making it afresh")
            self._remove()

    def _is_whole(self) -> bool:
        pins = [mount_pin(self.folders, node.name) for node in self.nodes]
        return network.is_whole(self.plan, self.folders) and all(is_pinned(p) for p in pins)

    def _write_identities(self) -> None:
        self.folders.root.chmod(0o700)
        plan, certificates = self.plan, self.folders.certificates
        nodes = [node_identity(n.name, plan.node(i)) for i, n in enumerate(self.nodes)]
        control_plane = control_plane_identities(plan.host, plan.kubernetes_service)
        issue_all(certificates, [*control_plane, *nodes])
        self.folders.configuration.mkdir(exist_ok=True)
        components = (CONTROLLER_MANAGER, SCHEDULER, "kube-proxy", KWOK)
        for identity in ("admin", *components, *(node.file for node in nodes)):
            path = self.folders.kubeconfig_of(identity)
            if not path.exists():
                name = f"playground-{self.name}"
                kubeconfigs.write(path, plan.apiserver, certificates, identity, CLUSTER_CA, name)

    def _remove(self) -> None:
        self.processes.kill_all()  # at once: nothing of it will be read again
        if os.geteuid() == 0:
            cgroups.kill(self.group)
            # Before its namespaces go: the kernel takes them down in its own time, interfaces too.
            network.remove_network(self.plan)
            unmount_all(self.folders.root)
            cgroups.remove(self.group)
        remove_tree(self.folders.root)
        if os.geteuid() == 0:
            Host().restore()

    # While it is up

    def status(self) -> Status:
        """What runs and what does not. Never raises because of what it finds."""
        return read_status(self)

    def kill(self, name: str) -> None:
        """End a component by SIGKILL, as a crash would."""
        self.component(name)
        if not self.processes.stop(name, hard=True):
            raise PlaygroundError(f"{name} is not running")

    def restart(self, name: str, *, wait: bool = True) -> None:
        """Stop a component (if it runs), start it, and ``wait`` until it is ready.

        The kubelet of a node that is cut off cannot be asked whether it is.
        """
        component = self.component(name)
        with exclusive(self.folders.lock):
            self.processes.stop(name)
            self.processes.start(component)
            if wait:
                self.processes.await_ready(component)

    def cut_off(self, node: str) -> None:
        """Pull a node's network cable. The host then reaches ClusterIPs through another node."""
        network.set_cable(self.folders, node, up=False)
        others = [i for i, n in enumerate(self.nodes) if n.name != node]
        if others:
            network.lead_services(self.plan, others[0])

    def reconnect(self, node: str) -> None:
        """Plug a node's network cable in again."""
        network.set_cable(self.folders, node, up=True)
        network.lead_services(self.plan, 0)

    def import_image(self, path: Path) -> list[str]:
        """Bring an image archive to every node; returns the nodes that did not have it yet.

        Simulated nodes take any image as given.
        """
        if self.simulated:
            return []
        archive, ctr = read_archive(path), binaries.path("ctr", self.say)
        images = {node.name: images_of(self, node.name, ctr) for node in self.nodes}
        with ThreadPoolExecutor() as pool:  # unpacking keeps one processor busy for each node
            brought = pool.map(lambda node_images: node_images.bring(archive), images.values())
            return [name for name, new in zip(images, brought, strict=True) if new]
