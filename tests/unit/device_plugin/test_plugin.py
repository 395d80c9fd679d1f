"""The whole daemon: simulated cards, a kubelet and an API server at their edges."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from traitlets.config import Config

from device_plugin.api import deviceplugin_pb2 as api_messages
from device_plugin.app import DevicePlugin
from device_plugin.edits import read_env
from device_plugin.enforcement.start_gate import StartGate
from device_plugin.ids import slice_hash
from device_plugin.kubelet_state import KubeletState
from device_plugin.plugin import Plugin
from device_plugin.pods import Pods
from device_plugin.service import Service
from gpushare.cards import decode
from gpushare.placement import Share
from playground.cards import cdi_spec
from playground.simulated_cards import SimulatedCards

from .api_server import ApiServer
from .fake_kubelet import FakeKubelet, Grant
from .making import MEM, NODE, PERCENT, app, container, pod
from .waiting import until

NODE_PATH = f"/api/v1/nodes/{NODE}"


class Machine:
    """A node: its folders, kubelet, cards and API server, and our daemon on it."""

    def __init__(
        self, root: Path, tmp_path: Path, driver_root: Path, api: ApiServer, cards: SimulatedCards
    ) -> None:
        self.api, self.cards = api, cards
        self.kubelet = FakeKubelet(root)
        self.cdi = tmp_path / "cdi"
        self.cdi.mkdir()
        self.settings = DevicePlugin(
            config=Config(Enforcement={"state_dir": str(tmp_path / "run")}),
            node_name=NODE,
            driver_root=str(driver_root),
            cdi_dirs=[str(self.cdi)],
            cdi_spec_dir=str(self.cdi),
            kubelet_dir=str(self.kubelet.folder),
            podresources_socket=str(self.kubelet.pod_resources),
            state_dir=str(tmp_path / "run"),
            status_address="127.0.0.1:0",
            probe_seconds=0.1,
            recover_after=3,
        )
        self.uuids = [card.uuid for card in cards.read().cards]
        self.write_nvidia_spec()

    def write_nvidia_spec(self) -> None:
        (self.cdi / "nvidia.json").write_text(json.dumps(cdi_spec(self.cards.read())))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Plugin]:
        stop = asyncio.Event()
        plugin = Plugin(self.settings, self.api.credentials)
        task = asyncio.create_task(plugin.run(stop))
        try:
            yield plugin
        finally:
            stop.set()
            assert await asyncio.wait_for(task, 10) == 0

    async def ready(self, plugin: Plugin) -> None:
        await until(lambda: not plugin.problems() and self.listened())

    def listened(self) -> bool:
        plugins = self.kubelet.plugins
        return set(plugins) == {MEM, PERCENT} and all(p.lists for p in plugins.values())

    def health(self) -> list[str]:
        text = self.api.objects[NODE_PATH]["metadata"].get("annotations", {}).get("gpushare/cards")
        return [card.health for card in decode(text).cards] if text else []

    async def admit(self, name: str, card: int, mem: int, ids: list[str], **more: Any) -> None:
        share = Share(self.uuids[card], mem * 1024, 0)
        one = pod(container("main", mem), placed=[app("main", share)], name=name, uid=f"uid-{name}")
        await self.api.put(f"/api/v1/namespaces/jupyter/pods/{name}", one)
        grant = Grant("jupyter", name, f"uid-{name}", "main", {MEM: ids}, **more)
        self.kubelet.grant(*self.kubelet.grants, grant)

    async def start(self, ids: list[str], resource: str = MEM) -> None:
        request = api_messages.PreStartContainerRequest(devices_ids=ids)
        await self.kubelet.plugins[resource].stub.PreStartContainer(request, timeout=10)

    async def cordon(self, names: str) -> None:
        node = self.api.objects[NODE_PATH]
        annotations = {**node["metadata"].get("annotations", {}), "gpushare/cordon": names}
        await self.api.put(
            NODE_PATH, {**node, "metadata": {**node["metadata"], "annotations": annotations}}
        )

    def env(self, name: str, ids: list[str]) -> str | None:
        path = self.cdi / f"gpushare-slice-{slice_hash(MEM, ids)}.json"
        (device,) = json.loads(path.read_text())["devices"]
        return read_env(device["containerEdits"], name)


@pytest.fixture
async def machine(
    short_path: Path, tmp_path: Path, driver_root: Path, api: ApiServer, cards: SimulatedCards
) -> AsyncIterator[Machine]:
    machine = Machine(short_path, tmp_path, driver_root, api, cards)
    info = {"containerRuntimeVersion": "containerd://2.2.1", "kubeletVersion": "v1.36.3"}
    node = {"metadata": {"name": NODE, "uid": "node-uid"}, "status": {"nodeInfo": info}}
    await api.put(NODE_PATH, node)
    await machine.kubelet.start()
    yield machine
    with cards.edit() as edit:
        edit.clear_faults()
    await machine.kubelet.stop()


def first_list(machine: Machine, resource: str = MEM) -> dict[str, str]:
    return machine.kubelet.plugins[resource].lists[0]


def latest(machine: Machine, resource: str = MEM) -> dict[str, str]:
    return machine.kubelet.plugins[resource].lists[-1]


def count_healthy(offer: dict[str, str]) -> int:
    return sum(health == "Healthy" for health in offer.values())


async def test_from_nothing_to_a_container_with_its_card(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        assert len(first_list(machine)) == 15 + 22
        assert len(first_list(machine, PERCENT)) == 200
        assert machine.health() == ["ok", "ok"]
        await machine.admit("alice", 1, 3, ["m0", "m1", "m2"])
        await machine.start(["m0", "m1", "m2"])
        assert machine.env("GPUSHARE_CARDS", ["m0", "m1", "m2"]) == machine.uuids[1]
    assert [path.name for path in machine.kubelet.folder.glob("*.sock")] == ["kubelet.sock"]


async def test_an_xid_reaches_kubelet_and_cluster_together_and_goes_again(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 1, 3, ["m0", "m1", "m2"])
        await machine.start(["m0", "m1", "m2"])
        with machine.cards.edit() as edit:
            edit.raise_xid(1, 79)
        await until(lambda: "XID 79" in machine.health()[1])
        await until(lambda: count_healthy(latest(machine)) == 15)
        assert [latest(machine)[id] for id in ("m0", "m1", "m2")] == ["Unhealthy"] * 3
        await until(lambda: count_healthy(latest(machine, PERCENT)) == 100)
        with pytest.raises(grpc.aio.AioRpcError, match="XID 79"):
            await machine.start(["m0", "m1", "m2"])
        await until(lambda: machine.health() == ["ok", "ok"])
        await until(lambda: count_healthy(latest(machine)) == 37)
        await machine.start(["m0", "m1", "m2"])


async def test_an_xid_outlives_a_restart_until_the_operator_says_otherwise(
    machine: Machine, cards: SimulatedCards
) -> None:
    machine.settings.recover_after = 0
    async with machine.running() as plugin:
        await machine.ready(plugin)
        with cards.edit() as edit:
            edit.raise_xid(0, 79)
        await until(lambda: "XID 79" in machine.health()[0])
        said = machine.health()[0]
    async with machine.running() as plugin:
        await machine.ready(plugin)
        assert machine.health() == [said, "ok"]  # with the time at which it came
        assert count_healthy(latest(machine)) == 22
        await machine.cordon("0")
        await until(lambda: "cordoned" in machine.health()[0])
        await machine.cordon("")
        await until(lambda: machine.health() == ["ok", "ok"])
    async with machine.running() as plugin:
        await machine.ready(plugin)
        assert machine.health() == ["ok", "ok"]


async def test_a_lost_card_leaves_the_other_one_working(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        with machine.cards.edit() as edit:
            edit.lose_card(0, xid=None)
        await until(lambda: "does not answer" in machine.health()[0])
        await until(lambda: count_healthy(latest(machine)) == 22)
        await machine.admit("bob", 1, 2, ["m0", "m1"])
        await machine.start(["m0", "m1"])


async def test_a_restarted_plugin_knows_what_it_gave_away(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 0, 10, [f"m{n}" for n in range(10)])
        await machine.start([f"m{n}" for n in range(10)])
    async with machine.running() as plugin:
        await machine.ready(plugin)
        assert len(machine.api.patches) == 1
        await machine.admit("bob", 0, 10, [f"m{n}" for n in range(10, 20)])
        with pytest.raises(grpc.aio.AioRpcError, match="other pods on it hold 10 GiB"):
            await machine.start([f"m{n}" for n in range(10, 20)])


async def test_specs_of_gone_containers_are_collected(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_plugin.plugin._CLEAN_SOON", 0.05)
    async with machine.running() as plugin:
        await machine.ready(plugin)
        for i, name in enumerate(("alice", "bob")):
            await machine.admit(name, i, 1, [f"m{i}"])
            await machine.start([f"m{i}"])
        machine.kubelet.grant(machine.kubelet.grants[1])
        await machine.api.delete("/api/v1/namespaces/jupyter/pods/alice")
        await until(lambda: len(list(machine.cdi.glob("gpushare-slice-*.json"))) == 1)
        assert machine.env("GPUSHARE_CARDS", ["m1"]) == machine.uuids[1]


async def test_thirty_containers_at_once_get_each_its_own_card(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        for i in range(30):
            await machine.admit(f"user{i}", i % 2, 1, [f"m{i}"])
        await asyncio.gather(*(machine.start([f"m{i}"]) for i in range(30)))
        for i in range(30):
            assert machine.env("GPUSHARE_CARDS", [f"m{i}"]) == machine.uuids[i % 2]
        assert machine.kubelet.lists < 30


async def test_without_the_api_server_known_containers_start_again(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 0, 1, ["m0"])
        await machine.start(["m0"])
        await machine.api.stop()
        await machine.start(["m0"])
        machine.kubelet.grant(
            *machine.kubelet.grants, Grant("jupyter", "bob", "uid-bob", "main", {MEM: ["m1"]})
        )
        with pytest.raises(grpc.aio.AioRpcError, match="API server cannot be asked"):
            await machine.start(["m1"])


async def test_a_plugin_restarted_without_the_api_server_lets_known_pods_start_again(
    machine: Machine,
) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 0, 1, ["m0"])
        await machine.start(["m0"])
    await machine.api.stop()
    for path in machine.cdi.glob("gpushare-slice-*"):
        path.unlink()
    async with machine.running():
        await until(machine.listened)
        await machine.start(["m0"])
        assert machine.env("GPUSHARE_CARDS", ["m0"]) == machine.uuids[0]
        machine.kubelet.grant(
            *machine.kubelet.grants, Grant("jupyter", "bob", "uid-bob", "main", {MEM: ["m1"]})
        )
        with pytest.raises(grpc.aio.AioRpcError, match="API server cannot be asked"):
            await machine.start(["m1"])
        await machine.api.start()


MOMENTS = {
    "asking the kubelet": (KubeletState, "_list"),
    "asking for the pod": (Pods, "find"),
    "waiting for room": (StartGate, "before_start"),
    "answering": (Service, "_start"),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_plugin_that_dies_at_any_moment_is_followed_by_one_that_knows(
    machine: Machine, moment: str
) -> None:
    ids = [f"m{n}" for n in range(10)]
    reached, never = asyncio.Event(), asyncio.Event()
    owner, method = MOMENTS[moment]
    real = getattr(owner, method)

    async def block(self: object, *arguments: object) -> object:
        if moment == "answering":
            await real(self, *arguments)  # all is written, and the kubelet never hears of it
        reached.set()
        return await never.wait()

    plugin = Plugin(machine.settings, machine.api.credentials)
    running = asyncio.create_task(plugin.run(asyncio.Event()))
    await machine.ready(plugin)
    await machine.admit("alice", 0, 10, ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, block)
        call = asyncio.create_task(machine.start(ids))
        await asyncio.wait_for(reached.wait(), 20)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await plugin._end_all([])
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    async with machine.running() as after:
        await machine.ready(after)
        await machine.start(ids)  # as the kubelet does, which knows that it got no answer
        assert machine.env("GPUSHARE_CARDS", ids) == machine.uuids[0]
        await machine.admit("bob", 0, 10, [f"m{n}" for n in range(10, 20)])
        with pytest.raises(grpc.aio.AioRpcError, match="other pods on it hold 10 GiB"):
            await machine.start([f"m{n}" for n in range(10, 20)])


async def test_after_a_reboot_specs_are_made_anew(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 1, 2, ["m0", "m1"])
        await machine.start(["m0", "m1"])
    # What is on a tmpfs is gone; the kubelet's checkpoint is not.
    for path in machine.cdi.glob("gpushare-slice-*"):
        path.unlink()
    shutil.rmtree(machine.settings.state_dir)
    async with machine.running() as plugin:
        await machine.ready(plugin)
        assert plugin.specs.records == {}
        await machine.start(["m0", "m1"])
        assert machine.env("GPUSHARE_CARDS", ["m0", "m1"]) == machine.uuids[1]


async def test_what_is_allocatable_does_not_swing(machine: Machine) -> None:
    machine.settings.true_allocatable = True
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 0, 5, [f"m{n}" for n in range(5)])
        await machine.start([f"m{n}" for n in range(5)])
        await until(lambda: count_healthy(latest(machine, PERCENT)) == 166)
        said = [list(plugin.lists) for plugin in machine.kubelet.plugins.values()]
        for _ in range(20):
            await plugin.offers.refresh()
        assert [list(plugin.lists) for plugin in machine.kubelet.plugins.values()] == said
        # A pod of the other kind that is on its way holds ids already: they stay healthy.
        held = [i for i, health in latest(machine, PERCENT).items() if health == "Healthy"][:50]
        share = Share(machine.uuids[1], 11514, 50)
        bob = pod(container("main", percent=50), placed=[app("main", share)], name="bob", uid="b")
        await machine.api.put("/api/v1/namespaces/jupyter/pods/bob", bob)
        grant = Grant("jupyter", "bob", "b", "main", {PERCENT: held})
        machine.kubelet.grant(*machine.kubelet.grants, grant)
        await plugin.offers.refresh()
        await until(lambda: all(latest(machine, PERCENT)[i] == "Healthy" for i in held))
        await machine.start(held, PERCENT)
        assert all(latest(machine, PERCENT)[i] == "Healthy" for i in held)
        await until(lambda: count_healthy(latest(machine)) == 10 + 11 + 5)


async def test_a_card_that_nvidias_plugin_hands_out_too_is_not_ours_to_give(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_plugin.plugin._CLEAN_EVERY", 0.1)
    async with machine.running() as plugin:
        await machine.ready(plugin)
        machine.kubelet.others = {"nvidia.com/gpu": [machine.uuids[1]]}
        await until(lambda: "nvidia.com/gpu" in machine.health()[1])
        await until(lambda: count_healthy(latest(machine)) == 15)
        await machine.admit("alice", 1, 1, ["m0"])
        with pytest.raises(grpc.aio.AioRpcError, match="exclude it here or there"):
            await machine.start(["m0"])
        machine.kubelet.others = {}
        await until(lambda: machine.health() == ["ok", "ok"])
        await machine.start(["m0"])


async def test_a_cordoned_card_takes_nothing_new_and_its_pods_go_on(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 1, 1, ["m0"])
        node = machine.api.objects[NODE_PATH]
        node["metadata"]["annotations"]["gpushare/cordon"] = "1"
        await machine.api.put(NODE_PATH, node)
        await until(lambda: machine.health() == ["ok", "cordoned"])
        await machine.start(["m0"])
        del node["metadata"]["annotations"]["gpushare/cordon"]
        await machine.api.put(NODE_PATH, node)
        await until(lambda: machine.health() == ["ok", "ok"])


async def test_people_are_told_of_a_sick_card_where_they_look(machine: Machine) -> None:
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 1, 1, ["m0"])
        await machine.start(["m0"])
        with machine.cards.edit() as edit:
            edit.raise_xid(1, 48)
        await until(lambda: len(machine.api.posts) >= 2)
        about = [
            (path, event["involvedObject"]["name"], event["reason"], event["type"])
            for path, event in machine.api.posts[:2]
        ]
        assert about == [
            ("/api/v1/namespaces/default/events", NODE, "CardUnhealthy", "Warning"),
            ("/api/v1/namespaces/jupyter/events", "alice", "CardUnhealthy", "Warning"),
        ]


async def test_allocatable_tells_the_truth_where_that_is_wanted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_plugin.plugin._CLEAN_SOON", 0.05)
    machine.settings.true_allocatable = True
    async with machine.running() as plugin:
        await machine.ready(plugin)
        ids = [f"m{n}" for n in range(15)]
        await machine.admit("alice", 0, 15, ids)
        await machine.start(ids)
        await until(lambda: count_healthy(latest(machine, PERCENT)) == 100)
        assert count_healthy(latest(machine)) == 37
        machine.kubelet.grant()
        await machine.api.delete("/api/v1/namespaces/jupyter/pods/alice")
        await until(lambda: count_healthy(latest(machine, PERCENT)) == 200)
        assert [count_healthy(o) for o in machine.kubelet.plugins[PERCENT].lists] == [200, 100, 200]


async def test_no_driver_is_waited_for_and_said(machine: Machine, cards: SimulatedCards) -> None:
    with cards.edit() as edit:
        edit.fail("nvmlInitWithFlags", 9)
    async with machine.running() as plugin:
        await until(lambda: bool(plugin.book.problem) and plugin.book.asked)
        await until(lambda: len(machine.api.patches) == 1)
        annotations = machine.api.objects[NODE_PATH]["metadata"]["annotations"]
        assert "Driver Not Loaded" in annotations["gpushare/problem"]
        assert machine.kubelet.plugins == {}
        status, text = await page(plugin, "readyz")
        assert status == 503
        assert "Driver Not Loaded" in text
        status, text = await page(plugin, "healthz")
        assert status == 200  # a restart would not help
        with cards.edit() as edit:
            edit.clear_faults()
        await machine.ready(plugin)
        annotations = machine.api.objects[NODE_PATH]["metadata"]["annotations"]
        assert "gpushare/problem" not in annotations
        assert (await page(plugin, "readyz"))[0] == 200


async def page(plugin: Plugin, name: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{plugin.page.port}/{name}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_a_unit_that_the_kubelet_could_not_take_is_refused(machine: Machine) -> None:
    with machine.cards.edit() as edit:
        for card in machine.cards.read().cards:
            edit.change_card(card.uuid, memory=3_000_000)
    machine.settings.unit = "MiB"
    async with machine.running() as plugin:
        await until(lambda: "set the unit to" in "".join(plugin.problems()))
        await asyncio.sleep(0.1)
        assert machine.kubelet.plugins == {}
        await until(lambda: bool(machine.api.patches))
        assert (
            "set the unit to"
            in (machine.api.objects[NODE_PATH]["metadata"]["annotations"]["gpushare/problem"])
        )


async def test_metrics(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_plugin.container_start._PATIENCE", 0.1)
    async with machine.running() as plugin:
        await machine.ready(plugin)
        await machine.admit("alice", 0, 3, ["m0", "m1", "m2"])
        await machine.start(["m0", "m1", "m2"])
        with pytest.raises(grpc.aio.AioRpcError):
            await machine.start(["m9"])
        _, text = await page(plugin, "metrics")
    lines = text.splitlines()
    card = f'{{index="0",model="T4",uuid="{machine.uuids[0]}"}}'
    for expected in (
        f"gpushare_card_held_mib{card} 3072.0",
        f"gpushare_card_healthy{card} 1.0",
        'gpushare_container_start_seconds_count{result="started"} 1.0',
        'gpushare_container_start_seconds_count{result="not-found"} 1.0',
    ):
        assert expected in lines
