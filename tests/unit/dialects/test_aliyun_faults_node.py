"""The faults that are known of the aliyun pair, looked for in ours: the node's half, and the chart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from device_plugin.container_start import ContainerStart
from device_plugin.delivery import Delivery, Way
from device_plugin.edits import Edits, read_env
from device_plugin.foreign import Foreign, missing_counts
from device_plugin.holders import Holder, offered_by_others
from device_plugin.ids import served, slice_hash
from device_plugin.kube import ApiError
from device_plugin.node_specs import NodeSpecs
from device_plugin.pod import essence
from device_plugin.refusal import Code, Refused
from device_plugin.slice_specs import Record, SliceSpecs
from device_plugin.verification import Node, placement_of
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement, Share, encode
from gpushare.pods import pod_ref
from gpushare.request import Role
from gpushare.units import GIB
from tests.unit.chart.conftest import chart  # noqa: F401
from tests.unit.chart.rendering import LEAST, Chart
from tests.unit.device_plugin.test_container_start import Kubelet

NAMES = Names(dialects=("aliyun", "elastic", "hami"))
MEMORY = "aliyun.com/gpu-mem"
KEY = "ALIYUN_COM_GPU_MEM_"
# On this node the driver counts its cards in another order than the kernel.
FIRST = Card("GPU-aaaa", 0, 1, "Tesla T4", 15360)
SECOND = Card("GPU-bbbb", 1, 0, "NVIDIA A10", 23028)
NODE_SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {
            "name": card.uuid,
            "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{card.minor}"}]},
        }
        for card in (FIRST, SECOND)
    ],
}


class Pods:
    """The pods of the node."""

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}

    def alive(self) -> frozenset[str]:
        return frozenset(self.pods)

    async def find(self, holder: Holder) -> Any:
        return self.pods.get(holder.uid)


class Kube:
    """Takes marks of pods; ``answers`` are what it says to the next calls."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Any]] = []
        self.answers: list[ApiError] = []
        self.patched = asyncio.Event()

    async def patch(self, path: str, body: Any) -> dict[str, Any]:
        self.patches.append((path, body))
        self.patched.set()
        if self.answers:
            raise self.answers.pop(0)
        return {}


class Bench:
    """The part of the device plugin that starts containers, with dialects on."""

    def __init__(self, folder: Path, adopt_before: float = 0.0) -> None:
        (folder / "nvidia.json").write_text(json.dumps(NODE_SPEC))
        self.cards = {card.uuid: card for card in (FIRST, SECOND)}
        self.node = Node("n", NAMES, GIB, self.cards, adopt_before=adopt_before)
        self.kubelet, self.pods, self.kube = Kubelet(), Pods(), Kube()
        self.specs = SliceSpecs(folder, "gpushare")
        self.foreign = Foreign(
            self.kube,  # type: ignore[arg-type]
            "n",
            NAMES,
            GIB,
            lambda: self.cards,
            lambda pod: placement_of(pod, self.node),
        )
        self.start = ContainerStart(
            lambda: self.node,
            self.kubelet,
            self.pods,
            self.specs,
            Delivery("gpushare/slice", Way.AUTO, NodeSpecs([folder], "nvidia.com/gpu")),
            hook=self._hook,
        )

    async def _hook(self, pod: Any, container: ContainerPlacement) -> Edits:
        return self.foreign.edits(pod, container, {})

    def put(self, pod: dict[str, Any], ids: dict[str, Sequence[str]], container: str = "c") -> None:
        self.pods.pods[pod_ref(pod).uid] = essence(pod, NAMES)
        self.kubelet.give(pod, container, ids)

    async def prepare(self, resource: str, *ids: str) -> Record:
        return await self.start.prepare(resource, frozenset(ids))

    def edits(self, resource: str, *ids: str) -> Any:
        path = self.specs.folder / f"gpushare-slice-{slice_hash(resource, ids)}.json"
        (device,) = json.loads(path.read_text())["devices"]
        return device["containerEdits"]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("device_plugin.container_start._PATIENCE", 0.2)
    return Bench(tmp_path)


def pod(name: str, limits: dict[str, int], *shares: Share, **more: Any) -> dict[str, Any]:
    """A pod with one container 'c'; with ``shares`` it is placed."""
    uid = f"uid-{name}"
    containers = (ContainerPlacement("c", Role.APP, shares),)
    marks = {NAMES.placement: encode(Placement(uid, "n", containers))} if shares else {}
    limits_text = {key: str(count) for key, count in limits.items()}
    container = {"name": "c", "resources": {"limits": limits_text}, **more.get("container", {})}
    return {
        "metadata": {
            "namespace": "jupyter",
            "name": name,
            "uid": uid,
            "annotations": marks | more.get("marks", {}),
        },
        "spec": {"nodeName": "n", "containers": [container]},
        "status": more.get("status", {"phase": "Pending"}),
    }


def three(card: Card) -> Share:
    return Share(card.uuid, 3072, 0)


async def test_fault_16_equal_pods_get_each_its_own_card(bench: Bench) -> None:
    """Fault 16: of equal pods one was guessed by its size, so two could swap their cards."""
    bench.put(pod("bob", {MEMORY: 3}, three(SECOND)), {MEMORY: ["m3", "m4", "m5"]})
    bench.put(pod("alice", {MEMORY: 3}, three(FIRST)), {MEMORY: ["m0", "m1", "m2"]})
    alice, bob = await asyncio.gather(
        bench.prepare(MEMORY, "m2", "m1", "m0"), bench.prepare(MEMORY, "m3", "m4", "m5")
    )
    assert (alice.pod, alice.cards) == ("alice", (FIRST.uuid,))
    assert (bob.pod, bob.cards) == ("bob", (SECOND.uuid,))
    for ids, card in ((("m0", "m1", "m2"), FIRST), (("m3", "m4", "m5"), SECOND)):
        assert read_env(bench.edits(MEMORY, *ids), f"{KEY}IDX") == str(card.index)


async def test_fault_16_of_several_containers_each_has_its_own_amount(bench: Bench) -> None:
    """Fault 16: a pod's sum was compared with one container's ids, so such pods never started."""
    two = pod("two", {MEMORY: 3}, three(FIRST))
    two["spec"]["containers"].append({"name": "d", "resources": {"limits": {MEMORY: "5"}}})
    shares = (Share(FIRST.uuid, 5120, 0),)
    both = (
        ContainerPlacement("c", Role.APP, (three(FIRST),)),
        ContainerPlacement("d", Role.APP, shares),
    )
    two["metadata"]["annotations"][NAMES.placement] = encode(Placement("uid-two", "n", both))
    bench.put(two, {MEMORY: ["m0", "m1", "m2"]})
    bench.put(two, {MEMORY: [f"m{n}" for n in range(3, 8)]}, container="d")
    await bench.prepare(MEMORY, "m0", "m1", "m2")
    await bench.prepare(MEMORY, *(f"m{n}" for n in range(3, 8)))
    edits = bench.edits(MEMORY, *(f"m{n}" for n in range(3, 8)))
    assert read_env(edits, f"{KEY}POD") == "8"
    assert read_env(edits, f"{KEY}CONTAINER") == "5"


async def test_fault_17_a_failure_is_a_failure(bench: Bench) -> None:
    """Fault 17: without a card a container was started with NVIDIA_VISIBLE_DEVICES=no-gpu-has-…"""
    bench.put(pod("stray", {MEMORY: 3}), {MEMORY: ["m0", "m1", "m2"]})
    with pytest.raises(Refused) as refused:
        await bench.prepare(MEMORY, "m0", "m1", "m2")
    assert refused.value.code is Code.NOT_PLACED
    assert not list(bench.specs.folder.glob("gpushare-slice-*"))


async def test_fault_18_cards_are_known_by_uuid(bench: Bench) -> None:
    """Fault 18: the number of the device file, the driver's and 0..n-1 were taken for one another."""
    bench.put(pod("alice", {MEMORY: 3}, three(SECOND)), {MEMORY: ["m0", "m1", "m2"]})
    await bench.prepare(MEMORY, "m0", "m1", "m2")
    edits = bench.edits(MEMORY, "m0", "m1", "m2")
    assert edits["deviceNodes"] == [{"path": "/dev/nvidia0"}], "the A10 is the kernel's first card"
    assert read_env(edits, f"{KEY}IDX") == "1", "and the driver's second"
    assert read_env(edits, f"{KEY}DEV") == "22"
    assert read_env(edits, "GPUSHARE_CARDS") == SECOND.uuid


async def test_fault_25_a_container_s_own_variable_decides_nothing(bench: Bench) -> None:
    """Fault 25: NVIDIA_VISIBLE_DEVICES=all in a pod's spec gave it every card of the node."""
    own = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    bench.put(pod("greedy", {MEMORY: 3}, three(FIRST), container=own), {MEMORY: ["m0", "m1", "m2"]})
    await bench.prepare(MEMORY, "m0", "m1", "m2")
    edits = bench.edits(MEMORY, "m0", "m1", "m2")
    assert read_env(edits, "NVIDIA_VISIBLE_DEVICES") == "void", "CDI's edits beat the spec's env"
    assert edits["deviceNodes"] == [{"path": "/dev/nvidia1"}]


def test_fault_26_nothing_that_binds_is_open_to_the_network(chart: Chart) -> None:  # noqa: F811
    """Fault 26: the verbs were on a NodePort and on the host's network, without any question asked."""
    release = chart.render({**LEAST, "dialects": ["aliyun", "nano", "elastic", "hami"]})
    assert not [s for s in release.all("Service") if s["spec"].get("type") == "NodePort"]
    ports = [port for service in release.all("Service") for port in service["spec"]["ports"]]
    assert 39999 not in [port.get("targetPort") for port in ports]
    spec = release.pod_spec("Deployment", "gpushare-user-scheduler")
    assert not spec.get("hostNetwork")
    text = json.dumps(release.of("ConfigMap", "gpushare-extender")["data"])
    assert "127.0.0.1:39999" in text


async def test_a_pod_is_marked_when_its_container_starts(bench: Bench) -> None:
    """ASSIGNED turns to "true", once, and again after the API server was away."""
    bench.kube.answers = [ApiError(0, "away")]
    bench.put(pod("alice", {MEMORY: 3}, three(FIRST)), {MEMORY: ["m0", "m1", "m2"]})
    await bench.prepare(MEMORY, "m0", "m1", "m2")
    running = asyncio.create_task(bench.foreign.run())
    while len(bench.kube.patches) < 2:
        bench.kube.patched.clear()
        await asyncio.wait_for(bench.kube.patched.wait(), 30)
    running.cancel()
    path, body = bench.kube.patches[-1]
    assert path == "/api/v1/namespaces/jupyter/pods/alice/status"
    assert body == {"metadata": {"uid": "uid-alice", "annotations": {f"{KEY}ASSIGNED": "true"}}}


async def test_elastic_brings_the_cards_once(bench: Bench) -> None:
    """Of two resources on one container the first brings the cards, the other nothing that differs."""
    core, memory = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
    limits = {core: 2, memory: 3}
    ids = {core: ["p0", "p1"], memory: ["m0", "m1", "m2"]}
    bench.put(pod("alice", limits, Share(FIRST.uuid, 3, 2)), ids)
    await bench.prepare(core, "p0", "p1")
    await bench.prepare(memory, "m0", "m1", "m2")
    assert read_env(bench.edits(memory, "m0", "m1", "m2"), "GPU")
    assert "deviceNodes" in bench.edits(memory, "m0", "m1", "m2")
    assert list(bench.edits(core, "p0", "p1")) == ["env"]


async def test_other_amounts_than_asked_do_not_start(bench: Bench) -> None:
    bench.put(pod("liar", {MEMORY: 3}, Share(FIRST.uuid, 9216, 0)), {MEMORY: ["m0", "m1", "m2"]})
    with pytest.raises(Refused) as refused:
        await bench.prepare(MEMORY, "m0", "m1", "m2")
    assert refused.value.code is Code.OTHER_AMOUNTS
    bench.kubelet.holders.clear()
    bench.put(pod("odd", {MEMORY: 3}, three(FIRST)), {MEMORY: ["m0", "m1"]})
    with pytest.raises(Refused) as refused:
        await bench.prepare(MEMORY, "m0", "m1")
    assert refused.value.code is Code.OTHER_IDS


@pytest.mark.parametrize(
    ("at", "starts"), [("2025-06-01T00:00:00Z", True), ("2026-06-01T00:00:00Z", False)]
)
async def test_a_container_of_before_the_change_over_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, starts: bool
) -> None:
    """It holds the other system's ids, and has its annotations and no placement."""
    monkeypatch.setattr("device_plugin.container_start._PATIENCE", 0.0)
    bench = Bench(tmp_path, adopt_before=1_767_225_600.0)  # 2026-01-01
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    marks = {f"{KEY}IDX": "1", f"{KEY}POD": "2", f"{KEY}ASSIGNED": "true"}
    old = pod("old", {MEMORY: 2}, marks=marks, status={"conditions": [condition]})
    ids = ("GPU-bbbb-_-4", "GPU-bbbb-_-5")
    bench.put(old, {MEMORY: ids})
    if starts:
        assert (await bench.prepare(MEMORY, *ids)).cards == (SECOND.uuid,)
    else:
        with pytest.raises(Refused) as refused:
            await bench.prepare(MEMORY, *ids)
        assert refused.value.code is Code.NOT_PLACED


class Devices:
    def __init__(self, resource_name: str, *device_ids: str) -> None:
        self.resource_name, self.device_ids = resource_name, device_ids


def test_what_another_plugin_offers_is_left_to_it() -> None:
    gpu = "nvidia.com/gpu"
    theirs = [Devices(gpu, "GPU-1"), Devices(gpu, "GPU-2"), Devices(MEMORY, "m1")]
    assert offered_by_others(theirs, [gpu, MEMORY]) == {gpu}
    assert (
        offered_by_others([Devices(MEMORY, "m0"), Devices(MEMORY, "GPU-1-_-3")], [MEMORY]) == set()
    )
    assert offered_by_others([], [gpu]) == set()


def test_what_is_served() -> None:
    units = {r.name: r.units(SECOND) for r in served(NAMES, GIB)}
    assert units == {
        "gpushare/gpu-mem": 22,
        "gpushare/gpu-percent": 100,
        "aliyun.com/gpu-mem": 22,
        "elasticgpu.io/gpu-memory": 23028,
        "elasticgpu.io/gpu-core": 100,
        "nvidia.com/gpu": 10,
    }


def test_the_count_of_cards_is_written_where_it_is_missing() -> None:
    counts = {"aliyun.com/gpu-count": "2"}
    assert missing_counts({"status": {"capacity": counts, "allocatable": counts}}, counts) == {}
    assert missing_counts({"status": {"capacity": counts}}, counts) == {
        "status": {"allocatable": counts}
    }
