"""Both web applications through real sockets: casings, garbage, tokens, readiness, metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings

from extender import schemas, verbs, wire
from extender.server import Address, CannotListen, Server
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import Extender, HandClock, running
from tests.unit.extender.objects import container, node, pod, t4
from tests.unit.gpushare.strategies import json_values


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[aiohttp.ClientSession]:
    sock = Address("127.0.0.1", 0).listen("test")
    sock.listen()  # so that a client may connect before the server takes the socket over
    port = sock.getsockname()[1]
    server = Server(app, sock)
    task = asyncio.create_task(server.run_until_stopped())
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield session
    finally:
        server.stop()
        await task


async def post(session: aiohttp.ClientSession, verb: str, body: Any) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with session.post(f"/scheduler/{verb}", data=data) as answer:
        assert answer.status == 200
        return json.loads(await answer.read())


@pytest.fixture
async def extender(api: ApiDouble) -> AsyncIterator[Extender]:
    api.put("nodes", node("n", t4("n", 0)))
    api.put("nodes", node("cpu"))
    async with running(api) as extender:
        yield extender


async def test_both_casings_and_both_kinds_of_nodes(extender: Extender):
    ask = pod("p", mem=7)
    cpu, gpu = (extender.api.objects["nodes"]["", name] for name in ("cpu", "n"))
    async with served(extender.service.verbs_app) as session:
        answer = await post(
            session, "filter", {"Pod": ask, "Nodes": None, "NodeNames": ["n", "cpu"]}
        )
        assert answer == {
            "Nodes": None,
            "NodeNames": ["n"],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {"cpu": "the node has no shared cards"},
            "Error": "",
        }
        assert await post(session, "filter", {"pod": ask, "nodenames": ["n", "cpu"]}) == answer
        objects = {"Pod": ask, "Nodes": {"metadata": {}, "items": [gpu, cpu]}, "NodeNames": None}
        by_object = await post(session, "filter", objects)
        assert by_object["NodeNames"] is None
        assert [n["metadata"]["name"] for n in by_object["Nodes"]["items"]] == ["n"]
        assert by_object["Nodes"]["items"][0] == gpu
        scores = await post(session, "prioritize", {"pod": ask, "nodes": {"items": [gpu]}})
        assert scores == [{"Host": "n", "Score": 10}]
        stored = extender.api.put("pods", ask)["metadata"]
        bind = {"podname": stored["name"], "podnamespace": stored["namespace"],
                "poduid": stored["uid"], "node": "n"}  # fmt: skip
        assert await post(session, "bind", bind) == {"Error": ""}


async def test_a_pod_without_a_request_passes_everywhere(extender: Extender):
    answer = extender.filter(pod("p", container()), "n", "cpu", "unknown")
    assert answer["NodeNames"] == ["n", "cpu", "unknown"]
    assert extender.prioritize(pod("p", container()), "n", "cpu") == {}


async def test_several_containers_and_unknown_nodes(extender: Extender):
    both = pod("p", container("a", mem=3), container("b", mem=5))
    answer = extender.filter(both, "n", "cpu", "unknown")
    assert answer["NodeNames"] == ["n"]
    assert answer["FailedAndUnresolvableNodes"] == {
        "cpu": "the node has no shared cards",
        "unknown": "the node is not known yet",
    }


BAD = [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"Pod":null}', b'{"Pod":{},"NodeNames":7}',
       b'{"Pod":{},"NodeNames":[1]}', b'{"Pod":{},"Nodes":{"items":[{}]}}', b"[" * 100_000,
       b'{"Pod":{}}', b'{"PodName":"a/b","PodNamespace":"x","PodUID":"u","Node":"n"}',
       b'{"PodName":1}']  # fmt: skip


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
async def test_bad_bodies_are_answered_with_an_error(extender: Extender, verb: str):
    async with served(extender.service.verbs_app) as session:
        for body in BAD:
            answer = await post(session, verb, body)
            if verb == "prioritize":
                assert answer == []
            else:
                assert answer["Error"], body
        # And it still works.
        good = await post(session, "filter", {"Pod": pod("p", mem=7), "NodeNames": ["n"]})
        assert good["NodeNames"] == ["n"]


async def test_huge_bodies(extender: Extender, monkeypatch: pytest.MonkeyPatch):
    names = [f"node-{i:06d}" for i in range(100_000)]
    async with served(extender.service.verbs_app) as session:
        answer = await post(session, "filter", {"Pod": pod("p", mem=7), "NodeNames": names})
        assert len(answer["FailedAndUnresolvableNodes"]) == 100_000
        monkeypatch.setattr(verbs, "_MAX_BODY", 1 << 20)
        answer = await post(session, "filter", b" " * (2 << 20))
        assert "nodeCacheCapable" in answer["Error"]


async def test_an_internal_error_is_an_answer_too(extender: Extender, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(extender.service.view, "fit_many", broken)
    async with served(extender.service.verbs_app) as session:
        answer = await post(session, "filter", {"Pod": pod("p", mem=7), "NodeNames": ["n"]})
    assert answer == {"Error": "the gpushare extender has an internal error; see its log"}


@settings(deadline=None)
@given(json_values(), json_values())
def test_arguments_are_read_or_refused(first, second):
    for data in ({"Pod": first, "NodeNames": second}, {"pod": first, "Nodes": second},
                 {"Pod": {"spec": first, "metadata": second}, "Nodes": {"items": [first]}},
                 {"PodName": first, "PodNamespace": second, "PodUID": first, "Node": second}):  # fmt: skip
        for read in (wire.nodes_args, wire.bind_args):
            try:
                read(data)
            except wire.BadArguments as error:
                assert str(error)  # noqa: PT017


async def test_any_pod_gets_an_answer(extender: Extender):
    @settings(deadline=None)
    @given(json_values(), json_values())
    def check(spec: Any, metadata: Any) -> None:
        for body in ({"spec": spec, "metadata": metadata},
                     {"spec": {"containers": [{"resources": {"limits": spec}}]},
                      "metadata": {"annotations": metadata}}):  # fmt: skip
            answer = json.loads(
                extender.service.verbs.filter(
                    json.dumps({"Pod": body, "NodeNames": ["n"]}).encode()
                )
            )
            assert answer["Error"] or set(answer) >= {"NodeNames", "FailedNodes"}

    await asyncio.to_thread(check)


# -- the state API -------------------------------------------------------------------------------


def bearer(token: str, header: str = "Authorization") -> dict[str, str]:
    return {header: f"Bearer {token}"}


async def test_the_state_api_asks_kubernetes_who_may(extender: Extender):
    api = extender.api
    api.tokens = {"good": "alice", "poor": "bob"}
    api.allowed = {("alice", "/v1/nodes"), ("alice", "/metrics"), ("alice", "/v1/openapi.json")}
    async with served(extender.service.state_app) as session:

        async def status(path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
            async with session.get(path, headers=headers) as answer:
                return answer.status, await answer.text()

        assert await status("/healthz") == (200, "ok")
        assert await status("/readyz") == (200, "ok")
        code, text = await status("/v1/nodes")
        assert code == 401
        assert "bearer token" in text
        assert (await status("/v1/nodes", bearer("wrong")))[0] == 401
        code, text = await status("/v1/nodes", bearer("poor"))
        assert code == 403
        assert "bob may not get /v1/nodes" in text
        assert (await status("/v1/nodes", bearer("good")))[0] == 200
        assert (await status("/v1/nodes", bearer("good", "X-Gpushare-Authorization")))[0] == 200
        assert (await status("/v1/nodes", {"Authorization": "Basic x"}))[0] == 401
        assert (await status("/metrics", bearer("poor")))[0] == 403
        code, text = await status("/metrics", bearer("good"))
        assert code == 200
        assert 'gpushare_card_memory_bytes{card="0",model="T4",node="n"} 16106127360' in text
        assert "gpushare_watch_age_seconds" in text
        code, text = await status("/v1/openapi.json", bearer("good"))
        assert "CardState" in text


async def test_answers_about_tokens_are_kept_for_seconds(api: ApiDouble):
    api.tokens, api.allowed = {"good": "alice"}, {("alice", "/v1/nodes")}
    clock = HandClock()
    async with running(api, clock=clock) as extender, served(extender.service.state_app) as session:

        async def get() -> int:
            async with session.get("/v1/nodes", headers=bearer("good")) as answer:
                return answer.status

        def reviews() -> int:
            return sum(path.endswith("tokenreviews") for _, path in api.calls)

        assert await asyncio.gather(*(get() for _ in range(10))) == [200] * 10
        assert reviews() == 1
        api.allowed = set()
        assert await get() == 200
        clock.time += 11
        assert await get() == 403
        assert reviews() == 2
        clock.time += 11
        api.faults = lambda _method, path: 500 if path.endswith("tokenreviews") else ""
        assert await get() == 503
        api.faults = lambda _method, _path: ""
        # That Kubernetes could not say is not kept.
        assert await get() == 403


async def test_what_the_state_api_shows(extender: Extender):
    alice = pod("jupyter-alice", mem=7)
    alice["metadata"]["annotations"]["hub.jupyter.org/username"] = "alice"
    extender.api.put("pods", alice)
    assert await extender.bind(alice, "n") == ""
    extender.api.put("pods", pod("waits", mem=15))
    await extender.caught_up()
    extender.api.tokens = {"good": "alice"}
    extender.api.allowed = {("alice", "/v1/nodes")}
    async with (
        served(extender.service.state_app) as session,
        session.get("/v1/nodes", headers=bearer("good")) as answer,
    ):
        state = schemas.Nodes.model_validate_json(await answer.read())
    (only,) = (n for n in state.nodes if n.name == "n")
    assert only.takes_pods
    (card,) = only.cards
    assert (card.model, card.short_model) == ("Tesla T4", "T4")
    assert (card.allocated_mib, card.free_mib, card.empty) == (7168, 8192, False)
    (held,) = card.slices
    assert (held.user, held.pod, held.mib, held.reserved) == ("alice", "jupyter-alice", 7168, False)
    assert [(w.pod, w.wants) for w in state.waiting] == [("waits", "15 GiB on one card")]
    assert state.totals.allocated_mib == 7168
    async with (
        served(extender.service.state_app) as session,
        session.get("/v1/nodes?slices=false", headers=bearer("good")) as answer,
    ):
        anonymous = schemas.Nodes.model_validate_json(await answer.read())
    assert anonymous.totals == state.totals
    assert not anonymous.waiting
    (quiet,) = (c for n in anonymous.nodes for c in n.cards)
    assert (quiet.slices, quiet.empty, quiet.free_mib) == ([], False, 8192)


@pytest.mark.parametrize("text", ["8443", "host:port", ":1", "h:99999"])
def test_an_address_that_is_none_names_the_setting(text: str):
    with pytest.raises(CannotListen, match=r"Extender\.state_address"):
        Address.parse(text, "Extender.state_address")


def test_an_address_in_use_is_said():
    sock = Address("127.0.0.1", 0).listen("x")
    sock.listen()
    with pytest.raises(CannotListen, match="in use"):
        Address("127.0.0.1", sock.getsockname()[1]).listen("Extender.verbs_address")
    sock.close()
