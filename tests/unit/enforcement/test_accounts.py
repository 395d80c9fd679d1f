"""Processes to pods, and what is left over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.accounts import ProcessInfo, account, biggest
from device_plugin.enforcement.cgroup import Owner

from .making import CARD, OTHER_CARD, container_id, held, pod_slice, process, uid

SLICES = {uid(n): pod_slice(n) for n in (1, 2)} | {uid(3): pod_slice(3, card=OTHER_CARD)}


def test_all_processes_of_a_pod_are_one_sum() -> None:
    processes = {n: process(n, pod=1) for n in (10, 11, 12)}
    processes[13] = process(13, pod=1, container=77)  # a container that we know nothing of
    book = account(CARD, {10: 100, 11: 200, 12: 300, 13: 400}, processes, SLICES)
    assert {pod: use.mib for pod, use in book.pods.items()} == {uid(1): 1000}
    assert [h.container for h in book.pods[uid(1)].held] == ["notebook"] * 3 + [""]
    assert not book.strays


def test_what_belongs_to_no_slice_of_this_card_is_a_stray() -> None:
    processes = {
        10: process(10),
        11: process(11, pod=3),  # it has a slice, on another card
        12: process(12, pod=9),  # it has none at all
    }
    book = account(CARD, {10: 1, 11: 2, 12: 4, 13: 8}, processes, SLICES, expected={10})
    assert not book.pods
    assert [(s.process.pid, s.mib, s.pod_uid, s.expected) for s in book.strays] == [
        (10, 1, "", True),
        (11, 2, uid(3), False),
        (12, 4, uid(9), False),
        (13, 8, "", False),  # it could not even be looked at
    ]
    assert book.stray_mib == 15


def test_memory_that_the_driver_does_not_tell_is_counted_as_untold() -> None:
    book = account(CARD, {10: None, 11: 5}, {n: process(n, pod=1) for n in (10, 11)}, SLICES)
    assert (book.untold, book.pods[uid(1)].mib) == (1, 5)


def test_a_nested_pod_counts_as_the_pod_around_it() -> None:
    nested = ProcessInfo(10, 10, owners=(Owner(uid(1), container_id(1)), Owner(uid(2), "")))
    book = account(CARD, {10: 100}, {10: nested}, SLICES)
    assert list(book.pods) == [uid(1)]


pods = st.one_of(st.none(), st.integers(1, 5))
cards = st.dictionaries(st.integers(1, 500), st.tuples(st.integers(0, 9000), pods), max_size=40)


@given(cards)
def test_every_mib_is_somebodys_and_nobodys_twice(found: dict) -> None:
    memory = {pid: mib for pid, (mib, _) in found.items()}
    processes = {pid: process(pid, pod) for pid, (_, pod) in found.items()}
    book = account(CARD, memory, processes, SLICES)
    assert sum(u.mib for u in book.pods.values()) + book.stray_mib == sum(memory.values())
    counted = [h.process.pid for u in book.pods.values() for h in u.held]
    counted += [s.process.pid for s in book.strays]
    assert sorted(counted) == sorted(memory)
    for pod, use in book.pods.items():
        assert all(h.process.owners[0].pod_uid == pod for h in use.held)


@given(st.lists(st.integers(0, 100), max_size=6), st.sets(st.integers(1, 6)))
def test_the_biggest_and_never_a_first_process_while_another_is_there(
    sizes: list[int], inits: set[int]
) -> None:
    processes = [held(pid, mib) for pid, mib in enumerate(sizes, 1)]
    found = biggest(processes, inits)
    if not processes:
        assert found is None
        return
    assert found is not None
    others = [h for h in processes if h.process.pid not in inits]
    assert found.known_mib == max(h.known_mib for h in (others or processes))
    assert not others or found.process.pid not in inits
