"""Build step: the kubelet's gRPC messages and stubs, made from our .proto files.

The generated modules are build products: they are in the wheel, never in the repository.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

API = Path("device_plugin", "api")


class ProtoBuildHook(BuildHookInterface):
    """Runs protoc over device_plugin/api/*.proto, in place."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        from grpc_tools import protoc

        root = Path(self.root)
        includes = importlib.resources.files("grpc_tools") / "_proto"
        for proto in sorted((root / API).glob("*.proto")):
            arguments = [
                "protoc",
                f"--proto_path={root}",
                f"--proto_path={includes}",
                f"--python_out={root}",
                f"--pyi_out={root}",
                f"--grpc_python_out={root}",
                str(proto),
            ]
            if protoc.main(arguments) != 0:
                raise RuntimeError(f"protoc could not compile {proto.relative_to(root)}")
