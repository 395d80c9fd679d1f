"""A full cluster: waiting says why, and freed capacity is taken without any human act."""

from __future__ import annotations

from tests.cluster.inspection import inspect
from tests.cluster.pods import Pods, container, pod


def fill(pods: Pods) -> list[str]:
    """One pod for each card, which takes all of its units; their names, T4s first."""
    names = []
    for model, units, count in (("T4", 15, 2), ("A10", 22, 4)):
        for i in range(count):
            annotations = {"gpushare/card-model": model}
            main = container("main", mem=units)
            names.append(
                pods.create(pod(f"fill-{model.lower()}-{i}", main, annotations=annotations))
            )
    for name in names:
        pods.await_running(name, timeout=120)
    return names


def test_full_cards_make_the_next_pod_wait_and_a_leaver_starts_it(pods: Pods) -> None:
    names = fill(pods)
    free = [card["free_mib"] for node in inspect()["nodes"] for card in node["cards"]]
    assert max(free) < 1024, "a whole unit is still free somewhere"

    pods.create(pod("next", container("main", mem=3)))
    message = pods.await_event("next", "3 GiB")
    assert "t4-1" in message or "on one card" in message, message
    explained = pods.await_event("next", "card 0")
    assert "T4" in explained
    assert pods.read("next").status.phase == "Pending"

    pods.delete(names[0])
    started = pods.await_running("next", timeout=40)
    assert started.spec.node_name == "t4-1"
    assert pods.sight("next", "main").cards
