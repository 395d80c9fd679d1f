from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.container_start import ContainerStart, in_use
from device_plugin.delivery import Delivery, Way
from device_plugin.edits import read_env
from device_plugin.holders import Holder
from device_plugin.ids import slice_hash
from device_plugin.kube import ApiError
from device_plugin.kubelet_state import Seen
from device_plugin.node_specs import NodeSpecs
from device_plugin.pod import essence
from device_plugin.refusal import Code, Refused
from device_plugin.slice_specs import Record, SliceSpecs
from device_plugin.verification import Node
from gpushare.cards import Card
from gpushare.placement import ContainerPlacement, Share
from gpushare.pods import pod_ref
from gpushare.request import Role

from .making import MEM, NAMES, PERCENT, T4_0, T4_1, app, container, node, pod

THREE_0, THREE_1 = Share(T4_0.uuid, 3072, 0), Share(T4_1.uuid, 3072, 0)


class Kubelet:
    def __init__(self) -> None:
        self.holders: list[Holder] = []
        self.inits: list[Holder] = []
        self.blind = False

    def give(
        self, of: Mapping[str, Any], name: str, ids: Mapping[str, Sequence[str]], init: bool = False
    ) -> None:
        ref = pod_ref(of)
        sets = {resource: frozenset(some) for resource, some in ids.items()}
        holder = Holder(name, sets, ref.namespace, ref.name, ref.uid)
        (self.inits if init else self.holders).append(holder)

    async def see(self) -> Seen:
        await asyncio.sleep(0)
        if self.blind:
            return Seen(None, None, "it is away")
        listed = [Holder(h.container, h.ids, h.namespace, h.name) for h in self.holders]
        entries = [Holder(h.container, h.ids, uid=h.uid) for h in (*self.inits, *self.holders)]
        return Seen(listed, entries)


class Pods:
    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.problem = ""

    def put(self, *pods: dict[str, Any]) -> None:
        for one in pods:
            self.pods[pod_ref(one).uid] = essence(one, NAMES)

    def alive(self) -> frozenset[str] | None:
        return None if self.problem else frozenset(self.pods)

    async def find(self, holder: Holder) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        if self.problem:
            raise ApiError(0, self.problem)
        return self.pods.get(holder.uid)


class Bench:
    """A ContainerStart with everything around it in hand."""

    def __init__(self, folder: Path, cards: Sequence[Card] = (T4_0, T4_1)) -> None:
        self.kubelet, self.pods = Kubelet(), Pods()
        self.node: Node = node(*cards)
        self.specs = SliceSpecs(folder, "gpushare")
        self.pauses = 0
        self.on_pause: list[Any] = []
        self.start = ContainerStart(
            lambda: self.node,
            self.kubelet,
            self.pods,
            self.specs,
            Delivery("gpushare/slice", Way.AUTO, NodeSpecs([folder], "nvidia.com/gpu")),
            pause=self._pause,
        )

    async def _pause(self, seconds: float) -> None:
        self.pauses += 1
        if self.on_pause:
            self.on_pause.pop(0)()
        if self.pauses > 3:
            await asyncio.sleep(seconds)

    async def prepare(self, *ids: str, resource: str = MEM) -> Record:
        return await self.start.prepare(resource, frozenset(ids))

    async def refused(self, *ids: str, resource: str = MEM) -> Refused:
        with pytest.raises(Refused) as caught:
            await self.prepare(*ids, resource=resource)
        return caught.value

    def env(self, name: str, *ids: str, resource: str = MEM) -> str | None:
        path = self.specs.folder / f"gpushare-slice-{slice_hash(resource, ids)}.json"
        import json

        (device,) = json.loads(path.read_text())["devices"]
        return read_env(device["containerEdits"], name)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("device_plugin.container_start._PATIENCE", 0.2)
    return Bench(tmp_path)


def alice(*shares: Share, mem: int = 3, **more: Any) -> dict[str, Any]:
    return pod(container("main", mem), placed=[app("main", *(shares or (THREE_1,)))], **more)


async def test_the_card_of_the_placement_is_written_not_that_of_the_ids(bench: Bench) -> None:
    one = alice(THREE_1)
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ["m0", "m1", "m2"]})
    record = await bench.prepare("m2", "m0", "m1")
    assert record.cards == (T4_1.uuid,)
    assert bench.env("GPUSHARE_CARDS", "m0", "m1", "m2") == T4_1.uuid


async def test_two_equal_pods_at_the_same_moment_get_each_its_own_card(bench: Bench) -> None:
    pods = [
        alice(share, name=name, uid=f"uid-{name}")
        for name, share in (("alice", THREE_0), ("bob", THREE_1))
    ]
    bench.pods.put(*pods)
    for i, one in enumerate(pods):
        bench.kubelet.give(one, "main", {MEM: [f"m{3 * i + n}" for n in range(3)]})
    records = await asyncio.gather(bench.prepare("m0", "m1", "m2"), bench.prepare("m3", "m4", "m5"))
    assert [(r.pod, r.cards) for r in records] == [("alice", (T4_0.uuid,)), ("bob", (T4_1.uuid,))]


async def test_a_card_is_never_given_away_twice_even_at_the_same_moment(bench: Bench) -> None:
    eight = Share(T4_0.uuid, 8192, 0)
    pods = [alice(eight, mem=8, name=n, uid=f"uid-{n}") for n in ("alice", "bob")]
    bench.pods.put(*pods)
    ids = [[f"m{8 * i + n}" for n in range(8)] for i in range(2)]
    for one, some in zip(pods, ids, strict=True):
        bench.kubelet.give(one, "main", {MEM: some})
    results = await asyncio.gather(*(bench.prepare(*some) for some in ids), return_exceptions=True)
    refused = [r for r in results if isinstance(r, Refused)]
    assert [r.code for r in refused] == [Code.FULL_CARD]
    assert len(bench.specs.records) == 1


async def test_room_comes_back_when_the_kubelet_says_that_the_ids_are_free(bench: Bench) -> None:
    whole = Share(T4_0.uuid, 15360, 0)
    first, second = (alice(whole, mem=15, name=n, uid=f"uid-{n}") for n in ("alice", "bob"))
    one, other = [f"m{n}" for n in range(15)], [f"m{n}" for n in range(15, 30)]
    bench.pods.put(first, second)
    bench.kubelet.give(first, "main", {MEM: one})
    await bench.prepare(*one)
    bench.kubelet.give(second, "main", {MEM: other})
    assert (await bench.refused(*other)).code is Code.FULL_CARD
    bench.kubelet.holders.pop(0)
    del bench.pods.pods["uid-alice"]
    assert (await bench.prepare(*other)).pod == "bob"
    assert len(list(bench.specs.folder.glob("*.json"))) == 1


async def test_a_restarted_container_is_served_anew(bench: Bench) -> None:
    one = alice()
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ["m0", "m1", "m2"]})
    for _ in range(2):
        await bench.prepare("m0", "m1", "m2")
        for path in bench.specs.folder.glob("*.json"):
            path.unlink()  # a reboot: the folder is on a tmpfs
    await bench.prepare("m0", "m1", "m2")
    assert bench.env("GPUSHARE_CARDS", "m0", "m1", "m2") == T4_1.uuid


@pytest.mark.parametrize("order", [(MEM, PERCENT), (PERCENT, MEM)])
async def test_both_resources_on_one_container(bench: Bench, order: tuple[str, str]) -> None:
    ids = {MEM: ["m0", "m1", "m2"], PERCENT: [f"p{n}" for n in range(25)]}
    share = Share(T4_0.uuid, 3072, 25)
    one = pod(container("main", 3, 25), placed=[app("main", share)])
    bench.pods.put(one)
    bench.kubelet.give(one, "main", ids)
    for resource in order:
        await bench.prepare(*ids[resource], resource=resource)
    assert bench.env("NVIDIA_VISIBLE_DEVICES", *ids[MEM]) == T4_0.uuid
    assert bench.env("GPU_PERCENT_LIMIT", *ids[MEM]) == "25"
    assert bench.env("NVIDIA_VISIBLE_DEVICES", *ids[PERCENT], resource=PERCENT) is None
    grants = {bench.env("GPUSHARE_GRANT", *ids[r], resource=r) for r in order}
    assert len(grants) == 1


async def test_the_percent_half_is_refused_when_the_whole_is_wrong(bench: Bench) -> None:
    ids = {MEM: ["m0", "m1", "m2"], PERCENT: [f"p{n}" for n in range(25)]}
    one = pod(container("main", 3, 25), placed=[app("main", Share(T4_0.uuid, 9999, 25))])
    bench.pods.put(one)
    bench.kubelet.give(one, "main", ids)
    for resource in (MEM, PERCENT):
        assert (await bench.refused(*ids[resource], resource=resource)).code is Code.OTHER_AMOUNTS
    assert not list(bench.specs.folder.glob("*.json"))


async def test_room_that_the_scheduler_saw_before_us_is_waited_for(bench: Bench) -> None:
    whole = Share(T4_0.uuid, 15360, 0)
    first, second = (alice(whole, mem=15, name=n, uid=f"uid-{n}") for n in ("alice", "bob"))
    one, other = [f"m{n}" for n in range(15)], [f"m{n}" for n in range(15, 30)]
    bench.pods.put(first, second)
    bench.kubelet.give(first, "main", {MEM: one})
    await bench.prepare(*one)
    bench.kubelet.give(second, "main", {MEM: other})

    def alice_is_gone() -> None:
        bench.kubelet.holders.pop(0)
        del bench.pods.pods["uid-alice"]

    bench.on_pause = [alice_is_gone]
    assert (await bench.prepare(*other)).pod == "bob"
    assert bench.pauses == 1


async def test_the_ids_of_a_pod_that_has_just_ended_are_the_next_ones(bench: Bench) -> None:
    whole = Share(T4_0.uuid, 15360, 0)
    first, second = (alice(whole, mem=15, name=n, uid=f"uid-{n}") for n in ("alice", "bob"))
    ids = [f"m{n}" for n in range(15)]
    bench.pods.put(first, second)
    bench.kubelet.give(first, "main", {MEM: ids})
    await bench.prepare(*ids)
    bench.kubelet.holders.pop(0)
    bench.kubelet.give(second, "main", {MEM: ids})
    assert (await bench.prepare(*ids)).pod == "bob"
    assert [record.pod for record in bench.specs.records.values()] == ["bob"]


async def test_ids_that_nobody_holds_yet_are_waited_for(bench: Bench) -> None:
    one = alice()
    bench.pods.put(one)
    bench.on_pause = [lambda: bench.kubelet.give(one, "main", {MEM: ["m0", "m1", "m2"]})]
    assert (await bench.prepare("m0", "m1", "m2")).pod == "alice"
    assert bench.pauses == 1


async def test_ids_that_nobody_holds_are_refused_in_the_end(bench: Bench) -> None:
    refused = await bench.refused("m0")
    assert refused.code is Code.NOT_FOUND
    assert "tries again by itself" in str(refused)


async def test_a_subset_of_somebodys_ids_is_nobodys(bench: Bench) -> None:
    one = alice()
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ["m0", "m1", "m2"]})
    assert (await bench.refused("m0", "m1")).code is Code.NOT_FOUND


async def test_a_namesake_of_a_pod_that_is_gone_is_another_pod(bench: Bench) -> None:
    """Jupyter uses names again: the uid in the checkpoint says which one starts."""
    old, new = (alice(share, uid=uid) for share, uid in ((THREE_0, "uid-1"), (THREE_1, "uid-2")))
    bench.pods.put(old)
    bench.kubelet.give(new, "main", {MEM: ["m0", "m1", "m2"]})
    assert (await bench.refused("m0", "m1", "m2")).code is Code.NOT_FOUND
    bench.pods.put(new)
    assert (await bench.prepare("m0", "m1", "m2")).cards == (T4_1.uuid,)


async def test_a_silent_kubelet_or_api_server_lets_nothing_start(bench: Bench) -> None:
    bench.kubelet.blind = True
    assert (await bench.refused("m0")).code is Code.NO_KUBELET
    bench.kubelet.blind = False
    one = alice()
    bench.kubelet.give(one, "main", {MEM: ["m0", "m1", "m2"]})
    bench.pods.problem = "connection refused"
    refused = await bench.refused("m0", "m1", "m2")
    assert refused.code is Code.NO_API
    assert "connection refused" in str(refused)


async def test_a_folder_that_cannot_be_written_is_named(bench: Bench) -> None:
    one = alice()
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ["m0", "m1", "m2"]})
    bench.specs.folder = bench.specs.folder / "missing"
    refused = await bench.refused("m0", "m1", "m2")
    assert refused.code is Code.NOT_WRITTEN
    assert "missing" in str(refused)


def with_init(**status: Any) -> dict[str, Any]:
    placed: list[ContainerPlacement] = [app("main", THREE_0), app("prep", THREE_1, role=Role.INIT)]
    statuses = [{"name": name, "state": state} for name, state in status.items()]
    return pod(
        container("main", 3),
        inits=[container("prep", 3)],
        placed=placed,
        status={"phase": "Pending", "initContainerStatuses": statuses},
    )


async def test_an_init_container_and_then_the_app_container_with_the_same_ids(bench: Bench) -> None:
    ids = ["m0", "m1", "m2"]
    one = with_init()
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ids})
    bench.kubelet.give(one, "prep", {MEM: ids}, init=True)
    assert (await bench.prepare(*ids)).container == "prep"
    # The init container has ended, and the API server hears of it only a moment later.
    done = {"terminated": {"exitCode": 0}}
    bench.on_pause = [lambda: None, lambda: bench.pods.put(with_init(prep=done))]
    assert (await bench.prepare(*ids)).container == "main"
    assert bench.pauses == 2


async def test_what_cannot_be_told_apart_does_not_start(bench: Bench) -> None:
    ids = ["m0", "m1", "m2"]
    one = with_init(prep={"running": {}})
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ids})
    bench.kubelet.give(one, "prep", {MEM: ids}, init=True)
    await bench.prepare(*ids)
    assert (await bench.refused(*ids)).code is Code.UNDECIDED


async def test_a_failed_init_container_starts_again_on_its_own_card(bench: Bench) -> None:
    ids = ["m0", "m1", "m2"]
    one = with_init()
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ids})
    bench.kubelet.give(one, "prep", {MEM: ids}, init=True)
    await bench.prepare(*ids)
    bench.pods.put(with_init(prep={"terminated": {"exitCode": 1}}))
    record = await bench.prepare(*ids)
    assert (record.container, record.cards) == ("prep", (T4_1.uuid,))


async def test_hooks_may_wait_add_and_refuse(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    asked: list[str] = []

    async def hook(of: Mapping[str, Any], placed: ContainerPlacement) -> dict[str, Any]:
        asked.append(placed.name)
        if len(asked) == 1:
            raise Refused(Code.NOT_NOW, problem="memory is being brought back")
        return {"env": ["MORE=1"]}

    bench.start._hook = hook
    one = alice()
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ["m0", "m1", "m2"]})
    assert "brought back" in str(await bench.refused("m0", "m1", "m2"))
    await bench.prepare("m0", "m1", "m2")
    assert bench.env("MORE", "m0", "m1", "m2") == "1"


async def test_a_card_that_falls_ill_while_a_hook_waits_is_not_given(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def hook(of: Mapping[str, Any], placed: ContainerPlacement) -> dict[str, Any]:
        from dataclasses import replace

        bench.node = node(T4_0, replace(T4_1, health="XID 79"))
        return {}

    bench.start._hook = hook
    one = alice()
    bench.pods.put(one)
    bench.kubelet.give(one, "main", {MEM: ["m0", "m1", "m2"]})
    assert (await bench.refused("m0", "m1", "m2")).code is Code.SICK_CARD
    assert not bench.specs.records


uids = st.sampled_from(["u1", "u2", "u3"])
some_ids = st.sets(st.sampled_from(["m1", "m2", "m3", "m4"]), min_size=1).map(frozenset)
holders = st.lists(st.builds(lambda u, i: Holder("c", {MEM: i}, uid=u), uids, some_ids), max_size=3)


@given(
    st.none() | holders,
    st.none() | holders,
    st.dictionaries(st.sampled_from("abc"), uids, max_size=3),
    st.none() | st.frozensets(uids),
)
def test_nothing_that_may_be_in_use_counts_as_unused(
    listed: list[Holder] | None,
    entries: list[Holder] | None,
    owners: dict[str, str],
    alive: frozenset[str] | None,
) -> None:
    records = {digest: Record(uid, "n", "p", "c", (), {}) for digest, uid in owners.items()}
    used = in_use(Seen(listed, entries), records, alive)
    for holder in listed or ():
        assert slice_hash(MEM, holder.ids[MEM]) in used
    for holder in entries or ():
        if listed is None or alive is None or holder.uid in alive:
            assert slice_hash(MEM, holder.ids[MEM]) in used
    if entries is None:
        assert {d for d, uid in owners.items() if alive is None or uid in alive} <= used
    if listed is None and entries is None:
        assert used == frozenset(records)
