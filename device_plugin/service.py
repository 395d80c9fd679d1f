"""The kubelet's device plugin interface for one resource (v1beta1), over its own socket."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from device_plugin.api import deviceplugin_pb2 as api
from device_plugin.api.deviceplugin_pb2_grpc import DevicePluginServicer
from device_plugin.ids import cdi_device, slice_hash
from device_plugin.refusal import Refused
from gpushare.names import Names

log = logging.getLogger(__name__)

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"

Prepare = Callable[[str, frozenset[str]], Awaitable[object]]
Observe = Callable[[float, str], None]


def options() -> api.DevicePluginOptions:
    """PreStartContainer is where everything happens; which ids are granted is all the same."""
    return api.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=False
    )


class Service(DevicePluginServicer):
    """Answers the kubelet. ``offer`` changes what ListAndWatch says."""

    def __init__(self, resource: str, names: Names, prepare: Prepare, observe: Observe) -> None:
        self.resource, self._names = resource, names
        self._prepare, self._observe = prepare, observe
        self._offer: Mapping[str, bool] = {}
        self._changed = asyncio.Condition()
        self._stopped = False
        self.streams = 0
        self.streams_changed = asyncio.Event()

    async def offer(self, ids: Mapping[str, bool]) -> None:
        """From now on the node has these ids, healthy (True) or not."""
        async with self._changed:
            if ids != self._offer:
                self._offer = dict(ids)
                self._changed.notify_all()

    async def stop(self) -> None:
        """End all streams."""
        async with self._changed:
            self._stopped = True
            self._changed.notify_all()

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> api.DevicePluginOptions:
        return options()

    async def ListAndWatch(
        self, request: Any, context: Any
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        self._count_stream(1)
        try:
            sent: Mapping[str, bool] | None = None
            while not self._stopped:
                if self._offer is not sent:
                    sent = self._offer
                    yield _answer(sent)
                async with self._changed:
                    await self._changed.wait_for(
                        lambda: self._stopped or self._offer is not sent  # noqa: B023
                    )
        finally:
            self._count_stream(-1)

    async def Allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        # At admission: which pod this is for, nobody says. The CDI device gets its content later.
        answers = []
        for wanted in request.container_requests:
            digest = slice_hash(self.resource, wanted.devices_ids)
            device = api.CDIDevice(name=cdi_device(self._names, digest))
            answers.append(api.ContainerAllocateResponse(cdi_devices=[device]))
        return api.AllocateResponse(container_responses=answers)

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: Any
    ) -> api.PreStartContainerResponse:
        began = time.perf_counter()
        result, code, text = await self._start(frozenset(request.devices_ids))
        self._observe(time.perf_counter() - began, result)
        if code is not None:
            await context.abort(code, text)
        return api.PreStartContainerResponse()

    async def _start(self, ids: frozenset[str]) -> tuple[str, grpc.StatusCode | None, str]:
        try:
            await self._prepare(self.resource, ids)
        except Refused as refused:
            return refused.code, grpc.StatusCode.FAILED_PRECONDITION, str(refused)
        except Exception as error:
            log.exception("a container with %s failed to start by a fault of ours", self.resource)
            text = f"the gpushare device plugin failed ({type(error).__name__}); its log says more"
            return "fault", grpc.StatusCode.INTERNAL, text
        return "started", None, ""

    def _count_stream(self, step: int) -> None:
        self.streams += step
        self.streams_changed.set()


def _answer(ids: Mapping[str, bool]) -> api.ListAndWatchResponse:
    return api.ListAndWatchResponse(
        devices=[
            api.Device(ID=id, health=HEALTHY if healthy else UNHEALTHY)
            for id, healthy in ids.items()
        ]
    )
