"""A list of API objects that follows the server: list, watch, and again when that breaks.

While the server is away the last known objects stay; ``contact`` is when it was last heard.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from device_plugin.kube import ApiError, Kube

log = logging.getLogger(__name__)

_WATCH_SECONDS = 120
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 15.0

Object = dict[str, Any]


class Watch:
    """The objects at ``path`` that ``selector`` (query parameters) matches, by uid.

    ``keep`` makes what is stored of an object; ``on_change`` is called with the uid of each object
    that came, changed or went.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        selector: Mapping[str, str],
        keep: Callable[[Object], Object],
        on_change: Callable[[str], None],
    ) -> None:
        self._kube, self._path, self._selector = kube, path, dict(selector)
        self._keep, self._on_change = keep, on_change
        self.objects: dict[str, Object] = {}
        self.ready = asyncio.Event()
        self.problem = "not read yet"
        self.contact = time.monotonic()

    async def run(self) -> None:
        """Follow for ever."""
        delay = _FIRST_DELAY
        while True:
            try:
                version = await self._list()
                self._say_problem("")
                delay = _FIRST_DELAY
                await self._follow(version)
            except ApiError as error:
                if error.status == 410:
                    continue  # only our place in history is lost: list again
                self._say_problem(str(error))
            # Any other exception is a fault of ours; one bad object must not end the watch.
            except Exception:
                log.exception("watch of %s broke, it starts again", self._path)
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))  # noqa: S311
            delay = min(_LONGEST_DELAY, delay * 2)

    async def _list(self) -> str:
        answer = await self._kube.get(self._path, resourceVersion="0", **self._selector)
        objects = {}
        for item in answer.get("items") or []:
            uid = _uid(item)
            if uid:
                objects[uid] = self._keep(item)
        gone = self.objects.keys() - objects.keys()
        changed = [uid for uid, kept in objects.items() if self.objects.get(uid) != kept]
        self.objects = objects
        self.ready.set()
        for uid in (*gone, *changed):
            self._on_change(uid)
        return str(answer["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        while True:
            began = self.contact = time.monotonic()
            async for event in self._kube.watch(
                self._path, version, _WATCH_SECONDS, **self._selector
            ):
                self.contact = time.monotonic()
                item = event.get("object") or {}
                version = str(item.get("metadata", {}).get("resourceVersion") or version)
                if event.get("type") != "BOOKMARK":
                    self._apply(str(event.get("type")), item)
            if time.monotonic() - began < 1.0:
                raise ApiError(0, "watches end as soon as they begin")

    def _apply(self, kind: str, item: Object) -> None:
        uid = _uid(item)
        if not uid:
            return
        if kind == "DELETED":
            self.objects.pop(uid, None)
        else:
            self.objects[uid] = self._keep(item)
        self._on_change(uid)

    def _say_problem(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("the API server cannot be watched (%s): %s", self._path, problem)
        elif not problem and self.problem and self.ready.is_set():
            log.info("the API server is watched: %s, %d objects", self._path, len(self.objects))
        self.problem = problem


def _uid(item: Object) -> str:
    metadata = item.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return uid if isinstance(uid, str) else ""
