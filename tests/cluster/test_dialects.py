"""Manifests of other systems, on the cluster with their dialects switched on."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, watch

from gpushare import cards
from gpushare.cards import Card, NodeCards
from gpushare.names import SCHEDULER_NAME, Names
from gpushare.placement import Placement, decode
from playground.cluster import Cluster
from playground.install import install
from playground.simulated import MARK, SimulatedNode, make_nodes, remove_nodes, start_kwok
from tests.cluster.admitted import await_webhook
from tests.cluster.pods import IMAGE, Pods
from tests.cluster.session import scratch_namespace

DIALECTS = ("aliyun", "nano", "elastic", "hami")
NAMES = Names(dialects=DIALECTS)
ANNOTATION = "ALIYUN_COM_GPU_MEM_"
# All of its environment and the cards it sees, as one line; then it stays.
TELL = """
import json, os, signal, sys
try:
    import pynvml
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    seen = [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
except Exception:
    seen = []
print(json.dumps({"env": dict(os.environ), "cards": seen}), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.pause()
"""


@pytest.fixture(scope="module", autouse=True)
def dialects(api: client.ApiClient) -> Iterator[None]:
    """The product with the dialects on, as an admin would switch them on; off again at the end."""
    cluster = Cluster()
    install(
        cluster,
        settings=[f"dialects={{{','.join(DIALECTS)}}}", "scheduler.policy=binpack"],
    )
    await_resources(client.CoreV1Api(api))
    yield
    install(cluster)


def await_resources(core: client.CoreV1Api) -> None:
    """Wait until both nodes offer and publish the dialects' resources."""
    wanted = [resource.name for resource in NAMES.foreign if resource.counted]

    def offers(node: client.V1Node) -> bool:
        have = node.status.allocatable
        published = cards.decode((node.metadata.annotations or {}).get(NAMES.cards, "{}"))
        served = all(have.get(name, "0") != "0" for name in wanted)
        return served and set(published.also) == set(wanted)

    left = {node.metadata.name for node in core.list_node().items}
    for event in watch.Watch().stream(core.list_node, timeout_seconds=120):
        node = event["object"]
        if node.metadata.name in left and offers(node):
            left.discard(node.metadata.name)
        if not left:
            return
    raise AssertionError(f"the dialects' resources are not offered by {left}")


def template(limits: dict[str, int], *, real: bool = True, **annotations: str) -> dict[str, Any]:
    """A pod's template with one container that asks so; not ``real``: on a simulated node."""
    spec: dict[str, Any] = {
        "schedulerName": SCHEDULER_NAME,
        "terminationGracePeriodSeconds": 3,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["python3", "-c", TELL],
                "resources": {"limits": {name: str(count) for name, count in limits.items()}},
            }
        ],
    }
    if not real:
        spec["nodeSelector"] = {MARK: "fake"}
        spec["tolerations"] = [{"key": MARK, "operator": "Exists"}]
    return {"metadata": {"annotations": dict(annotations)}, "spec": spec}


def pod(name: str, limits: dict[str, int], **more: Any) -> dict[str, Any]:
    found = template(limits, **more)
    return {
        "apiVersion": "v1", "kind": "Pod", **found, "metadata": {**found["metadata"], "name": name},
    }  # fmt: skip


def placement(obj: client.V1Pod) -> Placement:
    return decode(obj.metadata.annotations[NAMES.placement])


def told(pods: Pods, name: str) -> Any:
    """What the container said of its environment and cards."""
    return json.loads(next(pods.log_lines(name, "main", timeout=60)))


def card_of(core: client.CoreV1Api, obj: client.V1Pod) -> tuple[Card, ...]:
    """The cards of the pod, as its node publishes them."""
    node = core.read_node(obj.spec.node_name)
    known = {c.uuid: c for c in cards.decode(node.metadata.annotations[NAMES.cards]).cards}
    return tuple(known[share.card] for share in placement(obj).containers[0].shares)


def test_nodes_say_how_many_cards_they_have(api: client.ApiClient) -> None:
    core = client.CoreV1Api(api)
    for name, count, units in (("t4-1", "2", "30"), ("a10-1", "4", "88")):
        status = core.read_node(name).status
        for part in (status.capacity, status.allocatable):
            assert part["aliyun.com/gpu-count"] == count
            assert part["aliyun.com/gpu-mem"] == units


def test_the_tutorial_s_stateful_set_binpacks_onto_one_card(
    api: client.ApiClient, pods: Pods
) -> None:
    """Three replicas of ``aliyun.com/gpu-mem: 3``, with all that their system's tools read."""
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    labels = {"app": "binpack-1"}
    found = template({"aliyun.com/gpu-mem": 3})
    found["metadata"]["labels"] = labels
    apps.create_namespaced_stateful_set(
        pods.namespace,
        {
            "metadata": {"name": "binpack-1", "labels": labels},
            "spec": {
                "replicas": 3,
                "serviceName": "binpack-1",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": found,
            },
        },
    )
    try:
        used = set()
        for name in (f"binpack-1-{i}" for i in range(3)):
            marked = pods.await_pod(
                name,
                "running and marked",
                lambda p: (p.metadata.annotations or {}).get(f"{ANNOTATION}ASSIGNED") == "true",
                timeout=120,
            )
            pods.await_running(name)
            annotations = marked.metadata.annotations
            (card,) = card_of(core, marked)
            used.add(card.uuid)
            assert annotations[f"{ANNOTATION}IDX"] == str(card.index)
            assert annotations[f"{ANNOTATION}DEV"] == str(card.memory // 1024)
            assert annotations[f"{ANNOTATION}POD"] == "3"
            assert int(annotations[f"{ANNOTATION}ASSUME_TIME"]) > 1_700_000_000 * 10**9
            seen = told(pods, name)
            assert seen["cards"] == [card.uuid]
            assert {k: v for k, v in seen["env"].items() if k.startswith(ANNOTATION)} == {
                f"{ANNOTATION}IDX": str(card.index),
                f"{ANNOTATION}DEV": str(card.memory // 1024),
                f"{ANNOTATION}POD": "3",
                f"{ANNOTATION}CONTAINER": "3",
            }
    finally:
        apps.delete_namespaced_stateful_set("binpack-1", pods.namespace)
    assert len(used) == 1, "three times 3 GiB fit on one card"


def check_nano(pod: client.V1Pod, on: tuple[Card, ...], env: dict[str, str], count: int) -> None:
    annotations = pod.metadata.annotations
    assert annotations["nano-gpu/assume"] == pod.metadata.labels["nano-gpu/assume"] == "true"
    assert annotations["nano-gpu/container-main"] == ",".join(str(card.index) for card in on)
    assert env["ku"] == str(count)
    assert len(env["GPU"]) == 8


def check_elastic(pod: client.V1Pod, on: tuple[Card, ...], env: dict[str, str], _n: int) -> None:
    annotations = pod.metadata.annotations
    assert annotations["elasticgpu.io/assumed"] == "true"
    assert pod.metadata.labels["elasticgpu.io/assumed"] == "true"
    assert annotations["elasticgpu.io/container-main"] == ",".join(str(card.index) for card in on)
    assert len(env["GPU"]) == 8


def check_hami(pod: client.V1Pod, on: tuple[Card, ...], env: dict[str, str], _n: int) -> None:
    annotations = pod.metadata.annotations
    assert annotations["hami.io/vgpu-node"] == pod.spec.node_name
    devices = annotations["hami.io/vgpu-devices-allocated"]
    assert [part.split(",")[0] for part in devices.rstrip(";").split(":") if part] == [
        card.uuid for card in on
    ]
    shares = placement(pod).containers[0].shares
    assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{shares[0].mib}m"
    assert env["CUDA_DEVICE_SM_LIMIT"] == str(shares[0].percent)


def check_aliyun(pod: client.V1Pod, on: tuple[Card, ...], env: dict[str, str], count: int) -> None:
    annotations = pod.metadata.annotations
    assert annotations[f"{ANNOTATION}IDX"] == env[f"{ANNOTATION}IDX"] == str(on[0].index)
    assert annotations[f"{ANNOTATION}POD"] == env[f"{ANNOTATION}CONTAINER"] == str(count)


def check_ours(pod: client.V1Pod, on: tuple[Card, ...], env: dict[str, str], _n: int) -> None:
    assert not [key for key in env if key.startswith(("ALIYUN", "CUDA_DEVICE", "ku"))]


Check = Callable[[client.V1Pod, tuple[Card, ...], dict[str, str], int], None]
# (what is asked, the checks of what is said)
KINDS: tuple[tuple[Callable[[random.Random], dict[str, int]], Check], ...] = (
    (lambda r: {"aliyun.com/gpu-mem": r.randint(1, 7)}, check_aliyun),
    (lambda r: {"nano-gpu/gpu-percent": r.choice((10, 25, 40))}, check_nano),
    (
        lambda r: {"elasticgpu.io/gpu-core": r.randint(5, 30), "elasticgpu.io/gpu-memory": 2048},
        check_elastic,
    ),
    (lambda r: {"elasticgpu.io/gpu-memory": r.choice((1000, 3000))}, check_elastic),
    (
        lambda r: {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 20},
        check_hami,
    ),
    (lambda r: {"gpushare/gpu-mem": r.randint(1, 6)}, check_ours),
    (lambda r: {"gpushare/gpu-percent": r.choice((10, 30))}, check_ours),
)


def test_what_each_dialect_tells_a_container(api: client.ApiClient, pods: Pods) -> None:
    """Two pods of each kind, at once, on the real nodes."""
    core, dice = client.CoreV1Api(api), random.Random(7)
    made = []
    for i, (ask, check) in enumerate([*KINDS, *KINDS]):
        limits = ask(dice)
        made.append((pods.create(pod(f"kind-{i}", limits)), limits, check))
    for name, limits, check in made:
        running = pods.await_running(name, timeout=180)
        seen, on = told(pods, name), card_of(core, running)
        assert seen["cards"] == [card.uuid for card in on], name
        check(running, on, seen["env"], next(iter(limits.values())))


def test_nobody_else_may_tell_cards(api: client.ApiClient, pods: Pods) -> None:
    """Tenants may not write what tools believe: on their own pods neither at birth nor later."""
    forged = pod("forged", {"aliyun.com/gpu-mem": 1}, **{f"{ANNOTATION}IDX": "0"})
    # Even an admin is told, as for placements: only the extender writes them.
    with pytest.raises(client.ApiException, match="written by gpushare alone"):
        pods.create(forged)
    pods.create(pod("plain", {"aliyun.com/gpu-mem": 1}))
    pods.await_running("plain", timeout=120)
    body = {"metadata": {"annotations": {f"{ANNOTATION}POD": "0"}}}
    with pytest.raises(client.ApiException, match="written by gpushare alone"):
        pods.core.patch_namespaced_pod("plain", pods.namespace, body)


def test_a_card_named_in_the_map_of_unhealthy_cards_takes_nothing(
    api: client.ApiClient, pods: Pods
) -> None:
    """All cards of a node but one are named, with the faults that others tripped over."""
    core = client.CoreV1Api(api)
    name = "unhealthy-gpu-t4-1"
    core.create_namespaced_config_map(
        "kube-system", {"metadata": {"name": name}, "data": {"gpus": " 1, x,"}}
    )
    try:
        limits = {"aliyun.com/gpu-mem": 10}
        for i in range(2):
            manifest = pod(f"sick-{i}", limits)
            manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "t4-1"}
            pods.create(manifest)
        pods.await_any("running", lambda p: p.status.phase == "Running", timeout=120)
        pods.await_any(
            "refused",
            lambda p: any(
                c.type == "PodScheduled" and c.status == "False" for c in p.status.conditions or []
            ),
            timeout=120,
        )
        running = [p for p in core.list_namespaced_pod(pods.namespace).items if p.spec.node_name]
        assert [card.index for p in running for card in card_of(core, p)] == [0]
    finally:
        core.delete_namespaced_config_map(name, "kube-system")


ELASTIC = "elasticgpu.io"


@pytest.fixture
def admitted(api: client.ApiClient) -> Iterator[Pods]:
    """Pods that the webhook looks at: it is what turns a claim into limits."""
    with scratch_namespace(api, "claims", admission=True) as name:
        found = Pods(api, name)
        await_webhook(found)
        yield found


def test_a_claim_binds_with_its_pod_and_is_released_after_it(
    api: client.ApiClient, admitted: Pods
) -> None:
    """The kinds on the real API server: schemas, status subresources, finalizers, the webhook."""
    custom, pods = client.CustomObjectsApi(api), admitted
    cards_there = custom.list_cluster_custom_object(ELASTIC, "v1alpha1", "gpus")["items"]
    assert len(cards_there) >= 6, "one for each card"
    assert {card["status"]["state"] for card in cards_there} == {"Healthy"}
    own = f"shared-{pods.namespace}"
    kinds = {"apiVersion": f"{ELASTIC}/v1alpha1"}
    egpu_class = {
        **kinds,
        "kind": "ElasticGPUClass",
        "metadata": {"name": own},
        "provisioner": "gpushare.provisioner.elasticgpu.io",
    }
    custom.create_cluster_custom_object(ELASTIC, "v1alpha1", "elasticgpuclasses", egpu_class)
    claim: dict[str, Any] = {
        **kinds,
        "kind": "ElasticGPUClaim",
        "metadata": {"name": "small"},
        "spec": {
            "elasticGPUClassName": own,
            "resources": {"requests": {f"{ELASTIC}/gpu-memory": 4096, f"{ELASTIC}/gpu-core": 20}},
        },
    }
    place = (ELASTIC, "v1alpha1", pods.namespace, "elasticgpuclaims")
    with pytest.raises(client.ApiException, match="elasticGPUClassName"):
        custom.create_namespaced_custom_object(*place, {**claim, "spec": {}})
    custom.create_namespaced_custom_object(*place, claim)
    await_claim(custom, pods.namespace, "Pending")
    manifest = pod("claimer", {}, **{f"egpuc.{ELASTIC}/main": "small"})
    pods.create(manifest)
    running = pods.await_running("claimer", timeout=180)
    limits = running.spec.containers[0].resources.limits
    assert (limits[f"{ELASTIC}/gpu-memory"], limits[f"{ELASTIC}/gpu-core"]) == ("4096", "20")
    bound = await_claim(custom, pods.namespace, "Bound")
    made = custom.get_cluster_custom_object(
        ELASTIC, "v1alpha1", "elasticgpus", bound["spec"]["elasticGPUName"]
    )
    (share,) = placement(running).containers[0].shares
    assert made["spec"]["gpuShare"]["gpuName"] == share.card.lower()
    assert made["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    custom.delete_namespaced_custom_object(*place, "small")
    leaving = custom.get_namespaced_custom_object(*place, "small")
    assert leaving["metadata"]["deletionTimestamp"], "its pod still runs"
    pods.delete("claimer")
    pods.await_gone("claimer")
    for event in watch.Watch().stream(
        custom.list_namespaced_custom_object, *place, timeout_seconds=60
    ):
        if event["type"] == "DELETED":
            break
    with pytest.raises(client.ApiException, match="404"):
        custom.get_namespaced_custom_object(*place, "small")
    custom.delete_cluster_custom_object(ELASTIC, "v1alpha1", "elasticgpuclasses", own)


def await_claim(custom: client.CustomObjectsApi, namespace: str, phase: str) -> Any:
    stream = watch.Watch().stream(
        custom.list_namespaced_custom_object,
        ELASTIC,
        "v1alpha1",
        namespace,
        "elasticgpuclaims",
        timeout_seconds=90,
    )
    for event in stream:
        if event["object"].get("status", {}).get("phase") == phase:
            return event["object"]
    raise AssertionError(f"the claim is not {phase} after 90 s")


SIMULATED = 12


@pytest.fixture
def simulated(api: client.ApiClient) -> Iterator[None]:
    """Simulated nodes beside the real ones, which serve the dialects too."""
    cluster = Cluster()
    start_kwok(cluster)
    mine = cluster.api()

    class Node(SimulatedNode):
        def manifest(self, names: Names | None = None) -> dict[str, Any]:
            found = super().manifest(names)
            served = tuple(r.name for r in NAMES.foreign if r.counted)
            found["metadata"]["annotations"][NAMES.cards] = cards.encode(
                NodeCards(self.cards, also=served)
            )
            for resource in NAMES.foreign:
                if resource.counted:
                    per_card = [
                        resource.per_card
                        if resource.unit is None
                        else resource.unit.units(c.memory)
                        for c in self.cards
                    ]
                    found["status"]["allocatable"][resource.name] = str(sum(per_card))
            found["status"]["capacity"] = found["status"]["allocatable"]
            return found

    nodes = [
        Node(
            f"mixed-{n}",
            "sim",
            tuple(
                Card(f"GPU-mixed-{n}-{i}", i, i, model, memory)
                for i, (model, memory) in enumerate(
                    [("Tesla T4", 15360), ("Tesla T4", 15360), ("NVIDIA A10", 23028)]
                )
            ),
            tainted=True,
        )
        for n in range(SIMULATED)
    ]
    make_nodes(mine, nodes)
    yield
    remove_nodes(mine)


@pytest.mark.usefixtures("simulated")
def test_two_hundred_pods_of_all_dialects(api: client.ApiClient, pods: Pods) -> None:
    """Never more on a card than it has, whoever asked how; and real containers know their cards."""
    core, dice = client.CoreV1Api(api), random.Random(4711)
    asked, real = {}, {}
    for i in range(200):
        ask, check = dice.choice(KINDS)
        name, limits, on_real = f"mixed-{i}", ask(dice), i % 10 == 0
        pods.create(pod(name, limits, real=on_real))
        asked[name] = limits
        if on_real:
            real[name] = check
    await_settled(core, pods.namespace, set(asked))
    listed = core.list_namespaced_pod(pods.namespace).items
    known = {
        card.uuid: card
        for node in core.list_node().items
        if NAMES.cards in (node.metadata.annotations or {})
        for card in cards.decode(node.metadata.annotations[NAMES.cards]).cards
    }
    mib: Counter[str] = Counter()
    percent: Counter[str] = Counter()
    bound = [p for p in listed if p.spec.node_name]
    for one in bound:
        for uuid, (held, share) in placement(one).footprint().items():
            mib[uuid] += held
            percent[uuid] += share
    assert len(bound) >= 150, "most of them fit"
    assert all(mib[uuid] <= known[uuid].memory for uuid in mib)
    assert all(percent[uuid] <= 100 for uuid in percent)
    assert max(mib[uuid] / known[uuid].memory for uuid in mib) > 0.7, "cards are really shared"
    for name, check in real.items():
        if not any(p.metadata.name == name for p in bound):
            continue
        running = pods.await_running(name, timeout=240)
        seen, on = told(pods, name), card_of(core, running)
        assert seen["cards"] == [card.uuid for card in on], name
        check(running, on, seen["env"], next(iter(asked[name].values())))


def await_settled(core: client.CoreV1Api, namespace: str, names: set[str]) -> None:
    """Wait until each pod is bound, or was told that it fits nowhere."""
    left, deadline = set(names), time.monotonic() + 300
    # The server ends the watch of a client that is too slow for it: then it begins anew.
    while left and (rest := int(deadline - time.monotonic())) > 0:
        stream = watch.Watch().stream(core.list_namespaced_pod, namespace, timeout_seconds=rest)
        for event in stream:
            found = event["object"]
            if any(c.type == "PodScheduled" for c in found.status.conditions or []):
                left.discard(found.metadata.name)
            if not left:
                return
    assert not left, f"not decided: {sorted(left)[:5]}"
