"""A Kubernetes API at the HTTP edge, as much of it as the extender uses.

Objects, versions, paged lists, watches that end, break or expire, bindings with their preconditions,
status patches, events, and reviews of tokens; with faults that tests can switch on.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from extender.api import KubeApi

Object = dict[str, Any]
# What a fault may do to a request: 'lost' (never arrives), 'unanswered' (is done, but the answer is
# lost), 'truncated' or 'wrong' (a read is answered with half of a JSON text, or with another type; a
# write is done and then answered so), a status (is refused with it), or '' (nothing).
Fault = str | int


@dataclass
class ApiDouble:
    """The store and its behaviour."""

    objects: dict[str, dict[tuple[str, str], Object]] = field(
        default_factory=lambda: {"nodes": {}, "pods": {}, "endpointslices": {}}
    )
    version: int = 100
    log: list[tuple[int, str, str, Object]] = field(default_factory=list)
    compacted: int = 0
    faults: Callable[[str, str], Fault] = lambda _method, _path: ""
    events: dict[str, Object] = field(default_factory=dict)
    woken: list[str] = field(default_factory=list)
    bindings: list[Object] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    configmaps: dict[str, Object] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    allowed: set[tuple[str, str]] = field(default_factory=set)
    page: int = 0
    noise: dict[str, list[bytes]] = field(default_factory=lambda: {"nodes": [], "pods": []})
    skew: float = 0
    answering: asyncio.Event | None = None
    """Where set, a binding is done but answered only after this event."""
    _stir: set[asyncio.Event] = field(default_factory=set)
    _cut: int = 0

    # -- what tests do ---------------------------------------------------------------------------

    def put(self, kind: str, obj: Object) -> Object:
        """Create or replace an object, as somebody else would."""
        key = _key(obj)
        known = self.objects[kind].get(key)
        if known and known["metadata"].get("uid") != obj["metadata"].get("uid"):
            self.delete(kind, *key)
            known = None
        stored = copy.deepcopy(obj)
        self._commit(kind, "MODIFIED" if known else "ADDED", stored)
        self.objects[kind][key] = stored
        return stored

    def change(self, kind: str, namespace: str, name: str, edit: Callable[[Object], None]) -> None:
        obj = copy.deepcopy(self.objects[kind][namespace, name])
        edit(obj)
        self.put(kind, obj)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        obj = copy.deepcopy(self.objects[kind].pop((namespace, name)))
        self._commit(kind, "DELETED", obj)

    def expire(self) -> None:
        """Forget the history: every watch that goes on from before is 410 Gone."""
        self.version += 1
        self.compacted = self.version
        self.log.clear()
        self.cut()

    def cut(self) -> None:
        """End all watches."""
        self._cut += 1
        self._wake()

    def bookmark(self, kind: str) -> None:
        self.version += 1
        mark = {"kind": kind, "metadata": {"resourceVersion": str(self.version)}}
        self.log.append((self.version, kind, "BOOKMARK", mark))
        self._wake()

    def repeat(self, kind: str, index: int) -> None:
        """Send an old event once more, as a server that is behind would."""
        of_kind = [entry for entry in self.log if entry[1] == kind and entry[2] != "BOOKMARK"]
        if of_kind:
            _, _, what, obj = of_kind[index % len(of_kind)]
            self.version += 1
            self.log.append((self.version, kind, what, obj))
            self._wake()

    def garble(self, kind: str, line: bytes) -> None:
        """Send this line once to whoever watches next."""
        self.noise[kind].append(line)
        self._wake()

    def scheduled(self) -> Object:
        """The condition of a pod that is bound now; each bind is a second later than the last, unless
        the server's clock is off by ``skew`` seconds."""
        when = datetime.fromtimestamp(1_700_000_000 + self.version + self.skew, UTC).isoformat()
        return {"type": "PodScheduled", "status": "True", "lastTransitionTime": when}

    def pod(self, namespace: str, name: str) -> Object:
        return self.objects["pods"][namespace, name]

    # -- the server ------------------------------------------------------------------------------

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._faulty], client_max_size=1 << 26)
        app.add_routes(
            [
                web.get("/api/v1/{kind:nodes|pods}", self._collection),
                web.get(
                    "/apis/discovery.k8s.io/v1/namespaces/{ns}/{kind:endpointslices}",
                    self._collection,
                ),
                web.get("/api/v1/namespaces/{ns}/pods/{name}", self._get_pod),
                web.post("/api/v1/namespaces/{ns}/pods/{name}/binding", self._bind),
                web.patch("/api/v1/namespaces/{ns}/pods/{name}/status", self._touch),
                web.get("/api/v1/namespaces/{ns}/configmaps/{name}", self._get_map),
                web.patch("/api/v1/namespaces/{ns}/configmaps/{name}", self._patch_map),
                web.post("/api/v1/namespaces/{ns}/configmaps", self._new_map),
                web.post("/api/v1/namespaces/{ns}/events", self._event),
                web.patch("/api/v1/namespaces/{ns}/events/{name}", self._patch_event),
                web.post("/apis/authentication.k8s.io/v1/tokenreviews", self._token),
                web.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self._access),
            ]
        )
        return app

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[KubeApi]:
        """The double behind a real socket, and a client of it."""
        server = TestServer(self.application())
        await server.start_server()
        settings = Configuration()
        settings.host = str(server.make_url("")).rstrip("/")
        api = KubeApi(settings, timeout=5)
        try:
            yield api
        finally:
            await api.close()
            self.cut()
            await server.close()

    @web.middleware
    async def _faulty(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.calls.append((request.method, request.path))
        fault = self.faults(request.method, request.path)
        if fault == "lost":
            _drop(request)
            return web.Response()
        if isinstance(fault, int):
            return _status(fault, "a fault")
        if fault in _SPOILT:
            if request.method != "GET":
                await handler(request)
            return web.Response(body=_SPOILT[fault], content_type="application/json")
        answer: web.StreamResponse = await handler(request)
        if fault == "unanswered":
            _drop(request)
        return answer

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        kind = request.match_info["kind"]
        if request.query.get("watch") == "true":
            return await self._watch(request, kind)
        items = [self.objects[kind][key] for key in sorted(self.objects[kind])]
        start, version = 0, self.version
        if token := request.query.get("continue"):
            start, version = json.loads(token)
            if version < self.compacted:
                return _status(410, "the continue token is too old")
        limit = self.page or int(request.query.get("limit", "0"))
        if "limit" not in request.query:
            limit = 0
        page = items[start : start + limit] if limit else items[start:]
        more = limit and start + limit < len(items)
        metadata = {"resourceVersion": str(version)}
        if more:
            metadata["continue"] = json.dumps([start + limit, version])
        return web.json_response({"kind": "List", "metadata": metadata, "items": page})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        reached = int(request.query["resourceVersion"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        if reached < self.compacted:
            gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
            await answer.write(_line("ERROR", gone))
            return answer
        generation, stir = self._cut, asyncio.Event()
        self._stir.add(stir)
        try:
            while generation == self._cut:
                stir.clear()
                while self.noise.get(kind):
                    await answer.write(self.noise[kind].pop(0) + b"\n")
                for version, of_kind, what, obj in list(self.log):
                    if of_kind == kind and version > reached:
                        await answer.write(_line(what, obj))
                        reached = version
                await stir.wait()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._stir.discard(stir)
        return answer

    async def _get_pod(self, request: web.Request) -> web.Response:
        found = self.objects["pods"].get((request.match_info["ns"], request.match_info["name"]))
        return web.json_response(found) if found else _status(404, "no such pod")

    async def _bind(self, request: web.Request) -> web.Response:
        key = (request.match_info["ns"], request.match_info["name"])
        body = await request.json()
        known = self.objects["pods"].get(key)
        if known is None:
            return _status(404, f'pods "{key[1]}" not found')
        if body["metadata"].get("uid") not in (None, known["metadata"]["uid"]):
            return _status(409, "the UID in the precondition does not match")
        if known["metadata"].get("deletionTimestamp"):
            return _status(409, f"pod {key[1]} is being deleted, cannot be assigned to a host")
        if known["spec"].get("nodeName"):
            return _status(409, f"pod {key[1]} is already assigned to a node")
        pod = copy.deepcopy(known)
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["status"]["conditions"] = [self.scheduled()]
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        self.put("pods", pod)
        self.bindings.append(body)
        if self.answering is not None:
            await self.answering.wait()
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _touch(self, request: web.Request) -> web.Response:
        key = (request.match_info["ns"], request.match_info["name"])
        body = await request.json()
        known = self.objects["pods"].get(key)
        if known is None:
            return _status(404, "no such pod")
        if body["metadata"]["uid"] != known["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        self.woken.append(key[1])
        pod = copy.deepcopy(known)
        pod.setdefault("status", {})["conditions"] = body["status"]["conditions"]
        self.put("pods", pod)
        return web.json_response(pod)

    async def _get_map(self, request: web.Request) -> web.Response:
        found = self.configmaps.get(request.match_info["name"])
        return web.json_response(found) if found else _status(404, "no such ConfigMap")

    async def _patch_map(self, request: web.Request) -> web.Response:
        found = self.configmaps.get(request.match_info["name"])
        if found is None:
            return _status(404, "no such ConfigMap")
        found.setdefault("data", {}).update((await request.json())["data"])
        return web.json_response(found)

    async def _new_map(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.configmaps[body["metadata"]["name"]] = body
        return web.json_response(body, status=201)

    async def _event(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.events[body["metadata"]["name"]] = body
        return web.json_response(body, status=201)

    async def _patch_event(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.events:
            return _status(404, "no such event")
        self.events[name].update(await request.json())
        return web.json_response(self.events[name])

    async def _token(self, request: web.Request) -> web.Response:
        token = (await request.json())["spec"]["token"]
        user = self.tokens.get(token)
        status: Object = {"authenticated": user is not None}
        if user:
            status["user"] = {"username": user, "groups": ["g"], "extra": {"k": ["v"]}}
        return web.json_response({"status": status}, status=201)

    async def _access(self, request: web.Request) -> web.Response:
        spec = (await request.json())["spec"]
        path = spec["nonResourceAttributes"]["path"]
        allowed = (spec["user"], path) in self.allowed
        return web.json_response({"status": {"allowed": allowed}}, status=201)

    def _commit(self, kind: str, what: str, obj: Object) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.log.append((self.version, kind, what, copy.deepcopy(obj)))
        self._wake()

    def _wake(self) -> None:
        for stir in self._stir:
            stir.set()


_SPOILT = {
    "truncated": b'{"kind":"List","metadata":{"resourceVersion":"9',
    "wrong": b'[{"gpushare/": 1}, 2]',
}


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _line(what: str, obj: Object) -> bytes:
    return json.dumps({"type": what, "object": obj}, separators=(",", ":")).encode() + b"\n"


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def _drop(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()
