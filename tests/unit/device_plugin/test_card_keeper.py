from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from device_plugin.card_book import CardBook, Selection
from device_plugin.card_health import Rules
from device_plugin.card_keeper import CardKeeper, Pace
from device_plugin.nvml_thread import NvmlStuck, NvmlThread
from device_plugin.physical_card import Driver, DriverReplaced, NoDriver, PhysicalCard, XidEvent

from .making import A10, T4_0, T4_1, physical
from .waiting import until

PACE = Pace(probe=0.02, retry=0.02, limit=0.2)


class Source:
    """Cards in memory. Everything that a driver can do to us, on demand."""

    def __init__(self, *cards: PhysicalCard) -> None:
        self.present = list(cards)
        self.counted: list[PhysicalCard] | None = None
        self.error: Exception | None = None
        self.hang: threading.Event | None = None
        self.xids: queue.SimpleQueue[XidEvent] = queue.SimpleQueue()
        self.waiting = False
        self.closed_while_waiting = False
        self.opened = 0

    def _come_through(self) -> None:
        if self.hang is not None:
            self.hang.wait()
        if self.error is not None:
            raise self.error

    def open(self) -> Driver:
        self._come_through()
        if self.counted is None:
            self.opened += 1
            self.counted = list(self.present)
        return Driver("570.1", "12.8")

    def cards(self) -> Sequence[PhysicalCard]:
        self._come_through()
        here = {card.uuid: card for card in self.present}
        return [here[card.uuid] for card in self.counted or [] if card.uuid in here]

    def close(self) -> None:
        self.closed_while_waiting |= self.waiting
        self.counted = None

    def watch(self, uuids: Sequence[str]) -> Sequence[str]:
        self._come_through()
        return []

    def wait(self, seconds: float) -> XidEvent | None:
        self.waiting = True
        try:
            return self.xids.get(timeout=min(seconds, 0.02))
        except queue.Empty:
            return None
        finally:
            self.waiting = False


def book(**more: object) -> CardBook:
    return CardBook(Selection(**more), Rules(recover_after=3))  # type: ignore[arg-type]


@asynccontextmanager
async def keeping(source: Source, of: CardBook, pace: Pace = PACE) -> AsyncIterator[CardKeeper]:
    keeper = CardKeeper(source, of, pace, lambda why: None)
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        if source.hang is not None:
            source.hang.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def healths(of: CardBook) -> list[str]:
    return [card.health for card in of.cards()]


async def test_cards_are_found() -> None:
    cards, source = book(), Source(physical(T4_1), physical(T4_0))
    async with keeping(source, cards):
        await until(lambda: cards.asked)
        assert cards.cards() == (T4_0, T4_1)
        assert cards.problem == ""
        assert cards.driver == Driver("570.1", "12.8")


async def test_which_cards_are_ours_is_a_setting() -> None:
    source = Source(physical(T4_0), physical(T4_1), physical(A10))
    for selection, ours in (
        ({"include": ("tesla*",)}, [0, 1]),
        ({"exclude": ("GPU-AAAA",)}, [1, 2]),
        ({"include": ("0", "2"), "exclude": ("*a10",)}, [0]),
    ):
        cards = book(**selection)
        async with keeping(source, cards):
            await until(lambda cards=cards: cards.asked)  # type: ignore[misc]
            assert [card.index for card in cards.cards()] == ours


async def test_no_driver_is_waited_for_with_the_reason() -> None:
    cards, source = book(), Source(physical(T4_0))
    source.error = NoDriver("there is no libnvidia-ml.so.1")
    told: list[str] = []
    cards.listen(lambda: told.append(cards.problem))
    async with keeping(source, cards):
        await until(lambda: cards.problem == "there is no libnvidia-ml.so.1")
        await asyncio.sleep(0.1)
        assert told == ["there is no libnvidia-ml.so.1"]
        source.error = None
        await until(lambda: cards.cards() == (T4_0,))
        assert cards.problem == ""


async def test_a_driver_that_hangs_makes_cards_unhealthy_and_stops_nothing() -> None:
    cards, source = book(), Source(physical(T4_0))
    async with keeping(source, cards):
        await until(lambda: cards.cards() == (T4_0,))
        told: list[str] = []
        cards.listen(lambda: told.append(healths(cards)[0]))
        source.hang = threading.Event()
        await until(lambda: "does not return" in healths(cards)[0])
        await asyncio.sleep(0.1)  # several probes, and nothing new to tell
        assert len(told) == 1
        lag = time.perf_counter()
        await asyncio.sleep(0.01)
        assert time.perf_counter() - lag < 0.15
        source.hang.set()
        source.hang = None
        await until(lambda: healths(cards) == ["ok"])


async def test_a_lost_card_stays_in_the_book_and_may_come_back() -> None:
    cards, source = book(), Source(physical(T4_0), physical(T4_1))
    async with keeping(source, cards):
        await until(lambda: len(cards.cards()) == 2)
        source.present.pop(1)
        await until(lambda: "does not answer" in healths(cards)[1])
        assert healths(cards)[0] == "ok"
        source.present.append(physical(T4_1))
        await until(lambda: healths(cards) == ["ok", "ok"])
        assert source.opened >= 2


async def test_what_a_probe_finds_shows() -> None:
    cards, source = book(), Source(physical(T4_0))
    async with keeping(source, cards):
        await until(lambda: cards.asked)
        source.present = [physical(T4_0, "2 uncorrectable ECC error(s)")]
        await until(lambda: "ECC" in healths(cards)[0])
        source.present = [physical(T4_0)]
        await until(lambda: healths(cards) == ["ok"])


async def test_xids_reach_the_book_and_clean_probes_end_them() -> None:
    cards, source = book(), Source(physical(T4_0), physical(T4_1))
    slow = replace(PACE, probe=0.3)
    async with keeping(source, cards, slow):
        await until(lambda: cards.asked)
        source.xids.put(XidEvent(T4_0.uuid, 31))
        source.xids.put(XidEvent(T4_0.uuid, 48))
        await until(lambda: "XID 48" in healths(cards)[0], 0.25)
        assert healths(cards)[1] == "ok"
        await until(lambda: healths(cards) == ["ok", "ok"])


async def test_an_xid_of_an_unknown_card_counts_for_all() -> None:
    cards, source = book(), Source(physical(T4_0), physical(T4_1))
    async with keeping(source, cards, replace(PACE, probe=5.0)):
        await until(lambda: cards.asked)
        source.xids.put(XidEvent("", 79))
        await until(lambda: all("XID 79" in health for health in healths(cards)))


async def test_the_library_is_not_closed_under_a_waiting_call() -> None:
    cards, source = book(), Source(physical(T4_0))
    async with keeping(source, cards) as keeper:
        for _ in range(5):
            before = source.opened
            keeper.look_now()
            await until(lambda before=before: source.opened > before)  # type: ignore[misc]
    assert not source.closed_while_waiting


async def test_a_replaced_driver_ends_the_process() -> None:
    cards, source = book(), Source(physical(T4_0))
    source.error = DriverReplaced("the library is of the driver before")
    said: list[str] = []
    task = asyncio.create_task(CardKeeper(source, cards, PACE, said.append).run())
    await until(lambda: bool(said))
    task.cancel()


async def test_a_cordon_is_told_to_the_cluster_and_not_to_placed_containers() -> None:
    cards, source = book(), Source(physical(T4_0), physical(T4_1))
    async with keeping(source, cards):
        await until(lambda: cards.asked)
        cards.cordon(["0", T4_1.uuid])
        assert healths(cards) == ["cordoned", "cordoned"]
        assert all(card.healthy for card in cards.startable().values())
        cards.cordon([])
        assert healths(cards) == ["ok", "ok"]


async def test_other_parts_may_hold_something_against_a_card() -> None:
    cards, source = book(), Source(physical(T4_0), physical(T4_1))
    async with keeping(source, cards):
        await until(lambda: cards.asked)
        cards.blame("mps", {T4_0.uuid: "its MPS server died"})
        cards.blame("claims", {T4_0.uuid: "it is handed out as nvidia.com/gpu too"})
        assert healths(cards) == [
            "its MPS server died; it is handed out as nvidia.com/gpu too",
            "ok",
        ]
        assert not cards.startable()[T4_0.uuid].healthy
        cards.blame("claims", {})
        cards.blame("mps", {T4_0.uuid: ""})
        assert healths(cards) == ["ok", "ok"]


async def test_memory_that_strangers_hold_is_published() -> None:
    cards, source = book(), Source(physical(T4_0))
    async with keeping(source, cards):
        await until(lambda: cards.asked)
        cards.set_taken({T4_0.uuid: 512})
        assert cards.cards() == (replace(T4_0, taken=512),)


async def test_calls_do_not_pile_up_behind_one_that_hangs() -> None:
    thread, release = NvmlThread(), threading.Event()
    ran: list[int] = []
    with pytest.raises(NvmlStuck):
        await thread.call(release.wait, 0.05)
    for i in range(10):
        with pytest.raises(NvmlStuck):
            await thread.call(lambda i=i: ran.append(i), 0.05)  # type: ignore[misc]
    release.set()
    async with asyncio.timeout(2):
        while True:
            try:
                assert await thread.call(lambda: 7, 0.5) == 7
                break
            except NvmlStuck:
                await asyncio.sleep(0.01)
    assert ran == []
    thread.stop()


async def test_errors_come_out_of_the_thread() -> None:
    thread = NvmlThread()
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 // 0, 1.0)
    assert await thread.call(lambda: "still there", 1.0) == "still there"
    thread.stop()
