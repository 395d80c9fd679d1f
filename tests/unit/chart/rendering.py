"""Running `helm template` on the chart and finding one's way in what it prints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "gpushare"
Manifest = dict[str, Any]

# What a release must be told; everything else has a default.
LEAST: Mapping[str, Any] = {"images": {"registry": "registry.example.org/gpushare"}}


class Refused(Exception):
    """helm would not render; the text is its own."""


@dataclass(frozen=True)
class Release:
    """The objects of one rendering."""

    manifests: tuple[Manifest, ...]

    def of(self, kind: str, name: str) -> Manifest:
        found = [m for m in self.all(kind) if m["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} {kind} {name}: {[*self.names(kind)]}"
        return found[0]

    def all(self, kind: str) -> list[Manifest]:
        return [m for m in self.manifests if m["kind"] == kind]

    def names(self, kind: str) -> Iterator[str]:
        return (m["metadata"]["name"] for m in self.all(kind))

    def container(self, kind: str, name: str, container: str) -> Manifest:
        containers = self.of(kind, name)["spec"]["template"]["spec"]["containers"]
        (found,) = (c for c in containers if c["name"] == container)
        assert isinstance(found, dict)
        return found

    def pod_spec(self, kind: str, name: str) -> Manifest:
        spec = self.of(kind, name)["spec"]["template"]["spec"]
        assert isinstance(spec, dict)
        return spec


@dataclass(frozen=True)
class Chart:
    """The chart and the helm that renders it."""

    helm: Path

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        *files: Path,
        namespace: str = "gpushare",
        kubernetes: str = "1.36.3",
        apis: tuple[str, ...] = (),
        least: bool = True,
    ) -> Release:
        """Render with ``values`` over ``files`` over the chart's own. Raises Refused."""
        command = [str(self.helm), "template", "gpushare", str(CHART), "--namespace", namespace]
        command += ["--kube-version", kubernetes]
        for api in apis:
            command += ["--api-versions", api]
        for file in files:
            command += ["--values", str(file)]
        given = {**(LEAST if least else {}), **(values or {})}
        for name, value in given.items():
            command += ["--set-json", f"{name}={json.dumps(value)}"]
        return Release(tuple(m for m in yaml.safe_load_all(_output(tuple(command))) if m))


@cache
def _output(command: tuple[str, ...]) -> str:
    """What helm prints. Files may not change meanwhile, and in a test run they don't."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout
