from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.api.podresources_pb2 import ContainerDevices, ContainerResources, PodResources
from device_plugin.holders import Holder, claims, from_checkpoint, from_pod_resources
from device_plugin.kubelet_state import Seen

from .making import MEM, PERCENT

OURS = (MEM, PERCENT)


def listed(container: str, *devices: ContainerDevices, name: str = "alice") -> PodResources:
    return PodResources(
        name=name,
        namespace="jupyter",
        containers=[ContainerResources(name=container, devices=devices)],
    )


def devices(resource: str, *ids: str) -> ContainerDevices:
    return ContainerDevices(resource_name=resource, device_ids=ids)


def entry(uid: str, container: str, resource: str, ids: object) -> dict[str, object]:
    return {
        "PodUID": uid,
        "ContainerName": container,
        "ResourceName": resource,
        "DeviceIDs": ids,
        "AllocResp": "",
    }


def checkpoint(*entries: object) -> str:
    return json.dumps(
        {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}
    )


@given(st.sets(st.integers(0, 50).map("m{}".format), min_size=1), st.data())
def test_ids_are_joined_however_the_kubelet_splits_them(ids: set[str], data: st.DataObject) -> None:
    rest, parts = sorted(ids), []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        parts.append(devices(MEM, *rest[:size]))
        rest = rest[size:]
    parts.insert(data.draw(st.integers(0, len(parts))), devices("example.com/other", "x"))
    (holder,) = from_pod_resources([listed("main", *parts)], OURS)
    assert holder == Holder("main", {MEM: frozenset(ids)}, "jupyter", "alice")


def test_containers_without_our_resources_are_no_holders() -> None:
    pods = [listed("main", devices("example.com/other", "x")), listed("side")]
    assert from_pod_resources(pods, OURS) == []


def test_the_checkpoint_joins_numa_nodes_and_resources() -> None:
    text = checkpoint(
        entry("u1", "main", MEM, {"-1": ["m1"], "0": ["m2"]}),
        entry("u1", "main", PERCENT, {"-1": ["p1"]}),
        entry("u1", "other", "example.com/other", {"-1": ["x"]}),
        entry("u2", "main", MEM, ["m3"]),
    )
    assert from_checkpoint(text, OURS) == [
        Holder("main", {MEM: frozenset({"m1", "m2"}), PERCENT: frozenset({"p1"})}, uid="u1"),
        Holder("main", {MEM: frozenset({"m3"})}, uid="u2"),
    ]


def test_a_node_that_granted_nothing_yet_has_an_empty_checkpoint() -> None:
    text = json.dumps({"Data": {"PodDeviceEntries": None, "RegisteredDevices": {}}, "Checksum": 1})
    assert from_checkpoint(text, OURS) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"Data": 3}', '{"Data": []}', "[" * 9999])
def test_a_corrupt_checkpoint_is_said_to_be_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"not JSON|has no list"):
        from_checkpoint(text, OURS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)


@given(
    st.lists(json_values | st.builds(entry, json_values, json_values, st.just(MEM), json_values))
)
def test_odd_entries_never_break_the_reading(entries: list[object]) -> None:
    for holder in from_checkpoint(checkpoint(*entries), OURS):
        assert holder.uid is not None
        assert holder.ids[MEM]


def test_both_answers_together_name_the_container_fully() -> None:
    ids = frozenset({"m1", "m2"})
    seen = Seen(
        [Holder("main", {MEM: ids}, "jupyter", "alice")], [Holder("main", {MEM: ids}, uid="u1")]
    )
    assert seen.find(MEM, ids) == [Holder("main", {MEM: ids}, "jupyter", "alice", "u1")]
    assert seen.find(MEM, frozenset({"m1"})) == []
    assert seen.find(PERCENT, ids) == []


def test_each_answer_stands_in_for_the_other() -> None:
    ids = frozenset({"m1"})
    by_name = Holder("main", {MEM: ids}, "jupyter", "alice")
    by_uid = Holder("main", {MEM: ids}, uid="u1")
    assert Seen([by_name], None, "checkpoint: gone").find(MEM, ids) == [by_name]
    assert Seen(None, [by_uid], "pod resources: away").find(MEM, ids) == [by_uid]
    assert Seen(None, None, "both").blind


def test_an_init_container_is_found_in_the_checkpoint_alone() -> None:
    ids = frozenset({"m1"})
    seen = Seen(
        [Holder("main", {MEM: ids}, "jupyter", "alice")],
        [Holder("prep", {MEM: ids}, uid="u1"), Holder("main", {MEM: ids}, uid="u1")],
    )
    assert seen.find(MEM, ids) == [
        Holder("prep", {MEM: ids}, "jupyter", "alice", "u1"),
        Holder("main", {MEM: ids}, "jupyter", "alice", "u1"),
    ]


def test_cards_that_nvidias_plugin_hands_out_too_are_noticed() -> None:
    offered = [
        devices("nvidia.com/gpu", "GPU-a", "GPU-x"),
        devices("nvidia.com/gpu.shared", "GPU-b::0", "GPU-b::1"),
        devices(MEM, "m1", "GPU-c"),
    ]
    expected = {"GPU-a": "nvidia.com/gpu", "GPU-b": "nvidia.com/gpu.shared"}
    assert claims(offered, ["GPU-a", "GPU-b", "GPU-c"], OURS) == expected


def test_the_checkpoints_entries_of_ended_pods_are_not_held() -> None:
    ended = Holder("main", {MEM: frozenset({"m9"})}, uid="u-ended")
    init = Holder("prep", {MEM: frozenset({"m1"})}, uid="u1")
    main = Holder("main", {MEM: frozenset({"m1", "m2"})}, "jupyter", "alice")
    seen = Seen([main], [ended, init])
    assert seen.held(frozenset({"u1"})) == [main, init]
    # While nobody can say who lives, and where the list is missing, everything counts.
    assert seen.held(None) == [main, ended, init]
    assert Seen(None, [ended, init]).held(frozenset({"u1"})) == [ended, init]
