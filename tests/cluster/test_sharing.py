"""Containers get the cards of their placement, and nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.cluster.pods import Pods, container, pod

PAIRS_AT_ONCE = 5
WAVES = 10


def cards_of(pods: Pods, name: str, container_name: str) -> tuple[str, ...]:
    """The cards that the pod's placement gives the container."""
    placed = pods.placement(name).container(container_name)
    return tuple(share.card for share in placed.shares) if placed else ()


def test_equal_pods_never_swap_cards(pods: Pods) -> None:
    """Fifty pairs of equal pods, each pair created at the same moment: the case that guessing a pod
    from its size gets wrong."""
    cards_seen = set()
    for wave in range(WAVES):
        names = [f"pair-{wave}-{i}-{side}" for i in range(PAIRS_AT_ONCE) for side in "ab"]
        with ThreadPoolExecutor(len(names)) as pool:
            list(
                pool.map(lambda n: pods.create(pod(n, container("main", mem=8, once=True))), names)
            )
        for name in names:
            pods.await_pod(name, "Succeeded", lambda p: p.status.phase == "Succeeded", timeout=120)
            sight = pods.sight(name, "main")
            assert sight.cards == cards_of(pods, name, "main"), name
            cards_seen.update(sight.cards)
    assert len(cards_seen) > 1, "all pods landed on one card, so nothing could have been swapped"


def test_two_containers_of_one_pod(pods: Pods) -> None:
    pods.create(pod("two", container("small", mem=3), container("large", mem=5)))
    pods.await_running("two")
    placement = pods.placement("two")
    for name, mib in (("small", 3 * 1024), ("large", 5 * 1024)):
        placed = placement.container(name)
        assert placed is not None
        assert [share.mib for share in placed.shares] == [mib]
        assert pods.sight("two", name).cards == cards_of(pods, "two", name)


def test_sidecar_without_a_request_gets_no_card(pods: Pods) -> None:
    sidecar = container("sidecar") | {"restartPolicy": "Always"}
    pods.create(pod("beside", container("main", mem=3), container("quiet"), init=[sidecar]))
    pods.await_running("beside")
    assert len(pods.sight("beside", "main").cards) == 1
    for name in ("sidecar", "quiet"):
        sight = pods.sight("beside", name)
        assert sight.cards == ()
        assert sight.devices == ()
        assert sight.error, "NVML must not even be there without a slice"


def test_init_container_uses_the_card_that_the_pod_holds(pods: Pods) -> None:
    first = container("first", mem=8, once=True)
    pods.create(pod("staged", container("main", mem=3), init=[first]))
    pods.await_running("staged")
    assert pods.sight("staged", "first").cards == cards_of(pods, "staged", "first")
    assert pods.sight("staged", "main").cards == cards_of(pods, "staged", "main")
    (held,) = pods.placement("staged").footprint().values()
    assert held == (8 * 1024, 0), "the peak of the pod is its init container, not the sum"


def test_percent_and_whole_cards(pods: Pods) -> None:
    pods.create(pod("quarter", container("main", percent=25)))
    pods.create(
        pod("whole", container("main", percent=200), annotations={"gpushare/card-model": "A10"})
    )
    pods.create(pod("both", container("main", mem=4, percent=30)))
    for name in ("quarter", "whole", "both"):
        pods.await_running(name)
        assert pods.sight(name, "main").cards == cards_of(pods, name, "main")
    assert len(pods.sight("whole", "main").cards) == 2
    placed = pods.placement("both").container("main")
    assert placed is not None
    assert [(share.mib, share.percent) for share in placed.shares] == [(4 * 1024, 30)]


def test_one_slice_on_each_of_two_cards(pods: Pods) -> None:
    pods.create(pod("wide", container("main", mem=6), annotations={"gpushare/cards": "2"}))
    pods.await_running("wide")
    assert len(set(pods.sight("wide", "main").cards)) == 2
    assert pods.sight("wide", "main").cards == cards_of(pods, "wide", "main")


def test_model_annotation_is_honoured(pods: Pods) -> None:
    for model, node in (("T4", "t4-1"), ("A10", "a10-1")):
        name = f"on-{model.lower()}"
        pods.create(pod(name, container("main", mem=2), annotations={"gpushare/card-model": model}))
        assert pods.await_running(name).spec.node_name == node


def test_restarted_container_sees_its_card_again(pods: Pods) -> None:
    """The CDI spec is written anew at each start of the container."""
    again = container("main", mem=3, once=True)
    pods.create(pod("again", again, restartPolicy="Always"))
    pods.await_pod(
        "again",
        "restarted",
        lambda p: (
            bool(p.status.container_statuses) and p.status.container_statuses[0].restart_count > 0
        ),
    )
    assert pods.sight("again", "main").cards == cards_of(pods, "again", "main")
