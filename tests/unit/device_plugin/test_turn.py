from __future__ import annotations

from typing import Any

import pytest

from device_plugin.turn import whose_turn
from gpushare.placement import Share
from gpushare.request import Role

from .making import T4_0, T4_1, app, container, pod

ON_0, ON_1 = Share(T4_0.uuid, 3072, 0), Share(T4_1.uuid, 3072, 0)
PREP, PREP_2 = app("prep", ON_1, role=Role.INIT), app("prep2", ON_0, role=Role.INIT)
MAIN = app("main", ON_0)
SUCCEEDED = {"terminated": {"exitCode": 0}}
FAILED = {"terminated": {"exitCode": 1}}


def with_inits(**states: dict[str, Any]) -> dict[str, Any]:
    statuses = [{"name": name, "state": state} for name, state in states.items()]
    return pod(container("main", 3), status={"initContainerStatuses": statuses})


@pytest.mark.parametrize(
    ("states", "last_started", "expected"),
    [
        ({}, None, "prep"),
        ({"prep": {"waiting": {}}}, None, "prep"),
        ({"prep": SUCCEEDED}, "prep", "main"),
        ({"prep": SUCCEEDED}, None, "main"),
        ({"prep": FAILED}, "prep", "prep"),
        ({"prep": {"waiting": {"reason": "CrashLoopBackOff"}}}, "prep", "prep"),
        # It ran, and its end has not reached the API server: nobody can tell yet.
        ({"prep": {"running": {}}}, "prep", None),
        ({}, "prep", None),
    ],
)
def test_one_init_container(
    states: dict[str, dict[str, Any]], last_started: str | None, expected: str | None
) -> None:
    turn = whose_turn([MAIN, PREP], with_inits(**states), last_started)
    assert (turn.name if turn else None) == expected


def test_init_containers_come_in_their_order() -> None:
    candidates = [PREP, PREP_2, MAIN]
    third = app("main", ON_1)
    assert whose_turn(candidates, with_inits(), None) is PREP
    assert whose_turn(candidates, with_inits(prep=SUCCEEDED), "prep") is PREP_2
    done = with_inits(prep=SUCCEEDED, prep2=SUCCEEDED)
    assert whose_turn([PREP, PREP_2, third], done, "prep2") is third


def test_equal_shares_need_no_telling_apart() -> None:
    same = app("prep", ON_0, role=Role.INIT)
    running = with_inits(prep={"running": {}})
    turn = whose_turn([same, MAIN], running, "prep")
    assert turn is not None
    assert turn.shares == MAIN.shares
