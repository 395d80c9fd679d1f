"""The programs of the playground's cluster, built from Go modules by name and kept in the cache.

A folder named by GPUSHARE_PLAYGROUND_BIN is looked into first, as KUBEBUILDER_ASSETS is elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from playground.binaries.builder import build
from playground.binaries.go_modules import MODULES, GoModule, module_of
from playground.binaries.go_toolchain import NoGo
from playground.cache import cache_folder

__all__ = [
    "CLUSTER",
    "CONTROL_PLANE",
    "MODULES",
    "OVERRIDE",
    "GoModule",
    "NoGo",
    "available",
    "ensure",
    "module_of",
    "path",
]

OVERRIDE = "GPUSHARE_PLAYGROUND_BIN"
CONTROL_PLANE = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "etcd",
)
CLUSTER = (
    *CONTROL_PLANE,
    "kubelet",
    "kube-proxy",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "pause",
    "helm",
)


def path(program: str, say: Callable[[str], None] = print) -> Path:
    """Where ``program`` is; builds its module first if need be.

    Raises KeyError for a program that no module has, StepFailed or NoGo when it can't be built.
    """
    return available(program) or build(module_of(program), say) / program


def available(program: str) -> Path | None:
    """Where ``program`` is, or None as long as it has not been built."""
    module = module_of(program)
    override = os.environ.get(OVERRIDE)
    if override and os.access(Path(override, program), os.X_OK):
        return Path(override, program).absolute()
    built = cache_folder("bin") / module.build_id() / program
    return built if built.exists() else None


def ensure(programs: Iterable[str], say: Callable[[str], None] = print) -> dict[str, Path]:
    """The path of every program, building what is missing, the module with most to do first."""
    return {program: path(program, say) for program in programs}
