"""The faults that are known of the aliyun pair, looked for in ours: the scheduling half.

Each test names the fault as it showed there.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.fitting import Rules
from extender.unhealthy_maps import UnhealthyMaps
from gpushare import cards, placement
from gpushare.cards import Card, NodeCards
from gpushare.dialects.aliyun import unhealthy_cards
from gpushare.names import Names
from gpushare.request import Policy
from gpushare.units import GIB
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import Extender, HandClock, running, until
from tests.unit.extender.objects import finished, started, t4
from tests.unit.extender.objects import node as plain_node
from tests.unit.extender.objects import pod as plain_pod

NAMES = Names(dialects=("aliyun",))
RULES = Rules(NAMES, GIB, Policy.BINPACK)
ADOPTING = Rules(NAMES, GIB, Policy.BINPACK, adopt_before=1_767_225_600.0)  # 2026-01-01
MEMORY = "aliyun.com/gpu-mem"
KEY = "ALIYUN_COM_GPU_MEM_"


def node(name: str, *its: Card) -> dict[str, Any]:
    found = plain_node(name, *its)
    found["metadata"]["annotations"][NAMES.cards] = cards.encode(NodeCards(its, also=(MEMORY,)))
    units = sum(card.memory // 1024 for card in its if card.healthy)
    found["status"]["allocatable"][MEMORY] = str(units)
    return found


def pod(name: str, units: int, **more: Any) -> dict[str, Any]:
    limits = {"limits": {MEMORY: str(units)}}
    return plain_pod(name, {"name": "main", "resources": limits}, **more)


def bound_there(name: str, units: int, index: int, at: str = "2025-06-01T00:00:00Z") -> Any:
    """A running pod as the other system leaves it on node n."""
    marks = {
        f"{KEY}IDX": str(index),
        f"{KEY}POD": str(units),
        f"{KEY}DEV": "15",
        f"{KEY}ASSIGNED": "true",
        f"{KEY}ASSUME_TIME": "1748736000000000000",
    }
    found = started(pod(name, units, annotations=marks))
    found["spec"]["nodeName"] = "n"
    found["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    ]
    return found


def held(extender: Extender) -> dict[str, int]:
    """MiB that are held of each card."""
    nodes = extender.service.view.ledger.nodes.values()
    return {uuid: book.used_mib for one in nodes for uuid, book in one.accounts.items()}


def binds(api: ApiDouble) -> int:
    return sum(method == "POST" and path.endswith("/binding") for method, path in api.calls)


async def test_bind_says_all_in_one_call(api: ApiDouble) -> None:
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    async with running(api, RULES) as extender:
        one = api.put("pods", pod("p", 3))
        assert await extender.bind(one, "n") == ""
        annotations = api.pod("jupyter", "p")["metadata"]["annotations"]
        assert annotations[f"{KEY}IDX"] == "0"
        assert annotations[f"{KEY}DEV"] == "15"
        assert annotations[f"{KEY}POD"] == "3"
        assert annotations[f"{KEY}ASSIGNED"] == "false"
        assert annotations[f"{KEY}ASSUME_TIME"].isdecimal()
        assert NAMES.placement in annotations
        assert len(api.bindings) == 1


async def test_init_containers_are_not_in_the_sum_and_several_cards_are_listed(
    api: ApiDouble,
) -> None:
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    async with running(api, RULES) as extender:
        large = {"limits": {MEMORY: "12"}}
        obj = plain_pod(
            "p",
            {"name": "quiet", "resources": {}},
            {"name": "one", "resources": large},
            {"name": "two", "resources": large},
            init=[{"name": "first", "resources": {"limits": {MEMORY: "14"}}}],
        )
        assert await extender.bind(api.put("pods", obj), "n") == ""
        annotations = api.pod("jupyter", "p")["metadata"]["annotations"]
        assert annotations[f"{KEY}POD"] == "24"
        several = json.loads(annotations["scheduler.framework.gpushare.allocation"])
        assert sorted(several) == ["1", "2"], "by the containers' places in the pod"
        assert sorted(str(c) for c in several.values()) == ["{'0': 12}", "{'1': 12}"]


async def test_fault_1_a_repeated_bind_changes_nothing(api: ApiDouble) -> None:
    """Fault 1: a second bind of a bound pod chose anew, and patched another card into the pod."""
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    async with running(api, RULES) as extender:
        one = api.put("pods", pod("p", 9))
        assert await extender.bind(one, "n") == ""
        before = copy.deepcopy(api.pod("jupyter", "p")["metadata"]["annotations"])
        for _ in range(3):
            assert await extender.bind(one, "n") == ""
        assert api.pod("jupyter", "p")["metadata"]["annotations"] == before
        assert len(api.bindings) == 1


async def test_fault_2_binds_have_no_limit_of_their_own(api: ApiDouble) -> None:
    """Fault 2: 2.5 binds a second, because a client's default limit was left on two calls each."""
    api.put("nodes", node("n", *(t4("n", i) for i in range(8))))
    async with running(api, RULES) as extender:
        pods = [api.put("pods", pod(f"p{i}", 2)) for i in range(40)]
        for one in pods:
            extender.filter(one, "n")  # as kube-scheduler does before it binds
        api.calls.clear()
        assert set(await asyncio.gather(*(extender.bind(p, "n") for p in pods))) == {""}
        assert binds(api) == 40
        touched = [path for _, path in api.calls if "/pods/" in path]
        assert len(touched) == 40, "one call each"


async def test_fault_3_filter_does_not_wait_for_a_bind(api: ApiDouble) -> None:
    """Fault 3: filter waited behind a lock that a bind held over its calls.

    Fault 10: and it did not count what was being bound, so that too many pods passed.
    """
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, RULES) as extender:
        one = api.put("pods", pod("p", 10))
        task = asyncio.create_task(extender.bind(one, "n"))
        uid = one["metadata"]["uid"]
        await until(lambda: extender.service.view.slice_of(uid), "reserved")
        answer = extender.filter(pod("q", 10), "n")
        assert not task.done(), "the bind is still on its way"
        assert answer["NodeNames"] == []
        assert await task == ""


async def test_fault_4_a_deleted_pod_keeps_its_card_until_its_containers_end(
    api: ApiDouble,
) -> None:
    """Fault 4: the deletion timestamp alone freed the card, through the whole grace period."""
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, RULES) as extender:
        one = api.put("pods", pod("p", 15))
        assert await extender.bind(one, "n") == ""
        api.change(
            "pods",
            "jupyter",
            "p",
            lambda p: (started(p), p["metadata"].update(deletionTimestamp="2025-01-01T00:00:00Z")),
        )
        await extender.caught_up()
        assert extender.filter(pod("q", 1), "n")["NodeNames"] == []
        api.change("pods", "jupyter", "p", lambda p: finished(p) and None)
        await extender.caught_up()
        assert extender.filter(pod("q", 1), "n")["NodeNames"] == ["n"]


async def test_fault_5_a_namesake_does_not_leak_its_predecessor(api: ApiDouble) -> None:
    """Fault 5: a pod that came back under its name left what the first had held for ever."""
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, RULES) as extender:
        for _ in range(20):
            one = api.put("pods", pod("jupyter-alice", 7))
            assert await extender.bind(one, "n") == ""
            # Replaced without a moment in between, as after a forced deletion.
        await extender.caught_up()
        api.delete("pods", "jupyter", "jupyter-alice")
        await extender.caught_up()
        assert held(extender) == {}


async def test_fault_6_a_debt_is_no_room(api: ApiDouble) -> None:
    """Fault 6: more used than there is became 1.8e19 free, by subtracting unsigned numbers."""
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, RULES) as extender:
        assert await extender.bind(api.put("pods", pod("p", 14)), "n") == ""
        api.put("nodes", node("n", t4("n", 0, memory=8192)))
        await extender.caught_up()
        for units in (1, 100_000):
            assert extender.filter(pod("q", units), "n")["NodeNames"] == []


async def test_fault_6_tenants_words_are_not_believed(api: ApiDouble) -> None:
    """Fault 6: annotations were trusted from anyone, also on pods that bound themselves."""
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    async with running(api, RULES) as extender:
        forged = bound_there("forged", 14, 0)
        forged["status"] = {"phase": "Pending"}
        api.put("pods", forged)
        await extender.caught_up()
        assert held(extender) == {}, "it has not started, and will not"
        api.put("pods", {**forged, "status": bound_there("x", 1, 0)["status"]})
        await extender.caught_up()
        counted = held(extender)
        assert set(counted.values()) == {14 * 1024}, "it runs, so it may be on any card"
        assert len(counted) == 2


async def test_fault_7_a_changed_node_is_seen(api: ApiDouble) -> None:
    """Fault 7: a node's cards were read once; swapped cards and deleted nodes stayed."""
    api.put("nodes", node("n", *(t4("n", i) for i in range(4))))
    async with running(api, RULES) as extender:
        api.put("nodes", node("n", t4("n", 9)))
        await extender.caught_up()
        assert list(extender.service.view.cards_of("n")) == ["GPU-n-9"]
        assert await extender.bind(api.put("pods", pod("p", 3)), "n") == ""
        found = placement.decode(
            api.pod("jupyter", "p")["metadata"]["annotations"][NAMES.placement]
        )
        assert list(found.footprint()) == ["GPU-n-9"]
        api.delete("nodes", "", "n")
        await extender.caught_up()
        answer = extender.filter(pod("q", 1), "n")
        assert answer["NodeNames"] == []
        assert "not known" in str(answer)


async def test_fault_8_an_orphan_does_not_keep_us_from_starting(api: ApiDouble) -> None:
    """Fault 8: a pod on a node that is gone ended the program at every start."""
    orphan = bound_there("orphan", 3, 0)
    orphan["spec"]["nodeName"] = "gone"
    api.put("pods", orphan)
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, ADOPTING) as extender:
        assert extender.filter(pod("q", 1), "n")["NodeNames"] == ["n"]


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        ("", set()),
        ("0,2", {0, 2}),
        ("1, 2", {1, 2}),
        ("x", set()),
        ("x,1", {1}),
        ("-1", set()),
        ("٣", set()),
        (None, set()),
        (7, set()),
    ],
)
def test_fault_9_what_is_no_number_is_no_card(text: object, indexes: set[int]) -> None:
    """Fault 9: '', '1, 2' and 'x' took the healthy card 0 out of service."""
    assert unhealthy_cards(text) == indexes


async def test_fault_9_maps_of_unhealthy_cards_are_read_and_written(api: ApiDouble) -> None:
    """The ConfigMap takes cards out; ours puts in what the node says, and takes only that back."""
    api.put("nodes", node("n", t4("n", 0), t4("n", 1), t4("n", 2, health="XID 79")))
    async with running(api, RULES) as extender:
        view = extender.service.view
        maps = UnhealthyMaps(extender.service.api, view, "unhealthy-gpu-", HandClock())
        await maps._write("n")
        written = api.configmaps["unhealthy-gpu-n"]
        assert written["data"] == {"gpus": "2"}
        fact = maps.read(written)
        assert fact is not None
        maps._apply(fact)
        assert not fact.orders, "our own word is nobody's order"
        ordered = {**written, "data": {"gpus": "0,2, "}}
        fact = maps.read(ordered)
        assert fact is not None
        maps._apply(fact)
        assert [s.card.healthy for s in view.ledger.nodes["n"].states()] == [False, True, False]
        api.put("nodes", node("n", t4("n", 0), t4("n", 1), t4("n", 2)))
        await extender.caught_up()
        await maps._write("n")
        assert api.configmaps["unhealthy-gpu-n"]["data"] == {"gpus": "0"}
        maps._gone("n")
        assert all(s.card.healthy for s in view.ledger.nodes["n"].states())
        assert maps.read({"metadata": {"name": "kube-root-ca.crt"}}) is None


async def test_fault_13_an_unknown_node_is_said_to_be_unknown(api: ApiDouble) -> None:
    """Fault 13: /inspect/<unknown> ended the connection with a crash."""
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, RULES) as extender:
        assert await extender.bind(api.put("pods", pod("p", 3)), "n") == ""
        client = TestClient(extender.service.verbs_app)
        assert client.get("/version").text == "0.1.0"
        assert client.get("/gpushare-scheduler/version").text == "0.1.0"
        device = {"id": 0, "totalGPU": 15, "usedGPU": 3}
        pods = [{"name": "p", "namespace": "jupyter", "usedGPU": 3}]
        known = {"name": "n", "totalGPU": 15, "usedGPU": 3, "devs": [{**device, "pods": pods}]}
        for path in ("/gpushare-scheduler/inspect", "/gpushare-scheduler/inspect/n"):
            assert client.get(path).json() == {"nodes": [known]}
        unknown = client.get("/gpushare-scheduler/inspect/m")
        assert unknown.status_code == 200
        assert unknown.json()["nodes"] == []
        assert "'m'" in unknown.json()["error"]
        body = {"Pod": pod("q", 3), "NodeNames": ["n", "m"]}
        answer = client.post("/gpushare-scheduler/filter", json=body).json()
        assert answer["NodeNames"] == ["n"]
        answer = client.post("/gpushare-scheduler/bind", json={"Node": "n"})
        assert answer.status_code == 200, "kube-scheduler drops the body of anything else"
        assert "PodUID" in answer.json()["Error"]


async def test_fault_15_a_freed_card_wakes_who_waits_for_it(api: ApiDouble) -> None:
    """Fault 15: nobody was told of freed memory, and pods sat out minutes."""
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, RULES) as extender:
        assert await extender.bind(api.put("pods", pod("first", 15)), "n") == ""
        waiting = api.put("pods", pod("waiting", 7))
        await extender.caught_up()
        assert extender.filter(waiting, "n")["NodeNames"] == []
        api.change("pods", "jupyter", "first", lambda p: finished(p) and None)
        await until(lambda: api.woken, "woken")
        assert api.woken == ["waiting"]


async def test_fault_19_each_card_has_its_own_size(api: ApiDouble) -> None:
    """Fault 19: the first card's size stood for all cards of a node."""
    api.put("nodes", node("n", t4("n", 0), t4("n", 1, memory=23028, model="NVIDIA A10")))
    async with running(api, RULES) as extender:
        assert await extender.bind(api.put("pods", pod("p", 20)), "n") == ""
        annotations = api.pod("jupyter", "p")["metadata"]["annotations"]
        assert (annotations[f"{KEY}IDX"], annotations[f"{KEY}DEV"]) == ("1", "22")
        assert extender.filter(pod("q", 20), "n")["NodeNames"] == []
        assert extender.filter(pod("q", 15), "n")["NodeNames"] == ["n"]


async def test_fault_27_nothing_of_a_pod_but_its_name_is_logged(
    api: ApiDouble, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault 27: failed binds printed the whole pod, with tokens in its environment."""
    caplog.set_level(logging.DEBUG)
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, RULES) as extender:
        one = pod("p", 30)
        one["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "s3cr3t"}]
        one = api.put("pods", one)
        answer = extender.filter(one, "n")
        error = await extender.bind(one, "n")
        assert error
        assert "s3cr3t" not in error + str(answer) + caplog.text


async def test_pods_of_the_other_system_are_taken_over(api: ApiDouble) -> None:
    """Migration with running workloads: cards as its annotations name them, of pods from before."""
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    old, new = bound_there("old", 10, 1), bound_there("new", 9, 0, at="2026-06-01T00:00:00Z")
    api.put("pods", old)
    async with running(api, ADOPTING) as extender:
        assert held(extender) == {"GPU-n-1": 10 * 1024}
        api.change("pods", "jupyter", "old", lambda p: p["metadata"].update(labels={"a": "b"}))
        await extender.caught_up()
        assert not extender.service.view.doubts
        assert await extender.bind(api.put("pods", pod("p", 12)), "n") == ""
        assert held(extender) == {"GPU-n-0": 12 * 1024, "GPU-n-1": 10 * 1024}
        api.delete("pods", "jupyter", "p")
        api.put("pods", new)
        await extender.caught_up()
        assert held(extender) == {"GPU-n-0": 9 * 1024, "GPU-n-1": 19 * 1024}, (
            "bound after the change-over, so it may be anywhere"
        )


async def test_several_cards_are_taken_over_too(api: ApiDouble) -> None:
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    old = bound_there("old", 10, 0)
    old["metadata"]["annotations"] |= {
        "scheduler.framework.gpushare.allocation": '{"0":{"0":5,"1":5}}',
        NAMES.cards: "2",
    }
    api.put("pods", old)
    async with running(api, ADOPTING) as extender:
        assert set(held(extender)) == {"GPU-n-0", "GPU-n-1"}


@pytest.mark.parametrize("index", ["7", "", "x", "-1", "0,1", "0" * 50])
async def test_what_names_no_card_is_not_taken_over(api: ApiDouble, index: str) -> None:
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    old = bound_there("old", 10, 0)
    old["metadata"]["annotations"][f"{KEY}IDX"] = index
    api.put("pods", old)
    async with running(api, ADOPTING) as extender:
        assert len(held(extender)) == 2, "counted wherever it could be"
