"""What somebody who waits is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpushare.waiting import Leaver, Obstacle, WayOut
from hub_integration.culler_client import CullerAddress, CullerClient, Ending, read_endings
from hub_integration.outlook import competes
from hub_integration.pod_state import Stage
from hub_integration.quota.claims import AtOnce, Claim, Claims
from hub_integration.quota.ledger import Holding
from hub_integration.snapshot import Held
from hub_integration.waiting import Line, starting_view, waiting_view
from hub_integration.waiting_page import render_waiting, waiting_event
from profiles.choice import Person, select
from profiles.reader import loads
from tests.unit.hub_integration.state import FakeExtender, waiting_pod
from tests.unit.hub_integration.test_state_client import LOG

CATALOGUE = loads(
    """
version: 1
profiles:
  - {name: t4, title: "T4 <b>", models: [T4], slices: [{name: 7g, title: 7 GiB, memory: 7GiB}]}
  - {name: cpu, title: no GPU}
"""
)
CHOICE = select(CATALOGUE, {"profile": "t4"}, Person("ann"))


def told(own: Any = None, endings: Any = (), scale_up: str = "", now: float = 1000.0) -> list[str]:
    view = waiting_view(CHOICE, own, endings, None, scale_up, now)
    return [view.headline, *(line.plain for line in view.lines)]


@pytest.mark.parametrize(
    ("place", "of", "expected"),
    [
        (1, 1, "You are next in line for 7 GiB on T4 <b>."),
        (1, 2, "You are next in line for 7 GiB on T4 <b>. 1 waits behind you."),
        (1, 4, "You are next in line for 7 GiB on T4 <b>. 3 wait behind you."),
        (2, 4, "You are 2nd in line for 7 GiB on T4 <b>."),
        (3, 4, "You are 3rd in line for 7 GiB on T4 <b>."),
        (11, 40, "You are 11th in line for 7 GiB on T4 <b>."),
        (22, 40, "You are 22nd in line for 7 GiB on T4 <b>."),
        (0, 0, "You are waiting for 7 GiB on T4 <b>."),
    ],
)
def test_the_place(place: int, of: int, expected: str) -> None:
    assert told(waiting_pod("p", place=place, of=of)) == [expected]


def test_without_the_extender_the_wish_is_told() -> None:
    assert told() == ["You are waiting for 7 GiB on T4 <b>."]
    assert told(scale_up="A node is added.")[1:] == ["A node is added."]


def ending(pod: str, idle: float = 0, ends: float | None = None, model: str = "Tesla T4") -> Ending:
    return Ending("jupyter", pod, frozenset({model}), idle, ends)


def blocked(*ways: tuple[str, ...], free: int = 2048) -> Any:
    leavers = [tuple(Leaver("jupyter", pod, pod, 7168, 0) for pod in way) for way in ways]
    return waiting_pod(
        "p",
        reasons=(Obstacle("n", "GPU-1", 0, "T4", free, 100, "memory"),),
        would_end=tuple(WayOut("n", "GPU-1", slices) for slices in leavers),
    )


def test_the_soonest_way_out_is_that_whose_last_slice_ends_first() -> None:
    ends = [ending("a", ends=2000), ending("b", ends=9000), ending("c", ends=5000)]
    assert told(blocked(("a", "b"), ("c",)), ends)[1] == (
        "Room comes back at 01:23 UTC if what is there stays unused."
    )
    # Of b nothing ends the other one, so that way is none.
    assert len(told(blocked(("b", "unknown")), ends)) == 2
    assert not any("Room" in line for line in told(blocked(("b", "unknown")), ends))


def test_what_should_have_ended_long_ago_is_no_promise() -> None:
    assert not any("Room" in line for line in told(blocked(("a",)), [ending("a", ends=500)]))


def test_idle_ones_are_counted_on_such_cards_alone() -> None:
    idle = [
        ending("a", idle=1300),
        ending("b", idle=1300, model="NVIDIA A10"),
        ending("c", idle=60),
    ]
    assert told(blocked(("a",)), idle)[1] == (
        "One notebook on such cards has been idle for more than 20 minutes."
    )


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (2048, ["The largest piece of such a card that is free is 2 GiB."]),
        (0, ["All such cards are full."]),
        (-100, ["All such cards are full."]),
        (9000, []),
    ],
)
def test_what_is_there_is_told(free: int, expected: list[str]) -> None:
    assert told(blocked(free=free))[1:] == expected


def test_nothing_unescaped_reaches_the_page() -> None:
    view = waiting_view(CHOICE, waiting_pod("p"), (), None, "{at} <i>", 0.0)
    html = render_waiting(view)
    assert "<b>" not in html
    assert "{at} &lt;i&gt;" in html
    assert "<b>" not in waiting_event(view)["html_message"]
    assert Line("at {at}", 0.0).html == (
        'at <time datetime="1970-01-01T00:00:00Z">00:00 UTC</time>'
    )


def test_a_start_without_a_wait() -> None:
    assert starting_view(CHOICE, Stage.UNSEEN, "", "").headline == "Your server is being set up."
    placed = starting_view(CHOICE, Stage.STARTING, "t4-1", "The image is on the node.")
    assert placed.text == (
        "7 GiB on T4 <b> is yours, on t4-1. The server starts. The image is on the node."
    )
    cpu = select(CATALOGUE, {"profile": "cpu"}, Person("ann"))
    assert starting_view(cpu, Stage.STARTING, "n", "").headline.startswith(
        "A place was found, on n"
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (["T4"], ["T4"], True),
        (["T4"], ["Tesla T4"], True),
        (["T4"], ["A10"], False),
        (["A10"], ["A100"], False),
        ([], ["T4"], True),
        (["T4", "A10"], ["A10"], True),
    ],
)
def test_who_competes(one: list[str], other: list[str], expected: bool) -> None:
    assert competes(one, other) is expected
    assert competes(other, one) is expected


# The culler


def verdicts(**more: Any) -> dict[str, Any]:
    one = {
        "namespace": "jupyter",
        "pod": "a",
        "slices": [{"model": "Tesla T4"}],
        "idle_seconds": None,
        "ends_at": "1970-01-01T00:10:00Z",
    }
    return {"dry_run": False, "verdicts": [one, {**one, "slices": []}], **more}


def test_verdicts_are_read() -> None:
    assert read_endings(json.dumps(verdicts()).encode()) == (ending("a", 0.0, 600.0),)
    # Where nobody is really ended, nothing may be promised.
    assert read_endings(json.dumps(verdicts(dry_run=True)).encode()) == ()
    for bad in ({}, {"verdicts": [{}]}, [], {"verdicts": None}):
        with pytest.raises(ValueError, match=r"no list|lacks a field"):
            read_endings(json.dumps(bad).encode())


async def test_an_absent_culler_is_no_trouble() -> None:
    away = CullerClient(CullerAddress("http://127.0.0.1:1"), LOG)
    assert await away.endings() == ()
    with FakeExtender({}) as service:
        service.paths["/api/verdicts"] = verdicts()
        asked = CullerClient(CullerAddress(service.url, "secret"), LOG)
        assert len(await asked.endings()) == 1
        assert len(await asked.endings()) == 1
    assert [r["Authorization"] for r in service.requests] == ["token secret"]


# What users have at once

ANN = Holding("u", "GPU-1", "ann", "jupyter", "pod-1", "n", "Tesla T4", 3072, 0)


def at_once(claims: Claims, *held: Held, waiting: Any = (), besides: str = "new") -> AtOnce:
    return claims.at_once({"ann"}, held, waiting, besides=("jupyter", besides), namespace="jupyter")


def test_each_server_counts_once_wherever_it_is_known_from() -> None:
    claims = Claims()
    claims.put(("jupyter", "pod-1"), Claim("ann", 3072))
    claims.put(("jupyter", "pod-2"), Claim("ann", 7168))
    claims.put(("jupyter", "pod-3"), Claim("bob", 7168))
    waiting = [waiting_pod("pod-2", user="ann")]
    assert at_once(claims, Held(ANN, False), waiting=waiting) == AtOnce(2, 3072 + 7168)
    assert at_once(claims, Held(ANN, False), besides="pod-1") == AtOnce(1, 7168)
    claims.drop(("jupyter", "pod-2"))
    assert at_once(claims, Held(ANN, False)) == AtOnce(1, 3072)
    assert at_once(Claims(), Held(ANN, True)) == AtOnce(0, 0)  # it is on its way out
