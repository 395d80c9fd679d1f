"""Our own distribution as a wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from playground.cache import cache_folder
from playground.progress import Say, StepFailed, run_logged

_KEPT = 5  # wheels of different sources


def sources(checkout: Path, packages: Iterable[str]) -> list[Path]:
    """The files of ``packages`` that people write, which is all but what a build leaves."""
    return [
        path
        for package in packages
        for path in sorted((checkout / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and "_pb2" not in path.name
    ]


def build(checkout: Path, into: Path, log: Path, say: Say) -> Path:
    """The wheel of ``checkout`` in the folder ``into``, built (about 2 s) if sources changed."""
    if not (checkout / "pyproject.toml").exists():
        raise StepFailed(
            f"{checkout} is no checkout of jupyterhub-gpushare: images of the product are built "
            "from its sources (git clone it, and run the playground from there)"
        )
    wheels = cache_folder("wheels")
    kept = wheels / _key(checkout)
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=wheels, prefix=".") as scratch:
            _build(checkout, Path(scratch, "dist"), log, say)
            shutil.rmtree(kept, ignore_errors=True)
            Path(scratch, "dist").rename(kept)
        finished = wheels.glob("[!.]*")
        for old in sorted(finished, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(kept, into)
    (wheel,) = into.glob("*.whl")
    return wheel


def _key(checkout: Path) -> str:
    project = checkout / "pyproject.toml"
    hatch = tomllib.loads(project.read_text())["tool"]["hatch"]["build"]
    packages = hatch["targets"]["wheel"]["packages"]
    digest = hashlib.sha256()
    for path in [project, checkout / "hatch_build.py", *sources(checkout, packages)]:
        digest.update(str(path.relative_to(checkout)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _build(checkout: Path, into: Path, log: Path, say: Say) -> None:
    tool = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(into)]
    if all(importlib.util.find_spec(name) for name in ("hatchling", "grpc_tools")):
        tool.append("--no-build-isolation")  # the build's own needs are here already
    run_logged("building our wheel", [*tool, str(checkout)], log, say)
