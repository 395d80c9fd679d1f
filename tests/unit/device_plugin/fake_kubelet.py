"""A kubelet's two sockets, made from the same .proto files: registration and pod resources."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from device_plugin.api import deviceplugin_pb2 as api
from device_plugin.api import podresources_pb2 as resources
from device_plugin.api.deviceplugin_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from device_plugin.api.podresources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)


@dataclass
class Grant:
    """What one container holds. ``listed``: not so for plain init containers."""

    namespace: str
    pod: str
    uid: str
    container: str
    ids: Mapping[str, Iterable[str]]
    listed: bool = True


@dataclass
class Plugin:
    """A plugin that registered: what it said, and its lists as they came."""

    request: api.RegisterRequest
    stub: DevicePluginStub
    options: api.DevicePluginOptions
    lists: list[dict[str, str]] = field(default_factory=list)


class FakeKubelet(RegistrationServicer, PodResourcesListerServicer):  # type: ignore[misc]
    """Behaves as kubelet 1.36 does towards plugins: dials back while Register runs, then listens."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "device-plugins"
        self.socket = self.folder / "kubelet.sock"
        self.pod_resources = root / "pod-resources.sock"
        self.checkpoint = self.folder / "kubelet_internal_checkpoint"
        self.grants: list[Grant] = []
        self.plugins: dict[str, Plugin] = {}
        self.lists = 0
        self.refuse: list[grpc.StatusCode] = []
        self.refuse_registration = False
        self.answer_after: asyncio.Event | None = None
        self.others: dict[str, list[str]] = {}
        self._servers: list[grpc.aio.Server] = []
        self._listening: list[asyncio.Task[None]] = []
        self._channels: list[grpc.aio.Channel] = []
        self.folder.mkdir(parents=True, exist_ok=True)

    async def start(self) -> None:
        """As a kubelet does: empty the folder of sockets, then make its own."""
        for path in self.folder.glob("*.sock"):
            path.unlink()
        self.pod_resources.unlink(missing_ok=True)
        for path, add in (
            (self.socket, add_RegistrationServicer_to_server),
            (self.pod_resources, add_PodResourcesListerServicer_to_server),
        ):
            server = grpc.aio.server()
            add(self, server)
            server.add_insecure_port(f"unix://{path}")
            await server.start()
            self._servers.append(server)

    async def stop(self) -> None:
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        for channel in self._channels:
            await channel.close()
        for server in self._servers:
            await server.stop(0)
        self._servers, self._listening, self._channels, self.plugins = [], [], [], {}

    def grant(self, *grants: Grant) -> None:
        """These are all that are held now; written to the checkpoint as well."""
        self.grants = list(grants)
        entries = [
            {
                "PodUID": g.uid,
                "ContainerName": g.container,
                "ResourceName": resource,
                "DeviceIDs": {"-1": list(ids)},
                "AllocResp": "",
            }
            for g in self.grants
            for resource, ids in g.ids.items()
        ]
        data = {"PodDeviceEntries": entries or None, "RegisteredDevices": {}}
        self.checkpoint.write_text(json.dumps({"Data": data, "Checksum": 1}))

    async def Register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        if self.refuse_registration:
            await context.abort(grpc.StatusCode.UNKNOWN, "the kubelet refuses")
        channel = grpc.aio.insecure_channel(f"unix://{self.folder / request.endpoint}")
        self._channels.append(channel)
        stub = DevicePluginStub(channel)
        plugin = Plugin(request, stub, await stub.GetDevicePluginOptions(api.Empty(), timeout=5))
        self.plugins[request.resource_name] = plugin
        self._listening.append(asyncio.create_task(self._listen(plugin)))
        return api.Empty()

    async def _listen(self, plugin: Plugin) -> None:
        try:
            async for answer in plugin.stub.ListAndWatch(api.Empty()):
                plugin.lists.append({device.ID: device.health for device in answer.devices})
        finally:
            name = plugin.request.resource_name
            if self.plugins.get(name) is plugin:
                del self.plugins[name]

    async def GetAllocatableResources(
        self, request: Any, context: Any
    ) -> resources.AllocatableResourcesResponse:
        return resources.AllocatableResourcesResponse(
            devices=[
                resources.ContainerDevices(resource_name=resource, device_ids=ids)
                for resource, ids in self.others.items()
            ]
        )

    async def List(self, request: Any, context: Any) -> resources.ListPodResourcesResponse:
        self.lists += 1
        if self.answer_after is not None:
            await self.answer_after.wait()
        if self.refuse:
            await context.abort(self.refuse.pop(0), "too many requests")
        pods: dict[tuple[str, str], resources.PodResources] = {}
        for g in self.grants:
            if not g.listed:
                continue
            pod = pods.setdefault(
                (g.namespace, g.pod), resources.PodResources(name=g.pod, namespace=g.namespace)
            )
            pod.containers.append(
                resources.ContainerResources(
                    name=g.container,
                    devices=[
                        resources.ContainerDevices(resource_name=resource, device_ids=[id])
                        for resource, ids in g.ids.items()
                        for id in ids
                    ],
                )
            )
        return resources.ListPodResourcesResponse(pod_resources=list(pods.values()))
