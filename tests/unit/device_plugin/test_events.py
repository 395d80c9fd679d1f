from __future__ import annotations

from dataclasses import replace

from device_plugin.events import RECOVERED, UNHEALTHY, news
from device_plugin.slice_specs import Record

from .making import T4_0, T4_1

SICK = replace(T4_0, health="XID 79")
WELL = {card.uuid: card for card in (T4_0, T4_1)}


def record(name: str, card: str = T4_0.uuid, container: str = "main") -> Record:
    return Record(f"uid-{name}", "jupyter", name, container, (card,), {card: (1024, 0)})


def test_a_node_and_the_pods_on_the_card_are_told_once_each() -> None:
    records = [record("alice"), record("alice", container="side"), record("bob", T4_1.uuid)]
    told = news(WELL, [SICK, T4_1], records)
    assert [(n.reason, n.pod.name if n.pod else None) for n in told] == [
        (UNHEALTHY, None),
        (UNHEALTHY, "alice"),
    ]
    assert "XID 79" in told[1].message
    assert "save your work" in told[1].message
    assert all(n.warning for n in told)


def test_the_good_end_is_told_too() -> None:
    told = news({T4_0.uuid: SICK, T4_1.uuid: T4_1}, [T4_0, T4_1], [record("alice")])
    assert [(n.reason, n.warning) for n in told] == [(RECOVERED, False)] * 2


def test_nothing_new_is_no_news() -> None:
    assert news({}, [T4_0, T4_1], []) == []
    assert news(WELL, [T4_0, T4_1], []) == []
    assert news({T4_0.uuid: SICK}, [SICK], [record("alice")]) == []


def test_another_reason_is_news() -> None:
    (told,) = news({T4_0.uuid: SICK}, [replace(SICK, health="XID 48")], [])
    assert "XID 48" in told.message


def test_a_card_that_is_sick_from_the_start_is_told() -> None:
    (told,) = news({}, [SICK], [])
    assert told.reason == UNHEALTHY
