"""Verdicts from what is seen: clocks across restarts, gaps and lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hub_integration.culling import wording
from hub_integration.culling.judging import Judged, again, judge
from hub_integration.culling.memory import Clock
from hub_integration.culling.observed import Pod, Server, View
from hub_integration.culling.policy import Action, Cause
from tests.unit.culling.scenes import RULES, START, at, card, held, pod, server, use, view, waiter


def seen(
    servers: list[Server],
    what: View,
    minutes: float,
    clocks: Mapping[str, Clock] | None = None,
    pods: list[Pod] | None = None,
) -> dict[str, Judged]:
    known = dict(clocks or {})
    judged = judge(
        servers,
        [pod(s.user) for s in servers] if pods is None else pods,
        what,
        lambda s: known.get(s.user) or Clock(s.user, s.name, START.timestamp()),
        lambda _server, _pod: RULES,
        at(minutes),
    )
    return {one.server.user: one for one in judged}


def test_a_silent_training_stays_as_long_as_its_gpu_works() -> None:
    what = view(card(held("ann")), uses=(use("ann", last=99.5),))
    (one,) = seen([server("ann")], what, 100).values()
    assert one.verdict.action is Action.KEEP
    assert one.verdict.ends == at(129.5)


def test_the_first_sight_of_a_late_server_warns_and_does_not_end() -> None:
    one = seen([server("ann")], view(card(held("ann")), uses=(use("ann"),)), 100)["ann"]
    assert one.verdict.action is Action.WARN
    assert one.clock.warned_at == at(100).timestamp()
    later = seen([server("ann")], view(card(held("ann"))), 105, {"ann": one.clock})["ann"]
    assert (later.verdict.action, later.verdict.cause) == (Action.CULL, Cause.IDLE)
    back = seen([server("ann", used=104)], view(card(held("ann"))), 105, {"ann": one.clock})["ann"]
    assert (back.verdict.action, back.clock.warned_at) == (Action.KEEP, None)


def test_use_at_the_last_moment_is_seen_again() -> None:
    clock = Clock("ann", "", START.timestamp(), warned_at=at(90).timestamp())
    one = seen([server("ann")], view(card(held("ann"))), 100, {"ann": clock})["ann"]
    assert one.verdict.action is Action.CULL
    assert again(one, server("ann", used=99.9), at(100)).verdict.action is Action.KEEP


def test_pressure_falls_on_the_one_that_is_missed_least() -> None:
    what = view(
        card(held("ann", 8), held("bob", 7)),
        uses=(use("ann", last=50), use("bob", last=45)),
        waiting=(waiter(gib=5),),
    )
    both = seen([server("ann", 50), server("bob", 45)], what, 56)
    assert both["bob"].verdict.cause is Cause.IDLE_WHILE_OTHERS_WAIT
    assert both["bob"].verdict.ends == at(61), "the whole warning, though it is due at 60"
    assert both["ann"].standing.waiting == 0
    assert "somebody waits for such a slice" in wording.sentence(both["bob"], at(56))


def test_a_pod_that_just_came_presses_nobody() -> None:
    what = view(card(held("ann", 15)), uses=(use("ann", 40),), waiting=(waiter(since=50),))
    judged = judge([server("ann", 40)], [pod("ann")], what,
                   lambda s: Clock(s.user, "", START.timestamp()), lambda *_: RULES, at(50.1),
                   patience=10)  # fmt: skip
    assert judged[0].standing.waiting == 0


def test_an_extender_that_is_away_ends_no_training_that_was_seen_to_run() -> None:
    what = view(card(held("ann")), uses=(use("ann", last=100),))
    before = seen([server("ann")], what, 100)["ann"]
    away = seen([server("ann")], View(), 120, {"ann": before.clock})["ann"]
    assert away.verdict.action is Action.KEEP
    assert not away.standing.gpu_known
    assert away.verdict.ends == at(130)


def test_old_measurements_say_nothing_of_now() -> None:
    what = view(card(held("ann")), uses=(use("ann", last=100),), age=61)
    one = seen([server("ann", 100)], what, 101)["ann"]
    assert not one.standing.gpu_known


def test_a_gap_in_the_measuring_counts_as_use() -> None:
    """The plugin was away for half an hour: nobody knows whether the GPU was used."""
    clock = Clock("ann", "", START.timestamp(), gpu_seen=at(30).timestamp())
    what = view(card(held("ann")), uses=(use("ann", last=None, watched=60),))
    one = seen([server("ann")], what, 61, {"ann": clock})["ann"]
    assert one.standing.gpu_used == at(60)
    quick = view(card(held("ann")), uses=(use("ann", last=None, watched=30.5),))
    same = seen([server("ann")], quick, 61, {"ann": clock})["ann"]
    assert same.standing.gpu_used is None, "a restart within a minute hides nothing"


def test_activity_that_the_bridge_wrote_is_nobodys() -> None:
    posted = Clock("ann", "", START.timestamp(), posted=at(50).timestamp(),
                   used_before_post=at(10).timestamp())  # fmt: skip
    one = seen([server("ann", used=50)], view(), 60, {"ann": posted})["ann"]
    assert one.standing.notebook_used == at(10)
    real = seen([server("ann", used=50.1)], view(), 60, {"ann": posted})["ann"]
    assert real.standing.notebook_used == at(50.1)
    assert real.clock.posted is None


def test_without_kubernetes_the_slice_tells_the_pod() -> None:
    what = view(card(held("ann"), held("bob")), uses=(use("ann", last=99),))
    both = seen([server("ann"), server("cpu")], what, 100, pods=[])
    assert both["ann"].pod is not None
    assert both["ann"].pod.uid == "uid-ann"
    assert both["cpu"].pod is None
    twice = view(card(held("ann"), replace(held("ann"), uid="other")))
    assert seen([server("ann")], twice, 100, pods=[])["ann"].pod is None, "never a guess"
