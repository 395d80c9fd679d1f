from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from device_plugin.api import deviceplugin_pb2 as api
from device_plugin.ids import slice_hash
from device_plugin.refusal import Code, Refused
from device_plugin.registration import Registration
from device_plugin.service import Service

from .fake_kubelet import FakeKubelet
from .making import MEM, NAMES, PERCENT
from .waiting import until


class Side:
    """Our side: two services and their registration, with a scripted ``prepare``."""

    def __init__(self, folder: Path) -> None:
        self.prepared: list[tuple[str, frozenset[str]]] = []
        self.error: Exception | None = None
        self.observed: list[str] = []
        self.services = [
            Service(
                resource, NAMES, self._prepare, lambda seconds, result: self.observed.append(result)
            )
            for resource in (MEM, PERCENT)
        ]
        self.registration = Registration(folder, self.services)

    async def _prepare(self, resource: str, ids: frozenset[str]) -> None:
        self.prepared.append((resource, ids))
        if self.error is not None:
            raise self.error

    async def offer(self, **ids: bool) -> None:
        for service in self.services:
            await service.offer(ids)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.registration.run())
        try:
            yield
        finally:
            for service in self.services:
                await service.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def kubelet(short_path: Path) -> AsyncIterator[FakeKubelet]:
    kubelet = FakeKubelet(short_path)
    yield kubelet
    await kubelet.stop()


@pytest.fixture
async def side(kubelet: FakeKubelet) -> Side:
    side = Side(kubelet.folder)
    await side.offer(m0=True, m1=True)
    return side


def listened_to(kubelet: FakeKubelet) -> bool:
    plugins = kubelet.plugins
    return set(plugins) == {MEM, PERCENT} and all(p.lists for p in plugins.values())


async def test_both_resources_are_registered_with_what_the_kubelet_needs(
    kubelet: FakeKubelet, side: Side
) -> None:
    await kubelet.start()
    async with side.running():
        await until(lambda: listened_to(kubelet))
        plugin = kubelet.plugins[MEM]
        assert plugin.request.version == "v1beta1"
        assert plugin.options.pre_start_required
        assert plugin.request.options.pre_start_required
        assert plugin.lists == [{"m0": "Healthy", "m1": "Healthy"}]
        await until(lambda: side.registration.registered)


async def test_allocate_answers_a_cdi_name_and_nothing_else(
    kubelet: FakeKubelet, side: Side
) -> None:
    await kubelet.start()
    async with side.running():
        await until(lambda: listened_to(kubelet))
        wanted = api.ContainerAllocateRequest(devices_ids=["m1", "m0"])
        request = api.AllocateRequest(container_requests=[wanted, wanted])
        answer = await kubelet.plugins[MEM].stub.Allocate(request)
        name = f"gpushare/slice={slice_hash(MEM, ['m0', 'm1'])}"
        expected = api.ContainerAllocateResponse(cdi_devices=[api.CDIDevice(name=name)])
        assert list(answer.container_responses) == [expected, expected]


async def test_a_refusal_reaches_the_kubelet_as_a_sentence(
    kubelet: FakeKubelet, side: Side
) -> None:
    await kubelet.start()
    async with side.running():
        await until(lambda: listened_to(kubelet))
        stub = kubelet.plugins[MEM].stub
        request = api.PreStartContainerRequest(devices_ids=["m0"])
        await stub.PreStartContainer(request)
        assert side.prepared == [(MEM, frozenset({"m0"}))]
        side.error = Refused(Code.NOT_PLACED)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.PreStartContainer(request)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "not placed by the gpushare scheduler" in str(caught.value.details())
        assert side.observed == ["started", "not-placed"]


async def test_a_fault_of_ours_lets_nothing_start_and_does_not_end_the_plugin(
    kubelet: FakeKubelet, side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    await kubelet.start()
    async with side.running():
        await until(lambda: listened_to(kubelet))
        stub = kubelet.plugins[MEM].stub
        request = api.PreStartContainerRequest(devices_ids=["m0"])
        side.error = ZeroDivisionError("secret")
        with caplog.at_level(logging.ERROR), pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.PreStartContainer(request)
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert "secret" not in str(caught.value.details())
        side.error = None
        await stub.PreStartContainer(request)


async def test_each_change_is_told_once_and_as_a_whole(kubelet: FakeKubelet, side: Side) -> None:
    await kubelet.start()
    async with side.running():
        await until(lambda: listened_to(kubelet))
        await side.offer(m0=True, m1=True)
        await side.offer(m0=False, m1=False)
        plugin = kubelet.plugins[MEM]
        await until(lambda: len(plugin.lists) == 2)
        assert plugin.lists[-1] == {"m0": "Unhealthy", "m1": "Unhealthy"}


async def test_a_kubelet_that_comes_later_is_found(kubelet: FakeKubelet, side: Side) -> None:
    async with side.running():
        await asyncio.sleep(0.1)
        assert not side.registration.registered
        await kubelet.start()
        await until(lambda: listened_to(kubelet))


async def test_a_restarted_kubelet_knows_us_again_within_a_second_or_two(
    kubelet: FakeKubelet, side: Side
) -> None:
    await kubelet.start()
    async with side.running():
        for _ in range(3):
            await until(lambda: listened_to(kubelet))
            await until(lambda: side.registration.registered)
            await kubelet.stop()
            await kubelet.start()
        await until(lambda: listened_to(kubelet))


async def test_a_kubelet_that_removes_only_our_socket_hears_from_us(
    kubelet: FakeKubelet, side: Side
) -> None:
    await kubelet.start()
    async with side.running():
        await until(lambda: side.registration.registered)
        before = side.registration.count
        (kubelet.folder / kubelet.plugins[MEM].request.endpoint).unlink()
        await until(lambda: side.registration.count > before)


async def test_a_kubelet_that_stops_listening_hears_from_us(
    kubelet: FakeKubelet, side: Side
) -> None:
    await kubelet.start()
    async with side.running():
        await until(lambda: side.registration.registered)
        before = side.registration.count
        kubelet._listening[0].cancel()
        await until(lambda: side.registration.count > before)
        await until(lambda: listened_to(kubelet))


async def test_a_refusing_kubelet_is_asked_again_and_the_reason_logged_once(
    kubelet: FakeKubelet, side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet.refuse_registration = True
    await kubelet.start()
    with caplog.at_level(logging.WARNING):
        async with side.running():
            await asyncio.sleep(1.2)  # two tries at least
            kubelet.refuse_registration = False
            await until(lambda: listened_to(kubelet))
    said = [r for r in caplog.records if "the kubelet refuses" in r.getMessage()]
    assert len(said) == 1


async def test_the_end_is_clean(kubelet: FakeKubelet, side: Side) -> None:
    """Streams end without an error, and no socket of ours is left."""
    await kubelet.start()
    async with side.running():
        await until(lambda: listened_to(kubelet))
        listening = list(kubelet._listening)
    await asyncio.wait_for(asyncio.gather(*listening), 3)
    assert [path.name for path in kubelet.folder.glob("*.sock")] == ["kubelet.sock"]


async def test_sockets_of_a_killed_run_are_removed(kubelet: FakeKubelet, side: Side) -> None:
    await kubelet.start()
    left = kubelet.folder / "gpushare-gpu-mem-0a1b2c.sock"
    foreign = kubelet.folder / "nvidia-gpu.sock"
    left.touch()
    foreign.touch()
    async with side.running():
        await until(lambda: listened_to(kubelet))
        assert not left.exists()
        assert foreign.exists()
