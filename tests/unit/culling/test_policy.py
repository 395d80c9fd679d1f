"""The culling policy keeps its promises, whatever happens to a server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_integration.culling.policy import Action, Cause, IdlePolicy, Standing, Verdict, decide

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POLICY = IdlePolicy(
    idle=30 * MINUTE,
    pressed_idle=15 * MINUTE,
    gpu_idle=20 * MINUTE,
    warn=5 * MINUTE,
    guaranteed=10 * MINUTE,
    max_age=480 * MINUTE,
)


def at(minutes: float) -> datetime:
    return START + minutes * MINUTE


minutes = st.integers(0, 600)
moments = minutes.map(at)
policies = st.builds(
    lambda idle, pressed, gpu, warn, guaranteed, age: IdlePolicy(
        idle=idle * MINUTE,
        pressed_idle=min(pressed, idle) * MINUTE,
        gpu_idle=None if gpu is None else gpu * MINUTE,
        warn=warn * MINUTE,
        guaranteed=guaranteed * MINUTE,
        max_age=None if age is None else age * MINUTE,
    ),
    minutes,
    minutes,
    st.none() | minutes,
    st.integers(0, 30),
    minutes,
    st.none() | minutes,
)
standings = st.builds(
    Standing,
    started=st.just(START),
    notebook_used=st.none() | moments,
    gpu_known=st.booleans(),
    gpu_used=st.none() | moments,
    held_until=st.none() | moments,
    warned_at=st.none() | moments,
    waiting=st.integers(0, 2),
)


def test_used_notebook_is_kept() -> None:
    verdict = decide(Standing(START, notebook_used=at(100)), POLICY, at(110))
    assert verdict == Verdict(Action.KEEP, at(130), Cause.IDLE)


def test_idle_notebook_is_warned_then_ended() -> None:
    standing = Standing(START, notebook_used=at(100))
    assert decide(standing, POLICY, at(125)).action is Action.WARN
    warned = replace(standing, warned_at=at(125))
    assert decide(warned, POLICY, at(129)).action is Action.WARN
    assert decide(warned, POLICY, at(130)) == Verdict(Action.CULL, at(130), Cause.IDLE)


def test_silent_training_is_not_idle() -> None:
    training = Standing(START, notebook_used=at(0), gpu_known=True, gpu_used=at(200))
    assert decide(training, POLICY, at(201)).action is Action.KEEP


def test_idle_gpu_under_an_open_tab_is_taken_back_only_when_somebody_waits() -> None:
    standing = Standing(
        START, notebook_used=at(100), gpu_known=True, gpu_used=at(60), warned_at=at(80)
    )
    assert decide(standing, POLICY, at(101)).action is Action.KEEP
    verdict = decide(replace(standing, waiting=1), POLICY, at(101))
    assert (verdict.action, verdict.cause) == (Action.CULL, Cause.GPU_IDLE_WHILE_OTHERS_WAIT)


def test_pressure_that_comes_late_still_gives_the_whole_warning() -> None:
    standing = Standing(START, notebook_used=at(100), waiting=1)
    assert decide(standing, POLICY, at(128)) == Verdict(
        Action.WARN, at(133), Cause.IDLE_WHILE_OTHERS_WAIT
    )


def test_waiting_may_not_lengthen_a_stay() -> None:
    with pytest.raises(ValueError, match="pressed_idle"):
        replace(POLICY, pressed_idle=31 * MINUTE)


@given(standings, policies, moments)
def test_nobody_ends_early(standing: Standing, policy: IdlePolicy, now: datetime) -> None:
    if decide(standing, policy, now).action is not Action.CULL:
        return
    assert now >= standing.started + policy.guaranteed
    assert standing.warned_at is not None
    assert now >= standing.warned_at + policy.warn
    aged = policy.max_age is not None and now >= standing.started + policy.max_age
    assert aged or standing.held_until is None or now >= standing.held_until


@given(standings, policies, moments)
def test_waiting_never_lengthens_and_use_never_shortens(
    standing: Standing, policy: IdlePolicy, now: datetime
) -> None:
    def due(of: Standing) -> datetime:
        return decide(replace(of, warned_at=None), policy, START - timedelta(days=9)).ends or at(
            9e6
        )

    assert due(replace(standing, waiting=1)) <= due(replace(standing, waiting=0))
    assert due(replace(standing, notebook_used=now)) >= due(replace(standing, notebook_used=None))
    known = replace(standing, gpu_known=True)
    assert due(replace(known, gpu_used=now)) >= due(replace(known, gpu_used=None))


@given(standings, policies, moments)
def test_every_server_ends_or_is_kept_for_a_stated_time(
    standing: Standing, policy: IdlePolicy, now: datetime
) -> None:
    """Warned at once and asked again at the stated end, the verdict is to end it."""
    verdict = decide(standing, policy, now)
    assert verdict.ends is not None
    warned = replace(standing, warned_at=verdict.ends - policy.warn)
    assert decide(warned, policy, verdict.ends).action is Action.CULL
