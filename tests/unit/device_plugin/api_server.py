"""A double of the API server at its HTTP edge: lists, watches, merge patches; and what goes wrong."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from device_plugin.credentials import Credentials

Object = dict[str, Any]


class ApiServer:
    """Objects by path ('/api/v1/nodes/t4-1'), and a log of changes that watches are served from."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.log: list[tuple[str, str, Object]] = []
        self.version = 100
        self.oldest = 0
        self.patches: list[tuple[str, Object]] = []
        self.posts: list[tuple[str, Object]] = []
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.fail: list[int] = []
        self.watches = 0
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._open: set[web.StreamResponse] = set()
        self.port = 0

    @property
    def credentials(self) -> Credentials:
        return Credentials(f"http://127.0.0.1:{self.port}", None, "token-of-the-test")

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self.drop()
        if self._runner is not None:
            await self._runner.cleanup()

    async def drop(self) -> None:
        """Cut all watches off, in the middle."""
        for answer in list(self._open):
            if answer._req is not None and answer._req.transport is not None:
                answer._req.transport.abort()

    async def put(self, path: str, item: Object) -> None:
        kind = "MODIFIED" if path in self.objects else "ADDED"
        await self._change(kind, path, item)

    async def delete(self, path: str) -> None:
        await self._change("DELETED", path, self.objects[path])

    async def forget(self) -> None:
        """History before now is compacted: a watch from an older version gets 410."""
        async with self._changed:
            self.version += 1
            self.oldest = self.version
            self.log.clear()
        await self.drop()

    async def _change(self, kind: str, path: str, item: Object) -> None:
        async with self._changed:
            self.version += 1
            item = json.loads(json.dumps(item))
            item["metadata"]["resourceVersion"] = str(self.version)
            if kind == "DELETED":
                self.objects.pop(path)
            else:
                self.objects[path] = item
            self.log.append((kind, path, item))
            self._changed.notify_all()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        self.authorizations.append(request.headers.get("Authorization"))
        if self.fail:
            status = self.fail.pop(0)
            return web.json_response({"message": f"failure {status}"}, status=status)
        if request.method == "PATCH":
            return await self._patch(request)
        if request.method == "POST":
            self.posts.append((request.path, await request.json()))
            return web.json_response(self.posts[-1][1], status=201)
        if request.path in self.objects:
            return web.json_response(self.objects[request.path])
        collection = request.path.rsplit("/", 1)[-1] in ("pods", "nodes")
        if not collection:
            return web.json_response({"message": "not found"}, status=404)
        if "watch" in request.query:
            return await self._watch(request)
        items = [o for p, o in self.objects.items() if _selected(p, o, request)]
        metadata = {"resourceVersion": str(self.version)}
        return web.json_response({"metadata": metadata, "items": items})

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        assert request.content_type == "application/merge-patch+json"
        patch = await request.json()
        if request.path not in self.objects:
            return web.json_response({"message": "not found"}, status=404)
        self.patches.append((request.path, patch))
        await self.put(request.path, _merge(self.objects[request.path], patch))
        return web.json_response(self.objects[request.path])

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        answer = web.StreamResponse()
        await answer.prepare(request)
        self._open.add(answer)
        seen = int(request.query["resourceVersion"])
        try:
            if seen < self.oldest:
                status = {"code": 410, "message": "too old resource version"}
                await answer.write(_line("ERROR", status))
                return answer
            while True:
                news, seen = await self._news(seen)
                for kind, path, item in news:
                    if _selected(path, item, request):
                        line = _line(kind, item)
                        # In two parts: a line need not come in one piece.
                        await answer.write(line[:10])
                        await answer.write(line[10:])
        finally:
            self._open.discard(answer)

    async def _news(self, seen: int) -> tuple[list[tuple[str, str, Object]], int]:
        async with self._changed:
            await self._changed.wait_for(lambda: self.version > seen)
            news = [e for e in self.log if int(e[2]["metadata"]["resourceVersion"]) > seen]
            return news, self.version


def _line(kind: str, item: Object) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def _selected(path: str, item: Object, request: web.Request) -> bool:
    kind = request.path.rsplit("/", 1)[-1]
    if path.split("/")[-2] != kind:
        return False
    name, _, value = request.query.get("fieldSelector", "=").partition("=")
    have = {
        "": "",
        "metadata.name": item["metadata"].get("name"),
        "spec.nodeName": item.get("spec", {}).get("nodeName"),
    }
    return bool(have[name] == value)


def _merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
