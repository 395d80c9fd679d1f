"""What each image is made of: its Containerfile, the image under it, and its build context."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import gpushare
from playground import binaries
from playground.images import debian, wheel
from playground.progress import Say

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
BASE = "debian-base"

Inputs = Callable[[], Iterable[str]]
Fill = Callable[[Path, Path, Say], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """``inputs`` are texts that change when the image has to be built again, besides the
    Containerfile and the image under it; ``fill`` puts the build context into a folder (the
    second folder is for logs); ``arguments`` are further build arguments."""

    name: str
    containerfile: Path
    inputs: Inputs
    fill: Fill
    base: str | None = BASE
    minutes: float = 1.0
    needs: tuple[str, ...] = field(default=())  # programs of the host, as Debian packages
    arguments: Mapping[str, str] = field(default_factory=dict)

    def key(self) -> str:
        digest = hashlib.sha256(self.containerfile.read_bytes())
        if self.base:
            digest.update(RECIPES[self.base].key().encode())
        for text in self.inputs():
            digest.update(text.encode() + b"\0")
        return digest.hexdigest()[:16]


def _of_files(paths: Iterable[Path]) -> Iterable[str]:
    for path in paths:
        yield f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _kubernetes_inputs() -> Iterable[str]:
    yield binaries.module_of("kube-scheduler").build_id()


def _kubernetes_context(context: Path, logs: Path, say: Say) -> None:
    shutil.copyfile(binaries.path("kube-scheduler", say).resolve(), context / "kube-scheduler")
    (context / "kube-scheduler").chmod(0o755)


_NOTEBOOK = HERE / "singleuser-requirements.txt"


def _notebook_context(context: Path, logs: Path, say: Say) -> None:
    shutil.copy(_NOTEBOOK, context)


def _singleuser_inputs() -> Iterable[str]:
    yield from _of_files([CHECKOUT / "pyproject.toml"])
    # Our part in the notebook is small: changes elsewhere need no new image.
    shown = ("hub_integration/lab", "gpushare")
    yield from _of_files(p for p in wheel.sources(CHECKOUT, shown) if "cli" not in p.parts)
    yield from _of_files([CHECKOUT / "gpushare" / "cli" / f for f in ("main.py", "slice.py")])


def _singleuser_context(context: Path, logs: Path, say: Say) -> None:
    wheel.build(CHECKOUT, context / "dist", logs / "wheel.log", say)


def _hub_base_context(context: Path, logs: Path, say: Say) -> None:
    shutil.copy(CHECKOUT / "requirements.lock", context)


_FILES = ("pyproject.toml", "requirements.lock", "images/environment.py", "images/sbom.py")


def _product(name: str, *packages: str, base: str = BASE) -> Recipe:
    """An image of ours, with the ``packages`` of the product that are used in it."""

    def inputs() -> Iterable[str]:
        yield gpushare.__version__
        yield from _of_files(CHECKOUT / file for file in _FILES)
        yield from _of_files(wheel.sources(CHECKOUT, ("gpushare", *packages)))

    def context(folder: Path, logs: Path, say: Say) -> None:
        for file in _FILES:
            (folder / file).parent.mkdir(exist_ok=True)
            shutil.copy(CHECKOUT / file, folder / file)
        wheel.build(CHECKOUT, folder / "dist", logs / "wheel.log", say)

    containerfile = CHECKOUT / "images" / f"{name}.Containerfile"
    version = {"VERSION": gpushare.__version__}
    return Recipe(name, containerfile, inputs, context, base=base, arguments=version)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            BASE,
            HERE / "debian-base.Containerfile",
            debian.inputs,
            debian.context,
            base=None,
            minutes=1.5,
            needs=("debootstrap",),
        ),
        Recipe(
            "kube-scheduler",
            HERE / "kube-scheduler.Containerfile",
            _kubernetes_inputs,
            _kubernetes_context,
            base=None,
            minutes=0.2,
        ),
        Recipe(
            "notebook-base",
            HERE / "notebook-base.Containerfile",
            lambda: _of_files([_NOTEBOOK]),
            _notebook_context,
            minutes=1.5,
        ),
        Recipe(
            "singleuser",
            HERE / "singleuser.Containerfile",
            _singleuser_inputs,
            _singleuser_context,
            base="notebook-base",
            minutes=0.5,
        ),
        Recipe(
            "hub-base",
            HERE / "hub-base.Containerfile",
            lambda: _of_files([CHECKOUT / "requirements.lock"]),
            _hub_base_context,
        ),
        _product("extender", "extender"),
        _product("device-plugin", "device_plugin"),
        _product("hub", "hub_integration", "profiles", base="hub-base"),
    )
}
