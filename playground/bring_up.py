"""Starting what is not running of a playground with real nodes, in an order that wastes no time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from playground import cgroups, network, packages
from playground.api import Api
from playground.bootstrap import await_default_account, await_nodes, grant_rights
from playground.host import Host
from playground.image_import import NodeImages, read_archive
from playground.node_components import node_components
from playground.node_configuration import PAUSE_IMAGE, NodeFiles, write_changed
from playground.node_space import PRIVATE, enter, make_mount_space
from playground.pause import write_pause_image
from playground.processes import Component

if TYPE_CHECKING:
    from playground.cluster import Cluster

NODES_PATIENCE = 90.0  # seconds for a node to get Ready


class BringUp:
    """One `up`. ``started`` are the components that it had to start."""

    def __init__(self, cluster: Cluster, programs: Mapping[str, Path]) -> None:
        self.cluster = cluster
        self.programs = programs
        self.started: list[str] = []

    def run(self) -> None:
        """Everything is up and ready when this returns."""
        cluster, processes = self.cluster, self.cluster.processes
        Host().prepare(PRIVATE)
        network.make_network(cluster.plan, cluster.folders, cluster.nodes)
        cgroups.create(cluster.control_plane_group)
        etcd, apiserver, *clients = cluster.control_plane(self.programs)
        self.start([etcd, apiserver])
        # While these two get ready, the nodes get their rooms and their container runtimes.
        for files in cluster.node_files():
            containerd, *rest = node_components(files, cluster.folders, self.programs)
            self._furnish(files, [containerd, *rest])
            self.start([containerd])
            clients += rest
        for files in cluster.node_files():
            processes.await_ready(node_components(files, cluster.folders, self.programs)[0])
            self._bring_pause(files)
        processes.await_ready(etcd)
        processes.await_ready(apiserver)
        self.start(clients)
        api = Api(cluster.folders.kubeconfig)
        grant_rights(api)
        for component in clients:
            processes.await_ready(component)
        await_nodes(api, [node.name for node in cluster.nodes], NODES_PATIENCE)
        await_default_account(api, NODES_PATIENCE)

    def start(self, components: Iterable[Component]) -> None:
        """Start those that do not run."""
        for component in components:
            if self.cluster.processes.pid(component.name) is None:
                self.cluster.processes.start(component)
                self.started.append(component.name)

    def _furnish(self, files: NodeFiles, components: Sequence[Component]) -> None:
        """Make a node's room and files; what runs with an older version of them is stopped."""
        cgroups.create(f"{files.group}/system")
        make_mount_space(self.cluster.folders, files.node, self.cluster.say)
        cni, runc = packages.cni_folder(), packages.find("runc")
        assert cni, "packages.install_missing has seen to it"
        assert runc, "packages.install_missing has seen to it"
        proxy_access = self.cluster.folders.kubeconfig_of("kube-proxy")
        changed = write_changed(files.contents(runc, cni, proxy_access))
        for component in components:
            if any(str(path) in part for path in changed for part in component.command):
                self.cluster.processes.stop(component.name)

    def _bring_pause(self, files: NodeFiles) -> None:
        archive = self.cluster.folders.root / "pause.tar"
        if not archive.exists():
            write_pause_image(self.programs["pause"], PAUSE_IMAGE, archive)
        images_of(self.cluster, files.node.name, self.programs["ctr"]).bring(read_archive(archive))


def images_of(cluster: Cluster, node: str, ctr: Path) -> NodeImages:
    """The images of one node of a cluster that is up."""
    return NodeImages(ctr, enter(cluster.folders, node), cluster.folders.node(node) / "images")
