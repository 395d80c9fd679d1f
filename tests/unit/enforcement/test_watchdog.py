"""The states of a pod that has too much, step by step and at random."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.rules import Reach, Rules
from device_plugin.enforcement.watchdog import (
    Action,
    Case,
    Cleared,
    End,
    Evict,
    Fault,
    Observation,
    Told,
    step,
)

from .making import held

RULES = Rules(
    grace=10,
    urgent_grace=2,
    burst_grace=6,
    recovery=100,
    term_grace=3,
    allowance_mib=100,
    allowance_most_mib=200,
    evict_after=2,
    strike_window=200,
)


def seen(*mib: int, slice: int = 1000, **more: object) -> Observation:
    """A pod whose processes 1, 2, … hold so much."""
    processes = [held(pid, size) for pid, size in enumerate(mib, 1)]
    more.setdefault("granted", slice)
    return Observation(processes, slice, **more)  # type: ignore[arg-type]


class Play:
    """One case, once a second."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.rules, self.now = rules, 1000.0
        self.case: Case | None = None

    def step(self, observation: Observation, seconds: float = 1.0) -> list[Action]:
        self.now += seconds
        self.case, actions = step(self.case, observation, self.rules, self.now)
        return actions

    def until(
        self, observation: Observation, kind: type[Action], most: int = 100
    ) -> tuple[int, Action]:
        """How many steps it takes to an action of that kind."""
        for count in range(1, most):
            for action in self.step(observation):
                if isinstance(action, kind):
                    return count, action
        raise AssertionError(f"no {kind} in {most} steps")


def test_within_the_slice_nothing_happens() -> None:
    play = Play()
    for _ in range(50):
        assert play.step(seen(600, 400)) == []
    assert play.case is not None
    assert play.case.idle


def test_the_context_of_each_process_is_allowed_up_to_the_most() -> None:
    assert Play().step(seen(1100)) == []
    assert Play().step(seen(1101)) != []
    assert Play().step(seen(600, 600)) == []  # two processes, two allowances
    assert Play().step(seen(400, 400, 401)) != []  # a third one gets no more


def test_told_at_once_ended_after_grace_and_killed_when_it_stays() -> None:
    play = Play()
    (told,) = play.step(seen(900, 700))
    assert told == Told(Fault.OVER, 1600, 1200, 1000, 10.0)
    count, end = play.until(seen(900, 700), End)
    assert count == 10
    assert isinstance(end, End)
    assert (end.held.process.pid, end.hard) == (1, False)
    count, end = play.until(seen(900, 700), End)
    assert (count, isinstance(end, End) and end.hard) == (3, True)
    assert play.step(seen(900, 700)) == []  # it cannot be killed twice


def test_ending_the_biggest_is_enough() -> None:
    play = Play()
    play.until(seen(900, 700), End)
    (cleared,) = play.step(Observation([held(2, 700)], 1000, 1000))
    assert isinstance(cleared, Cleared)
    assert play.case is not None
    assert (play.case.spent, play.case.ending, len(play.case.strikes)) == (0.0, None, 1)


def test_the_next_biggest_follows_at_once_when_one_was_not_enough() -> None:
    play = Play()
    play.until(seen(2000, 1500, 1400), End)
    (end,) = play.step(Observation([held(2, 1500), held(3, 1400)], 1000, 1000))
    assert isinstance(end, End)
    assert (end.held.process.pid, end.hard) == (2, False)


def test_the_containers_first_process_is_last() -> None:
    play = Play()
    _, end = play.until(seen(1900, 50, 20, inits={1}), End)
    assert isinstance(end, End)
    assert end.held.process.pid == 2
    alone = Play()
    _, end = alone.until(seen(1900, inits={1}), End)
    assert isinstance(end, End)
    assert end.held.process.pid == 1


def test_repetition_evicts() -> None:
    play = Play()
    for pid in (1, 2):
        _, end = play.until(Observation([held(pid, 1500)], 1000, 1000), End)
        assert isinstance(end, End)
        assert play.step(Observation([], 1000, 1000))  # cleared
    _, evict = play.until(Observation([held(3, 1500)], 1000, 1000), Evict)
    assert evict == Evict(2, 1500, 1100)


def test_where_eviction_does_not_work_processes_are_killed_on() -> None:
    play = Play()
    for pid in (1, 2):
        play.until(Observation([held(pid, 1500)], 1000, 1000), End)
        play.step(Observation([], 1000, 1000))
    stubborn = Observation([held(3, 1500)], 1000, 1000)
    play.until(stubborn, Evict)
    actions = [action for _ in range(3) for action in play.step(stubborn)]
    assert [type(a) for a in actions] == [Evict, End]
    assert isinstance(actions[1], End)
    assert actions[1].hard


def test_old_strikes_are_forgotten() -> None:
    play = Play()
    for pid in (1, 2, 3, 4):
        _, action = play.until(Observation([held(pid, 1500)], 1000, 1000), End)
        assert isinstance(action, End)
        play.step(Observation([], 1000, 1000))
        play.step(Observation([], 1000, 1000), seconds=RULES.strike_window)


@pytest.mark.parametrize("reach", [Reach.REPORT, Reach.END])
def test_it_goes_no_further_than_told(reach: Reach) -> None:
    play = Play(Rules(reach=reach, grace=2, urgent_grace=1, term_grace=1, evict_after=1))
    kinds = {type(a) for _ in range(60) for a in play.step(seen(1000, 900, 800))}
    assert kinds == ({Told} if reach is Reach.REPORT else {Told, End})


def test_memory_that_others_were_promised_is_given_back_sooner() -> None:
    count, _ = Play().until(seen(2000, hurting=True), End)
    assert count == 1 + RULES.urgent_grace


def test_what_was_borrowed_is_within_until_it_is_recalled() -> None:
    play = Play()
    assert play.step(seen(3000, granted=3000)) == []
    (told,) = play.step(seen(3000, granted=1500, recalled=True))
    assert isinstance(told, Told)
    assert (told.fault, told.deadline) == (Fault.RECALLED, RULES.burst_grace - 1)
    count, _ = play.until(seen(3000, granted=1500, recalled=True), End)
    assert count == RULES.burst_grace - 1


def test_a_sleeping_node_uses_up_nobodys_grace() -> None:
    play = Play()
    play.step(seen(2000))
    assert play.step(seen(2000), seconds=3600) == []
    assert play.case is not None
    assert play.case.spent <= 0.2


def test_the_clock_runs_back_slowly() -> None:
    play = Play()
    for _ in range(6):
        play.step(seen(2000))
    play.step(seen(500))
    (told,) = play.step(seen(2000))
    assert isinstance(told, Told)
    assert told.deadline < 6


def test_stepping_over_at_every_second_look_does_not_help() -> None:
    play = Play()
    for count in range(40):
        actions = play.step(seen(2000 if count % 2 else 500))
        if any(isinstance(a, End) for a in actions):
            return
    raise AssertionError("it was never ended")


def test_stepping_back_in_time_for_the_line_does_not_help_for_ever() -> None:
    play = Play()
    seconds_over = 0
    for _ in range(40):
        for _ in range(5):
            actions = play.step(seen(2000))
            seconds_over += 1
            if any(isinstance(a, End) for a in actions):
                assert seconds_over <= 2.5 * RULES.grace
                return
        for _ in range(3):
            play.step(seen(500))
    raise AssertionError("a saw-tooth was never ended")


sizes = st.lists(st.integers(0, 3000), max_size=4)
script = st.lists(
    st.tuples(sizes, st.booleans(), st.booleans(), st.floats(0.1, 5.0)), min_size=1, max_size=80
)


@given(script, st.sampled_from(Reach), st.sets(st.integers(1, 4)))
def test_always(script: list, reach: Reach, inits: set[int]) -> None:
    rules = Rules(
        reach=reach, grace=8, urgent_grace=2, burst_grace=4, term_grace=2, recovery=60,
        allowance_mib=100, allowance_most_mib=200, evict_after=2, strike_window=100,
    )  # fmt: skip
    case: Case | None = None
    now, asked, over_for, ended = 0.0, {}, 0.0, 0
    for mib, hurting, recalled, passed in script:
        now += passed
        observation = seen(*mib, hurting=hurting, recalled=recalled, inits=inits)
        limit = 1000 + rules.allowance(len(mib))
        case, actions = step(case, observation, rules, now)
        over_for = over_for + min(passed, 2.0) if observation.used > limit else 0.0
        assert 0.0 <= case.spent <= 1.0
        if observation.used <= limit:
            assert not any(isinstance(a, Told | End | Evict) for a in actions)
        pids = {h.process.pid for h in observation.held}
        for action in actions:
            if isinstance(action, End):
                ended += not action.hard
                pid = action.held.process.pid
                assert reach is not Reach.REPORT
                assert pid in pids
                assert over_for >= 0 or case.strikes
                if not action.hard:
                    assert pid not in inits or pids <= inits
                    asked[pid] = now
                elif not any(isinstance(a, Evict) for a in actions):
                    assert now - asked[pid] >= rules.term_grace
            if isinstance(action, Evict):
                assert reach is Reach.EVICT
                assert action.ended >= rules.evict_after
        assert ended or not any(isinstance(a, Evict) for a in actions)


@given(st.integers(1300, 9000), st.floats(0.2, 1.0))
def test_who_stays_over_is_ended_in_time(used: int, period: float) -> None:
    play = Play()
    passed = 0.0
    while not any(isinstance(a, End) for a in play.step(seen(used), period)):
        passed += period
        assert passed <= RULES.grace + 2 * period
