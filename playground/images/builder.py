"""Building an image when its inputs have changed, and keeping it."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from pathlib import Path

from playground.cache import cache_folder
from playground.images import archive
from playground.images.archive import ImageArchive
from playground.images.buildah import Buildah, require
from playground.images.recipes import RECIPES, Recipe
from playground.progress import Say

_KEPT = 3  # archives of one image; two checkouts can take turns without building each time


def names() -> tuple[str, ...]:
    return tuple(RECIPES)


def build_all(say: Say = print) -> dict[str, ImageArchive]:
    return {name: build(name, say) for name in RECIPES}


def build(name: str, say: Say = print) -> ImageArchive:
    """The image ``name``, built if it is not there as it would be built now.

    Raises KeyError for a name that is none of names(), StepFailed with the end of the log.
    """
    recipe = RECIPES[name]
    reference = f"localhost/gpushare/{name}:dev"
    path = cache_folder("images") / f"{name}-{recipe.key()}.tar"
    if not path.exists():
        with (cache_folder("images") / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits for the first one's result
            if not path.exists():
                _build(recipe, reference, path, say)
    path.touch()  # used now: the oldest go first
    return archive.read(name, path, reference)


def _build(recipe: Recipe, reference: str, path: Path, say: Say) -> None:
    started = time.monotonic()
    logs = cache_folder("logs")
    log = logs / f"image-{recipe.name}.log"
    log.unlink(missing_ok=True)
    require(("buildah", *recipe.needs), log, say)
    buildah = Buildah(log, say)
    arguments = dict(recipe.arguments)
    if recipe.base:
        arguments["BASE"] = _base(recipe, buildah, say)
    say(f"image {recipe.name}: about {recipe.minutes:g} min the first time")
    with tempfile.TemporaryDirectory(dir=cache_folder("contexts")) as scratch:
        context, clients = Path(scratch, "context"), Path(scratch, "clients")
        context.mkdir()
        clients.mkdir()
        recipe.fill(context, logs, say)
        title = f"building {recipe.name}"
        buildah.build(reference, recipe.containerfile, context, arguments, clients, title)
    buildah.export(reference, path)
    _drop_old(recipe.name)
    built = archive.read(recipe.name, path, reference)
    seconds = time.monotonic() - started
    say(f"image {recipe.name}: {built.size / 1e6:.0f} MB unpacked, built in {seconds:.0f} s")


def _base(recipe: Recipe, buildah: Buildah, say: Say) -> str:
    """The reference of the image under ``recipe``, present in buildah's storage.

    Its name carries its key: building on "the latest" would make one image of two bases.
    """
    assert recipe.base
    base = build(recipe.base, say)
    reference = f"localhost/gpushare/{recipe.base}:{RECIPES[recipe.base].key()}"
    if not buildah.has(reference):
        buildah.load(base.path)
        buildah.tag(base.reference, reference)
    return reference


def _drop_old(name: str) -> None:
    archives = cache_folder("images").glob(f"{name}-????????????????.tar")
    newest = sorted(archives, key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest[_KEPT:]:
        path.unlink()


def forget_builds() -> None:
    """Remove buildah's storage (layers kept for faster builds); the archives stay."""
    shutil.rmtree(cache_folder("containers"))
