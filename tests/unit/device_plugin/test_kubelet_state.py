from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from device_plugin.kubelet_state import KubeletState

from .fake_kubelet import FakeKubelet, Grant
from .making import MEM, PERCENT
from .waiting import until

ALICE = Grant("jupyter", "alice", "u1", "main", {MEM: ["m1", "m2"]})
IDS = frozenset({"m1", "m2"})


@pytest.fixture
async def kubelet(short_path: Path) -> AsyncIterator[FakeKubelet]:
    kubelet = FakeKubelet(short_path)
    kubelet.grant(ALICE)
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
async def state(kubelet: FakeKubelet) -> AsyncIterator[KubeletState]:
    state = KubeletState(kubelet.pod_resources, kubelet.checkpoint, (MEM, PERCENT), timeout=1.0)
    yield state
    await state.close()


async def test_both_ways_are_asked(state: KubeletState) -> None:
    seen = await state.see()
    (holder,) = seen.find(MEM, IDS)
    assert (holder.namespace, holder.name, holder.uid, holder.container) == (
        "jupyter",
        "alice",
        "u1",
        "main",
    )
    assert seen.problem == ""


async def test_calls_at_once_share_answers_and_none_is_older_than_its_question(
    state: KubeletState, kubelet: FakeKubelet
) -> None:
    kubelet.answer_after = asyncio.Event()
    first = asyncio.create_task(state.see())
    await until(lambda: kubelet.lists == 1)
    kubelet.grant()  # the pod has gone since the first question
    later = [asyncio.create_task(state.see()) for _ in range(30)]
    await asyncio.sleep(0)
    kubelet.answer_after.set()
    await first
    answers = await asyncio.gather(*later)
    assert kubelet.lists == 2
    assert all(not seen.find(MEM, IDS) for seen in answers)


async def test_a_kubelet_that_refuses_for_a_moment_is_asked_again(
    state: KubeletState, kubelet: FakeKubelet
) -> None:
    kubelet.refuse = [grpc.StatusCode.RESOURCE_EXHAUSTED]
    seen = await state.see()
    assert seen.listed is not None
    assert kubelet.lists == 2


async def test_a_slow_kubelet_leaves_the_checkpoint(
    state: KubeletState, kubelet: FakeKubelet
) -> None:
    kubelet.answer_after = asyncio.Event()
    seen = await state.see()
    assert seen.listed is None
    assert "DEADLINE_EXCEEDED" in seen.problem
    (holder,) = seen.find(MEM, IDS)
    assert holder.uid == "u1"


async def test_a_corrupt_checkpoint_leaves_the_list(
    state: KubeletState, kubelet: FakeKubelet
) -> None:
    kubelet.checkpoint.write_text('{"Data": ')
    seen = await state.see()
    assert seen.checkpointed is None
    assert "checkpoint" in seen.problem
    (holder,) = seen.find(MEM, IDS)
    assert holder.name == "alice"


async def test_neither_is_blindness(state: KubeletState, kubelet: FakeKubelet) -> None:
    kubelet.checkpoint.unlink()
    await kubelet.stop()
    assert (await state.see()).blind


async def test_a_kubelet_that_comes_back_is_found_soon(
    state: KubeletState, kubelet: FakeKubelet
) -> None:
    await state.see()
    await kubelet.stop()
    assert (await state.see()).listed is None
    await kubelet.start()
    for _ in range(60):
        if (await state.see()).listed is not None:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the kubelet is there again and was not asked")
