"""Following one kind of object of the API: a full list, then a watch, for ever.

A watch that ends is taken up where it was; one that cannot be (410 Gone) leads to a new list, which
also says what has vanished meanwhile. Most objects in a cluster are none of ours, so a watch line
that does not contain our prefix is dropped before it is parsed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson

from extender.api import ApiError, KubeApi, NoAnswer
from extender.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

_PAGE = 500
# A watch is renewed this often, in seconds, at random within the range so that replicas spread.
_WATCH_SECONDS = (150, 240)
# Servers send a bookmark about every minute. Silence much longer than that is a dead connection.
_SILENCE = 130.0
_BACKOFF_FIRST, _BACKOFF_MOST = 0.2, 5.0


class _Expired(Exception):
    """The version to go on from is too old: list again."""


@dataclass(slots=True)
class Sink(Generic[T]):
    """Where the facts go. ``read`` may return None for what is none of ours."""

    read: Callable[[Mapping[str, Any]], T | None]
    replace: Callable[[list[T], int, float], None]
    apply: Callable[[T], None]
    remove: Callable[[T], None]


@dataclass(slots=True)
class Progress:
    """How the following goes, for readiness and metrics. Times are the clock's, in seconds."""

    synced: asyncio.Event = field(default_factory=asyncio.Event)
    heard: float = 0.0
    lists: int = 0
    failures: int = 0
    problem: str = ""


class Reflector(Generic[T]):
    """Follows one collection, such as /api/v1/pods."""

    def __init__(
        self,
        api: KubeApi,
        path: str,
        sink: Sink[T],
        clock: Clock,
        marker: bytes | tuple[bytes, ...] = (),
    ) -> None:
        self.api = api
        self.path = path
        self.sink = sink
        self.clock = clock
        self.markers = (marker,) if isinstance(marker, bytes) else marker
        self.progress = Progress()
        self._version = ""
        self._unreadable: set[str] = set()

    async def run(self) -> None:
        """Follow until cancelled. Every failure is waited out, longer from time to time."""
        backoff = _BACKOFF_FIRST
        while True:
            started = self.clock.now()
            try:
                if not self._version:
                    self._version = await self._list()
                await self._watch()
            except _Expired:
                self._version = ""
            except (ApiError, NoAnswer) as error:
                self._failed(str(error))
            except Exception:
                # A fault of ours: what we know may be wrong by now, so read everything anew.
                log.exception("%s: an internal error; reading everything anew", self.path)
                self._failed("internal error")
                self._version = ""
            if self.clock.now() - started > _BACKOFF_MOST:
                backoff = _BACKOFF_FIRST
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311
            backoff = min(_BACKOFF_MOST, backoff * 2)

    async def _list(self) -> str:
        """Read everything. Returns the version to watch from."""
        started = self.clock.now()
        facts: list[T] = []
        page = await self.api.get(self.path, {"limit": str(_PAGE)})
        while True:
            metadata, items = page.get("metadata"), page.get("items", [])
            if not isinstance(metadata, dict) or not isinstance(items, list | type(None)):
                # Nothing may be concluded from it, least of all that everything is gone.
                raise NoAnswer("the list that was answered is none")
            token = metadata.get("continue")
            if not token:
                facts += self._facts(items)
                break
            # The server makes the next page while we read this one.
            query = {"limit": str(_PAGE), "continue": str(token)}
            following = asyncio.create_task(self.api.get(self.path, query))
            try:
                await asyncio.sleep(0)
                facts += self._facts(items)
                page = await following
            except ApiError as error:
                if error.status != 410:
                    raise
                # The pages outlived their snapshot: once more, in one piece.
                facts, page = [], await self.api.get(self.path, {})
            finally:
                following.cancel()
        version = str(metadata.get("resourceVersion", ""))
        if not version.isdecimal():
            raise NoAnswer(f"the list has no version: {version[:40]!r}")
        self.sink.replace(facts, int(version), started)
        self._heard()
        self.progress.lists += 1
        self.progress.synced.set()
        return version

    async def _watch(self) -> None:
        """Follow changes until the server ends the watch."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311
        }
        try:
            async for line in self.api.lines(self.path, query, _SILENCE):
                self._heard()
                if line:
                    self._line(line)
        except ApiError as error:
            if error.status == 410:
                raise _Expired from None
            raise

    def _line(self, line: bytes) -> None:
        plain = not line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"'))
        if plain and self.markers and not any(marker in line for marker in self.markers):
            return
        try:
            event = orjson.loads(line)
            kind, obj = event["type"], event["object"]
            reached = str((obj.get("metadata") or {}).get("resourceVersion") or self._version)
        except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
            raise NoAnswer(f"a line of the watch cannot be read: {error}") from error
        if kind == "ERROR":
            raise ApiError(int(obj.get("code") or 500), str(obj.get("message", "")))
        if kind != "BOOKMARK":
            fact = self._fact(obj)
            if fact is not None and kind == "DELETED":
                self.sink.remove(fact)
            elif fact is not None:
                self.sink.apply(fact)
        # Versions are numbers and only grow (KEP-5504), so an event that comes late, or a spoilt one,
        # does not lead astray.
        if reached.isdecimal() and int(reached) > int(self._version or 0):
            self._version = reached

    def _facts(self, items: Any) -> list[T]:
        found = (self._fact(item) for item in items or ())
        return [fact for fact in found if fact is not None]

    def _fact(self, obj: Any) -> T | None:
        """One object's facts. What cannot be read is said once and left out."""
        try:
            return self.sink.read(obj)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"{type(error).__name__}: {error}"
            if text not in self._unreadable and len(self._unreadable) < 100:
                self._unreadable.add(text)
                log.warning("%s: an object cannot be read and is left out: %s", self.path, text)
            return None

    def _heard(self) -> None:
        self.progress.heard = self.clock.now()
        self.progress.problem = ""

    def _failed(self, text: str) -> None:
        self.progress.failures += 1
        if text != self.progress.problem:
            log.warning("%s: %s; trying again", self.path, text)
        self.progress.problem = text
