"""One look at the cluster for everybody who looks at the dashboard.

The extender's stream of changes says when to read again; where it has none, or between changes, a
clock does. Browsers never reach the extender: they wait for ``changed`` and get what is there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from typing import Any

from gpushare import waiting
from gpushare.waiting import WaitingPod
from hub_integration.dashboard.neighbours import Away, HubSide, StateApi
from hub_integration.dashboard.readings import (
    Reading,
    read_given_back,
    read_minutes,
    read_nodes,
    read_reclaims,
    read_verdicts,
)
from hub_integration.dashboard.trends import Trends

PERIOD = 5.0  # seconds between two looks without a change: nodes are measured that often
PAUSE = 0.5  # at least, between two looks: a hundred changes at once are one
_TRENDS = 60.0
_RETRY = 5.0
_NO_STREAM = 60.0


class Feed:
    """Keeps ``reading`` fresh. ``looks`` counts the looks, for tests and for health."""

    def __init__(self, state: StateApi, hub: HubSide, trends: Trends, log: logging.Logger) -> None:
        self._state = state
        self._hub = hub
        self._log = log
        self.trends = trends
        self.reading = Reading(problem="Nothing is known yet.")
        self.looks = 0
        self._version = asyncio.Event()
        self._due = asyncio.Event()
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        await asyncio.to_thread(self.trends.load)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_always())
            tasks.create_task(self._listen())
            tasks.create_task(self._follow_trends())

    def look_soon(self) -> None:
        """Something was done here that will show."""
        self._due.set()

    @property
    def next_look(self) -> asyncio.Event:
        """Is set when the next look has been made. To be taken before the reading is."""
        return self._version

    async def look(self) -> None:
        """One look. What does not answer keeps its last known, and ``problem`` says so."""
        try:
            nodes, usage, line = await asyncio.gather(
                self._state.get("/v1/nodes"), self._optional("/v1/usage"), self._waiting()
            )
            read = await asyncio.to_thread(read_nodes, nodes, usage)
        except (Away, ValueError) as error:
            self._say("extender", str(error))
            fresh = replace(self.reading, problem=f"The extender does not answer: {error}.")
        else:
            self._say("extender", "")
            fresh = replace(
                self.reading, at=time.time(), nodes=read, waiting=line or (), problem=""
            )
        self.reading = await self._with_culler(fresh)
        self.looks += 1
        event, self._version = self._version, asyncio.Event()
        event.set()

    async def _with_culler(self, reading: Reading) -> Reading:
        if not self._hub.has_culler:
            return reading
        try:
            verdicts, reclaimed = await asyncio.gather(
                self._hub.culler("GET", "api/verdicts"),
                self._hub.culler("GET", "api/reclaimed?limit=50"),
            )
        except Away as error:
            self._say("culler", str(error))
            # What it said would be wrong by now: ends that did not come, holds that are over.
            return replace(reading, verdicts=(), culler=False)
        self._say("culler", "")
        return replace(
            reading,
            verdicts=read_verdicts(verdicts),
            reclaims=read_reclaims(reclaimed),
            given_back=read_given_back(reclaimed),
            dry_run=verdicts.get("dry_run") is True,
            culler=True,
        )

    async def _waiting(self) -> tuple[WaitingPod, ...]:
        data = await self._optional("/v1/waiting")
        return () if data is None else waiting.decode(json.dumps(data))

    async def _optional(self, path: str) -> Any:
        """None where an older extender has no such page."""
        try:
            return await self._state.get(path)
        except Away as error:
            if error.status != 404:
                raise
            return None

    async def _look_always(self) -> None:
        while True:
            self._due.clear()
            await self.look()
            await asyncio.sleep(PAUSE)
            try:
                await asyncio.wait_for(self._due.wait(), PERIOD)
            except TimeoutError:
                continue

    async def _listen(self) -> None:
        while True:
            try:
                async for _ in self._state.changes():
                    self._due.set()
            except Away as error:
                # An older extender has no stream; the clock alone serves.
                await asyncio.sleep(_NO_STREAM if error.status == 404 else _RETRY)

    async def _follow_trends(self) -> None:
        while True:
            try:
                history = await self._optional("/v1/history?minutes=1440")
                if history and self.trends.add(read_minutes(history)):
                    await asyncio.to_thread(self.trends.save)
            except Away:
                pass  # the looks say so already
            await asyncio.sleep(_TRENDS)

    def _say(self, who: str, problem: str) -> None:
        """Once, and again when it is over or something else."""
        if problem and problem != self._said.get(who):
            self._log.warning("The %s does not answer: %s", who, problem)
        elif not problem and self._said.get(who):
            self._log.info("The %s answers again", who)
        self._said[who] = problem
