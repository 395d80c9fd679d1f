"""Building one Go module into the cache: once, atomically, with the time shown while it runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from playground.binaries.go_modules import GoModule
from playground.binaries.go_toolchain import find_go
from playground.cache import cache_folder
from playground.progress import StepFailed, run_logged


def build(module: GoModule, say: Callable[[str], None] = print) -> Path:
    """The folder with the programs of ``module``, built if it is not there yet.

    Several processes may ask at once: one builds, the others wait for it. The folder gets its name
    only when everything is in it, so a build that was cut off is never taken for a finished one.
    """
    root = cache_folder("bin")
    target = root / module.build_id()
    if target.exists():
        return target
    with (root / f".{module.name}.lock").open("w") as lock:
        _wait_for(lock.fileno(), module, say)
        if target.exists():
            return target
        go = find_go(say)
        with tempfile.TemporaryDirectory(prefix=f".{module.name}-", dir=root) as work:
            made = Path(work, "bin")
            made.mkdir()
            _compile(go, module, made, say)
            for link in module.links:
                (made / link).symlink_to(module.programs[0])
            _check(module, made)
            made.rename(target)
    return target


def _wait_for(descriptor: int, module: GoModule, say: Callable[[str], None]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another process is building {module.name}: waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _compile(go: Path, module: GoModule, into: Path, say: Callable[[str], None]) -> None:
    # A file for one program, a folder (told by the slash) for several.
    output = f"{into}/" if module.tool else str(into / module.programs[0])
    *flags, what = module.arguments()
    run_logged(
        f"building {module.name} {module.version} (about {module.minutes:g} min the first time)",
        [str(go), "build", *flags, "-o", output, what],
        cache_folder("logs") / f"build-{module.name}.log",
        say,
        cwd=module.folder,
        env={
            **os.environ,
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-buildvcs=false",
        },
    )


def _check(module: GoModule, folder: Path) -> None:
    missing = [p for p in module.provides if not shutil.which(str(folder / p))]
    if missing:
        raise StepFailed(
            f"building {module.name} left no {', '.join(missing)}: "
            f"playground/binaries/go_modules.py and {module.folder} disagree"
        )
