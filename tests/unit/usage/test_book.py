"""Sums, peaks and clocks, and that a restart forgets none of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.accounts import account
from device_plugin.usage.book import UsageBook
from device_plugin.usage.sample import CardActivity
from device_plugin.usage.shelf import Shelf

from ..enforcement.making import CARD, OTHER_CARD, pod_slice, process, uid

SLICES = {uid(n): pod_slice(n) for n in (1, 2)}


def look(
    book: UsageBook, now: float, memory: dict[int, int], busy: CardActivity | None = None
) -> None:
    """Process 1x is of pod 1, 2x of pod 2."""
    processes = {pid: process(pid, pid // 10) for pid in memory}
    found = account(CARD, memory, processes, SLICES)
    book.read(CARD, found, now)
    if busy is not None:
        book.activity(CARD, found, busy, now)


@pytest.fixture
def book() -> UsageBook:
    book = UsageBook()
    for pod in SLICES:
        book.open(pod, CARD, 100.0)
    return book


def test_now_and_peak(book: UsageBook) -> None:
    look(book, 101, {11: 300, 12: 400, 21: 50})
    look(book, 102, {11: 100})
    one, two = (book.entries[uid(n), CARD] for n in (1, 2))
    assert (one.total.used, one.total.peak, one.total.processes) == (100, 700, 1)
    assert (two.total.used, two.total.peak) == (0, 50)
    assert (one.containers["notebook"].used, one.containers["notebook"].peak) == (100, 700)


def test_when_a_kernel_last_ran(book: UsageBook) -> None:
    look(book, 101, {11: 300, 12: 300, 21: 50}, CardActivity(90, {11: 30, 12: 45}))
    look(book, 106, {11: 300, 12: 300, 21: 50}, CardActivity(0, {}))
    one, two = (book.entries[uid(n), CARD].total for n in (1, 2))
    assert (one.last_kernel, one.sm) == (101, 0)
    assert (two.last_kernel, two.sm) == (None, 0)


def test_a_tiny_kernel_counts_though_it_rounds_to_nothing(book: UsageBook) -> None:
    look(book, 101, {11: 300}, CardActivity(1, {11: 0}))
    assert book.entries[uid(1), CARD].total.last_kernel == 101


def test_time_over_the_limit(book: UsageBook) -> None:
    book.over(uid(1), CARD, True, 1.0, 101)
    book.over(uid(1), CARD, True, 1.0, 102)
    entry = book.entries[uid(1), CARD]
    assert (entry.over_seconds, entry.over_since) == (2.0, 101)
    book.over(uid(1), CARD, False, 1.0, 103)
    assert (entry.over_seconds, entry.over_since) == (2.0, None)


def test_what_is_no_slice_any_more_is_struck_out(book: UsageBook) -> None:
    book.open(uid(1), OTHER_CARD, 100.0)
    book.keep_only([(uid(2), CARD)])
    assert list(book.entries) == [(uid(2), CARD)]


def test_a_restart(book: UsageBook, tmp_path) -> None:
    look(book, 101, {11: 300}, CardActivity(90, {11: 30}))
    book.over(uid(1), CARD, True, 7.5, 101)
    book.entries[uid(1), CARD].ended = 2
    Shelf(tmp_path / "state", book).save()
    again = UsageBook()
    Shelf(tmp_path / "state", again).load()
    entry = again.open(uid(1), CARD, 500.0)
    assert (entry.since, entry.over_seconds, entry.ended) == (100.0, 7.5, 2)
    assert (entry.total.peak, entry.total.last_kernel, entry.total.used) == (300, 101, 0)
    assert (tmp_path / "state" / "usage.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"v": 2, "entries": []}', '{"v": 1, "entries": [{}]}', "[" * 9999]
)
def test_a_broken_file_is_a_fresh_start(text: str, tmp_path, caplog) -> None:
    (tmp_path / "usage.json").write_text(text)
    book = UsageBook()
    Shelf(tmp_path, book).load()
    assert book.entries == {}
    assert "is lost" in caplog.text


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path, caplog) -> None:
    (tmp_path / "file").write_text("")
    shelf = Shelf(tmp_path / "file" / "sub", UsageBook())
    shelf.save()
    shelf.save()
    assert caplog.text.count("cannot be saved") == 1


looks = st.lists(
    st.dictionaries(st.sampled_from([11, 12, 13, 21, 22]), st.integers(0, 9000)), max_size=12
)


@given(looks)
def test_the_books_balance(memories: list[dict[int, int]]) -> None:
    book = UsageBook()
    for pod in SLICES:
        book.open(pod, CARD, 0.0)
    peaks = dict.fromkeys((1, 2), 0)
    for now, memory in enumerate(memories):
        look(book, now, memory)
        for pod in (1, 2):
            total = sum(mib for pid, mib in memory.items() if pid // 10 == pod)
            peaks[pod] = max(peaks[pod], total)
            entry = book.entries[uid(pod), CARD]
            assert entry.total.used == total == sum(m.used for m in entry.containers.values())
            assert entry.total.peak == peaks[pod]
    again = UsageBook()
    again.load(book.dump())
    assert {k: e.total.peak for k, e in again.entries.items()} == {
        k: e.total.peak for k, e in book.entries.items()
    }
