"""Which Go modules the playground's programs come from, and how each is built."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "modules"
_CLIENT_VERSION = "k8s.io/client-go/pkg/version"
_SERVER_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True)
class GoModule:
    """One go.mod of this folder and the programs that a build of it leaves.

    ``links`` are further names of the first program, which tells them apart by its own name.
    ``minutes`` is how long the first build takes on two cores, to tell people what to expect.
    """

    name: str
    path: str  # the module that gives the version
    programs: tuple[str, ...]
    links: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    tool: bool = False  # `go build tool` instead of a main.go here
    minutes: float = 1
    stamps: tuple[str, ...] = ()  # "package.name=value" for the linker to write

    @property
    def folder(self) -> Path:
        return SOURCES / self.name

    @property
    def version(self) -> str:
        """The version in go.mod, 'v1.36.3'; 'v0' for a module with no dependency."""
        text = (self.folder / "go.mod").read_text()
        found = re.search(rf"^(?:require)?\s*{re.escape(self.path)}\s+(v\S+)", text, re.MULTILINE)
        return found.group(1) if found else "v0"

    @property
    def provides(self) -> tuple[str, ...]:
        return self.programs + self.links

    def build_id(self) -> str:
        """Folder name of a build in the cache: anything that changes the result changes it."""
        digest = hashlib.sha256()
        for source in sorted(self.folder.iterdir()):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        digest.update("\0".join(self.arguments()).encode())
        return f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"

    def arguments(self) -> list[str]:
        """What follows `go build`, but for the output."""
        arguments = ["-mod=readonly", "-ldflags", " ".join(["-s", "-w", *self._stamps()])]
        if self.tags:
            arguments += ["-tags", ",".join(self.tags)]
        return [*arguments, "tool" if self.tool else "."]

    def _stamps(self) -> list[str]:
        if self.path != "k8s.io/kubernetes":
            return [f"-X {stamp}" for stamp in self.stamps]
        # A Kubernetes without these calls itself v0.0.0-master, and clients refuse that as too old.
        major, minor = self.version.removeprefix("v").split(".")[:2]
        values = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        return [
            f"-X {package}.{key}={value}"
            for package in (_SERVER_VERSION, _CLIENT_VERSION)
            for key, value in values.items()
        ]


MODULES = (
    GoModule(
        name="kubernetes",
        path="k8s.io/kubernetes",
        programs=("kubernetes",),
        links=(
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        ),
        minutes=5,
    ),
    GoModule("etcd", "go.etcd.io/etcd/server/v3", ("etcd",)),
    GoModule(
        name="containerd",
        path="github.com/containerd/containerd/v2",
        programs=("containerd", "containerd-shim-runc-v2", "ctr"),
        # Snapshotters for file systems that need C libraries; the playground uses overlayfs.
        tags=("no_btrfs", "no_devmapper", "no_zfs"),
        tool=True,
    ),
    GoModule(
        name="helm",
        path="helm.sh/helm/v3",
        programs=("helm",),
        tool=True,
        minutes=1.5,
        # Otherwise it takes every cluster that it does not ask for a Kubernetes 1.20.
        stamps=(
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36",
        ),
    ),
    GoModule("kwok", "sigs.k8s.io/kwok", ("kwok",), tool=True, minutes=1.5),
    GoModule("pause", "gpushare.playground/pause", ("pause",), minutes=0.2),
)


def module_of(program: str) -> GoModule:
    """The module that has ``program``. Raises KeyError for a name that no module has."""
    for module in MODULES:
        if program in module.provides:
            return module
    raise KeyError(program)
