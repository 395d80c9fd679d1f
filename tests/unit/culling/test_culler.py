"""The culler as a whole, against a Hub, a cluster and a clock that the test moves."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime

import pytest

from hub_integration.culling.culler import Culler, Options
from hub_integration.culling.holds import HoldRefused
from hub_integration.culling.hub_api import HubFailed
from hub_integration.culling.memory import Memory, State
from hub_integration.culling.observed import Pod, Server, View
from hub_integration.culling.state_api import StateFailed
from hub_integration.culling.stopping import Confirm
from tests.unit.culling.scenes import RULES, at, card, held, pod, server, use, view, waiter

DATABASE = "sqlite://"


class World:
    """A Hub, its pods and cards; and the clock."""

    def __init__(self) -> None:
        self.minutes = 0.0
        self.here: dict[str, Server] = {}
        self.there: list[Pod] = []
        self.cards: View | None = view()
        self.down = False
        self.forgets = False  # the Hub says yes and does nothing, as one that is restarted
        self.asked: list[str] = []
        self.posted: list[tuple[str, float]] = []

    def now(self) -> datetime:
        return at(self.minutes)

    def add(self, user: str, used: float = 0) -> None:
        self.here[user] = server(user, used)
        self.there.append(pod(user))

    async def servers(self) -> list[Server]:
        if self.down:
            raise HubFailed("the Hub is away")
        return list(self.here.values())

    async def post_activity(self, user: str, name: str, when: float) -> None:
        self.posted.append((user, when))
        self.here[user] = replace(
            self.here[user], last_activity=datetime.fromtimestamp(when).astimezone()
        )

    async def pods(self) -> list[Pod]:
        return self.there

    async def look(self) -> View:
        if self.cards is None:
            raise StateFailed("no answer")
        return self.cards

    async def stop(self, servers: list[Server], confirm: Confirm) -> None:
        if self.down:
            raise HubFailed("the Hub is away")
        for one in servers:
            self.asked.append(one.user)
            if confirm(self.here[one.user]) and not self.forgets:
                del self.here[one.user]
                self.there = [p for p in self.there if p.user != one.user]


@pytest.fixture
def world() -> World:
    return World()


def culler(world: World, memory: Memory | None = None, **options: object) -> Culler:
    return Culler(
        world,  # type: ignore[arg-type]
        world,  # type: ignore[arg-type]
        world,  # type: ignore[arg-type]
        memory or Memory(DATABASE),
        world,  # type: ignore[arg-type]
        lambda _server, _pod: RULES,
        Options(**{"patience": 0.0, **options}),  # type: ignore[arg-type]
        logging.getLogger("test"),
        world.now,
    )


async def pass_time(one: Culler, world: World, until: float, step: float = 1) -> None:
    while world.minutes < until:
        world.minutes = min(until, world.minutes + step)
        await one.look()


async def test_warned_ended_followed_and_told(world: World) -> None:
    world.add("ann")
    world.cards = view(card(held("ann")), uses=(use("ann"),))
    one = culler(world)
    await pass_time(one, world, 24)
    assert one.judged[0].clock.warned_at is None
    await pass_time(one, world, 29)
    assert one.judged[0].clock.warned_at == at(25).timestamp()
    assert world.asked == []
    await pass_time(one, world, 30)
    assert world.asked == ["ann"]
    (reclaim,) = one.memory.open()
    assert (reclaim.uid, reclaim.gib, reclaim.reason) == ("uid-ann", 3, "idle")
    await one.follow_once()
    assert one.memory.open()[0].state is State.LEAVING, "the extender still counts the slice"
    world.minutes, world.cards = 31, view(card())
    await one.follow_once()
    assert one.memory.open() == []
    (done,) = one.memory.recent(9)
    assert (done.state, done.confirmed) == (State.FREED, True)
    world.minutes = 91
    assert done.given_back(at(91).timestamp(), 8 * 3600) == pytest.approx(3.0)
    assert done.given_back(at(91).timestamp(), 1800) == pytest.approx(1.5)


async def test_use_between_look_and_end_spares(world: World) -> None:
    world.add("ann")
    one = culler(world)
    await pass_time(one, world, 29)
    judged_at = world.here["ann"]
    world.minutes = 30
    seen = await world.servers()

    async def slow_list() -> list[Server]:
        world.here["ann"] = replace(judged_at, last_activity=at(29.9))
        return seen

    world.servers = slow_list  # type: ignore[method-assign]
    await one.look()
    assert world.asked == ["ann"]
    assert "ann" in world.here
    assert one.memory.recent(1)[0].state is State.ABANDONED


async def test_a_dry_run_notes_each_once_and_ends_none(world: World) -> None:
    world.add("ann")
    one = culler(world, dry_run=True)
    await pass_time(one, world, 60)
    assert world.asked == []
    assert [r.state for r in one.memory.recent(9)] == [State.DRY_RUN]
    assert one.memory.open() == []


async def test_a_hub_that_forgot_is_asked_again_by_the_next_culler(world: World) -> None:
    world.add("ann")
    world.cards = view(card(held("ann")), uses=(use("ann"),))
    world.forgets = True
    memory = Memory(DATABASE)
    await pass_time(culler(world, memory), world, 30)
    (first,) = memory.open()
    world.forgets = False
    again = culler(world, memory)  # as after a restart
    await pass_time(again, world, 31)
    assert world.asked == ["ann", "ann"]
    (same,) = memory.open()
    assert (same.id, same.decided_at) == (first.id, first.decided_at)
    await again.follow_once()
    world.cards = view(card())
    world.minutes = 32
    await again.follow_once()
    assert memory.recent(9)[0].state is State.FREED


async def test_an_end_that_did_not_happen_is_given_up_when_the_user_is_back(world: World) -> None:
    world.add("ann")
    world.forgets = True
    one = culler(world)
    await pass_time(one, world, 30)
    world.here["ann"] = replace(world.here["ann"], last_activity=at(30.2))
    await pass_time(one, world, 31)
    assert one.memory.open() == []
    assert one.memory.recent(1)[0].state is State.ABANDONED


async def test_warnings_outlive_the_culler(world: World) -> None:
    world.add("ann")
    memory = Memory(DATABASE)
    await pass_time(culler(world, memory), world, 26)
    late = culler(world, memory)
    await pass_time(late, world, 30)
    assert world.asked == ["ann"]


async def test_without_the_hub_nothing_happens_and_health_says_so(world: World) -> None:
    world.add("ann")
    one = culler(world)
    await pass_time(one, world, 29)
    world.down = True
    world.minutes = 60
    with pytest.raises(HubFailed):
        await one.look()
    assert world.asked == []


async def test_an_idle_gpu_goes_only_when_somebody_waits(world: World) -> None:
    world.add("ann")
    full, idle = card(held("ann", 15)), (use("ann", last=5),)
    world.cards = view(full, uses=idle)
    one = culler(world)
    for minute in range(1, 40):
        world.here["ann"] = server("ann", used=minute)
        await pass_time(one, world, minute)
    assert world.asked == []
    world.cards = view(full, uses=idle, waiting=(waiter(since=39),))
    for minute in range(40, 47):
        world.here["ann"] = server("ann", used=minute)
        await pass_time(one, world, minute)
        if not world.here:
            break
    assert world.asked == ["ann"]
    assert one.memory.open()[0].reason == "gpu-idle-while-others-wait"
    assert world.minutes == 45, "warned at 40, for the whole five minutes"


async def test_holds_are_bounded_and_end_the_warning(world: World) -> None:
    world.add("ann")
    one = culler(world)
    await pass_time(one, world, 26)
    held_ = await one.hold("ann", "", None)
    assert held_.verdict.ends == at(56)
    assert held_.clock.warned_at is None
    with pytest.raises(HoldRefused, match="60 min from now at most"):
        await one.hold("ann", "", 61)
    with pytest.raises(HoldRefused, match="no running server"):
        await one.hold("bob", "", 5)
    await pass_time(one, world, 50)
    assert world.asked == []
    await one.hold("ann", "", 0)
    await pass_time(one, world, 55)
    assert world.asked == ["ann"]


async def test_the_bridge_writes_activity_for_what_stays(world: World) -> None:
    world.add("ann")
    world.add("bob")
    cards = card(held("ann"), held("bob"))
    one = culler(world, bridge=True, bridge_every=60.0)
    for minute in range(1, 31):
        world.cards = view(cards, uses=(use("ann", last=minute - 0.2), use("bob", last=None)))
        await pass_time(one, world, minute)
    assert world.asked == ["bob"], "its own posts are not taken for use"
    assert "ann" in world.here
    posted = [when for user, when in world.posted if user == "ann"]
    assert posted[-1] >= at(29).timestamp()
    assert all(user != "bob" or when < at(30).timestamp() for user, when in world.posted)


async def test_a_watcher_that_fails_stops_nobody(world: World) -> None:
    async def broken(_look: object, _judged: object) -> None:
        raise ZeroDivisionError

    world.add("ann")
    one = culler(world)
    one.watchers.append(broken)  # type: ignore[arg-type]
    await pass_time(one, world, 30)
    assert world.asked == ["ann"]


async def test_what_came_back_counts_until_the_user_is_back(world: World) -> None:
    world.add("ann")
    world.cards = view(card(held("ann")), uses=(use("ann"),))
    one = culler(world)
    await pass_time(one, world, 30)
    await one.follow_once()
    world.cards = view(card())
    world.minutes = 31
    await one.follow_once()
    world.minutes = 61
    world.here["ann"] = replace(server("ann", used=61), started=at(61))
    await one.look()
    (done,) = one.memory.recent(9)
    assert done.given_back(at(600).timestamp(), 8 * 3600) == pytest.approx(1.5)
