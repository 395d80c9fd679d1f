"""The network of a playground: a switch in a namespace of its own, nodes and host plugged into it.

The switch is not on the host, so that a firewall there never sees what nodes say to one another,
and the host gets one interface and some routes, nothing more.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from playground.addresses import Addresses
from playground.commands import run, succeeds
from playground.folders import Folders
from playground.mounts import is_pinned, make_pin_folder, pin_network_namespace
from playground.node_space import network_pin
from playground.nodes import Node

_SWITCH = "switch"  # name of the namespace, and of the bridge in it
_UPLINK = "host"  # the switch's end of the host's cable


class NetworkTaken(Exception):
    """The addresses are in use on this machine; the text says by what and what to do."""


def make_network(plan: Addresses, folders: Folders, nodes: Sequence[Node]) -> None:
    """Make switch, cables, addresses and routes, those that are not there yet."""
    make_pin_folder(folders.namespaces)
    switch = network_pin(folders, _SWITCH)
    if not is_pinned(switch):
        _refuse_taken(plan)
        pin_network_namespace(switch)
        _ip(switch, [f"link add {_SWITCH} type bridge", f"link set {_SWITCH} up", "link set lo up"])
        run(["ip", "-batch", "-"], "\n".join(_host_cable(plan, switch)))
        _ip(switch, [f"link set {_UPLINK} master {_SWITCH} up"])
    for index, node in enumerate(nodes):
        pin = network_pin(folders, node.name)
        if not is_pinned(pin):
            pin_network_namespace(pin)
            cable = f"link add eth0 netns {pin} type veth peer name {node.name} netns {switch}"
            run(["ip", "-batch", "-"], cable)
            _ip(switch, [f"link set {node.name} master {_SWITCH} up"])
            _ip(pin, node_links(plan, index, len(nodes)))
            run(["nsenter", f"--net={pin}", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
    run(["ip", "-batch", "-"], "\n".join(host_routes(plan, len(nodes))))


def _host_cable(plan: Addresses, switch: Path) -> list[str]:
    return [
        f"link add {plan.interface} type veth peer name {_UPLINK} netns {switch}",
        f"address add {plan.host}/{plan.link_prefix} dev {plan.interface}",
        f"link set {plan.interface} up",
    ]


def node_links(plan: Addresses, index: int, count: int) -> list[str]:
    """What `ip` does inside a node: its address, and the way to host, pods and other nodes."""
    return [
        "link set lo up",
        f"address add {plan.node(index)}/{plan.link_prefix} dev eth0",
        "link set eth0 up",
        f"route add default via {plan.host}",
        *(
            f"route add {plan.pods_of(other)} via {plan.node(other)}"
            for other in range(count)
            if other != index
        ),
    ]


def host_routes(plan: Addresses, count: int, services_by: int = 0) -> list[str]:
    """What `ip` does on the host: pods by their nodes, ClusterIPs by one of the nodes."""
    return [
        *(f"route replace {plan.pods_of(i)} via {plan.node(i)}" for i in range(count)),
        f"route replace {plan.services} via {plan.node(services_by)}",
    ]


def remove_network(plan: Addresses) -> None:
    """Remove the host's end; the rest goes with its namespaces."""
    if has_interface(plan):
        run(["ip", "link", "delete", plan.interface])


def is_whole(plan: Addresses, folders: Folders) -> bool:
    """Whether both ends of the host's cable are there."""
    return has_interface(plan) and is_pinned(network_pin(folders, _SWITCH))


def has_interface(plan: Addresses) -> bool:
    return succeeds(["ip", "link", "show", plan.interface])


def set_cable(folders: Folders, node: str, up: bool) -> None:
    """Pull a node's network cable, or plug it in again."""
    switch = network_pin(folders, _SWITCH)
    _ip(switch, [f"link set {node} {'up' if up else 'down'}"])


def lead_services(plan: Addresses, by: int) -> None:
    """Let the host reach ClusterIPs through the node with this place in the list."""
    run(["ip", "route", "replace", plan.services, "via", plan.node(by)])


def _refuse_taken(plan: Addresses) -> None:
    taken = overlapping(plan, json.loads(run(["ip", "-json", "route", "show", "table", "all"])))
    if taken:
        raise NetworkTaken(
            f"this machine already has a route to {taken}, which the playground's network "
            f"{plan.network} would hide: give the playground another name (--name), and with it "
            "another network"
        )


def overlapping(plan: Addresses, routes: Sequence[dict[str, object]]) -> str | None:
    """The first destination in the output of `ip -json route` that lies in our network."""
    for route in routes:
        try:
            network = ipaddress.IPv4Network(str(route.get("dst")), strict=False)
        except ValueError:
            continue  # 'default', or IPv6
        # A wider one (a VPN's way to all of 10.0.0.0/8, say) loses against ours, and is no harm.
        if network.subnet_of(plan.network):
            return str(network)
    return None


def _ip(pin: Path, lines: Sequence[str]) -> None:
    run(["nsenter", f"--net={pin}", "ip", "-batch", "-"], "\n".join(lines))
