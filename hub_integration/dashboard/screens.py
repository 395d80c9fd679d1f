"""The screens as they are now, each written once per look and shared by all who see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hub_integration.dashboard.feed import Feed
from hub_integration.dashboard.neighbours import Away, HubSide
from hub_integration.dashboard.pages import Pages, Parts
from hub_integration.dashboard.plots import Plot, plot
from hub_integration.dashboard.readings import Reading
from hub_integration.dashboard.trends import DAY, WEEK
from hub_integration.dashboard.view import Everybody, cluster_screen, my_screen, node_view

_HOURS_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Hours:
    """One line of a user's hours, in GiB-hours."""

    day: str
    model: str
    given: str
    used: str


class Screens:
    """Parts of pages. ``can_cordon`` is known after the start."""

    def __init__(self, feed: Feed, pages: Pages, hub: HubSide) -> None:
        self._feed = feed
        self._pages = pages
        self._hub = hub
        self.can_cordon = False
        self._cluster: tuple[int, Parts] | None = None
        self._writing: asyncio.Task[Parts] | None = None
        self._everybody: Everybody | None = None
        self._hours: dict[str, tuple[float, list[Hours], str]] = {}

    async def cluster(self) -> Parts:
        """The admins' parts, with the nodes' ids in order under 'order'."""
        if self._cluster is not None and self._cluster[0] == self._feed.looks:
            return self._cluster[1]
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_cluster())
        return await asyncio.shield(self._writing)

    async def _write_cluster(self) -> Parts:
        looks, reading, now = self._feed.looks, self._feed.reading, time.time()
        # A thousand nodes are some tens of milliseconds: beside the loop, which serves others.
        parts = await asyncio.to_thread(self._cluster_parts, reading, now)
        self._cluster = (looks, parts)
        return parts

    def _cluster_parts(self, reading: Reading, now: float) -> Parts:
        screen = cluster_screen(reading, now)
        parts = self._pages.cluster(
            screen, self._state(reading, now), self._plots(now), self.can_cordon
        )
        return {"order": " ".join(node.id for node in screen.nodes), **parts}

    def _plots(self, now: float) -> list[Plot]:
        week = self._feed.trends.week()
        offset = time.localtime(now).tm_gmtoff
        drawn = (
            plot(week, "Last 24 hours", now, DAY, offset),
            plot(week, "Last 7 days", now, WEEK, offset),
        )
        return [one for one in drawn if one is not None]

    def node(self, name: str) -> str | None:
        """One node's cards; None if there is no such node."""
        found = node_view(self._feed.reading, name, time.time())
        return self._pages.node(found, self.can_cordon) if found else None

    async def mine(self, user: str, person: HubSide) -> Parts:
        """A user's parts."""
        reading, now = self._feed.reading, time.time()
        if self._everybody is None or self._everybody.reading is not reading:
            self._everybody = await asyncio.to_thread(Everybody, reading)
        hours, allowance = await self._spent(user, person)
        screen = my_screen(self._everybody, user, now)
        return self._pages.mine(screen, self._state(reading, now), hours, allowance)

    async def allowances(self, person: HubSide) -> str:
        """The table of quotas; '' where the Hub keeps none, or this person may not see it."""
        try:
            accounts = await person.quotas()
        except Away:
            return ""
        shown = [{"user": str(a.get("user", "")), "words": _words(a)} for a in accounts]
        return self._pages.allowances(shown) if shown else ""

    def _state(self, reading: Reading, now: float) -> str:
        age = now - reading.at if reading.known else -1.0
        return self._pages.state(reading.problem, age)

    async def _spent(self, user: str, person: HubSide) -> tuple[list[Hours], str]:
        """Hours of the last week, and the allowance in words. Whatever is not known is left out."""
        known = self._hours.get(user)
        if known is not None and time.monotonic() - known[0] < _HOURS_SECONDS:
            return known[1], known[2]
        start = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 6 * 86400))
        hours, words = await asyncio.gather(_hours(person, start), _allowance(person, user))
        if len(self._hours) > 10_000:
            self._hours.clear()
        self._hours[user] = (time.monotonic(), hours, words)
        return hours, words


async def _hours(person: HubSide, start: str) -> list[Hours]:
    if not person.has_culler:
        return []
    try:
        answer = await person.culler("GET", f"api/usage?from={start}&by=day,model")
    except Away:
        return []
    rows = answer.get("rows") if isinstance(answer, Mapping) else None
    return [
        Hours(
            str(row.get("day", "")),
            str(row.get("model", "")),
            _hour(row, "given"),
            _hour(row, "used"),
        )
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping)
    ][-70:]


def _hour(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return f"{value:.1f}" if isinstance(value, int | float) else ""


async def _allowance(person: HubSide, user: str) -> str:
    try:
        return _words(await person.quota(user))
    except Away:
        return ""


def _words(account: Mapping[str, Any]) -> str:
    return str(account.get("words") or "")
