from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.addresses import MAX_NODES, Addresses
from playground.folders import NAME_VARIABLE, chosen_name
from playground.network import host_routes, node_links, overlapping

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)


@given(names)
def test_nothing_of_a_playground_overlaps(name: str) -> None:
    plan = Addresses.of(name)
    link = ipaddress.ip_network(f"{plan.host}/{plan.link_prefix}", strict=False)
    parts = [
        link,
        *(ipaddress.ip_network(n) for n in (plan.services, plan.pods, plan.simulated_pods)),
    ]
    for i, one in enumerate(parts):
        assert one.subnet_of(plan.network)
        assert not any(one.overlaps(other) for other in parts[i + 1 :])
    assert ipaddress.ip_address(plan.kubernetes_service) == next(
        ipaddress.ip_network(plan.services).hosts()
    )


@given(names, st.integers(0, MAX_NODES - 1))
def test_nodes_lie_in_their_networks(name: str, index: int) -> None:
    plan = Addresses.of(name)
    link = ipaddress.ip_network(f"{plan.host}/{plan.link_prefix}", strict=False)
    assert ipaddress.ip_address(plan.node(index)) in link
    assert plan.node(index) != plan.host
    assert ipaddress.ip_network(plan.pods_of(index)).subnet_of(ipaddress.ip_network(plan.pods))


def test_interface_name_is_short_enough_for_linux() -> None:
    assert all(len(Addresses(slot).interface) <= 15 for slot in range(190, 250))


def test_too_many_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 64"):
        Addresses.of("default").node(MAX_NODES)


@given(names.filter(lambda name: name != "default"))
def test_no_other_playground_has_the_default_network(name: str) -> None:
    assert Addresses.of(name).network != Addresses.of("default").network


def test_without_real_nodes_everything_listens_on_loopback() -> None:
    plan = Addresses.of("default", real=False)
    assert all(
        ipaddress.ip_address(a).is_loopback for a in (plan.host, plan.etcd[8:].split(":")[0])
    )


def test_every_node_knows_the_way_to_the_pods_of_all_others() -> None:
    plan = Addresses.of("default")
    lines = node_links(plan, 1, 3)
    assert f"route add {plan.pods_of(0)} via {plan.node(0)}" in lines
    assert f"route add {plan.pods_of(2)} via {plan.node(2)}" in lines
    assert not any(plan.pods_of(1) in line for line in lines)


def test_host_reaches_services_through_one_node() -> None:
    plan = Addresses.of("default")
    assert host_routes(plan, 2)[-1] == f"route replace {plan.services} via {plan.node(0)}"


def test_route_in_use_is_found() -> None:
    plan = Addresses.of("default")
    routes = json.loads(
        '[{"dst":"default"},{"dst":"10.0.0.0/8"},{"dst":"fe80::/64"},{"dst":"10.190.7.0/24"}]'
    )
    # A route to all of 10/8 is what a VPN sets; ours are narrower and win.
    assert overlapping(plan, routes[:3]) is None
    assert overlapping(plan, routes) == "10.190.7.0/24"


def test_name_comes_from_argument_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAME_VARIABLE, raising=False)
    assert chosen_name() == "default"
    monkeypatch.setenv(NAME_VARIABLE, "mine")
    assert chosen_name() == "mine"
    assert chosen_name("other") == "other"


@pytest.mark.parametrize("name", ["../up", "Upper", "-x", "a" * 33, "a b"])
def test_name_that_is_no_label_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=NAME_VARIABLE):
        chosen_name(name)


def test_state_lies_where_the_user_wants_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from playground.folders import Folders

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folders = Folders.of("mine")
    assert folders.root == tmp_path / "gpushare" / "playground" / "mine"
    assert not folders.lock.is_relative_to(folders.root)
