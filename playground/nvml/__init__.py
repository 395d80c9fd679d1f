"""The stand-in for NVIDIA's management library: compiled here, loaded by the real nvidia-ml-py."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from playground.cache import cache_folder

SONAME = "libnvidia-ml.so.1"
_SOURCES = Path(__file__).parent
# hidden by default: a call that the stand-in lacks must look absent, as in an older driver.
# -z now: a missing symbol shows when the library is loaded, not in the middle of a test.
_FLAGS = (
    "-D_GNU_SOURCE -std=c11 -O2 -g0 -shared -fPIC -Wall -Wextra -fvisibility=hidden -pthread "
    f"-Wl,-soname,{SONAME} -Wl,-z,now"
).split()


class CompilerError(RuntimeError):
    """There is no C compiler, or it refused the sources."""


def library(say: Callable[[str], None] = print) -> Path:
    """The path of the compiled stand-in, compiling it if its sources changed (about 1 s)."""
    sources = sorted(_SOURCES.glob("*.c"))
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for source in sorted([*sources, *_SOURCES.glob("*.h")]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    target = cache_folder("nvml", digest.hexdigest()[:16]) / SONAME
    if not target.exists():
        compiler = _compiler(say)
        say(f"compiling the NVML stand-in with {compiler}")
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            built = Path(scratch, SONAME)
            command = [compiler, *_FLAGS, "-o", str(built), *map(str, sources)]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                raise CompilerError(f"{compiler} could not compile the stand-in:\n{run.stderr}")
            built.replace(target)  # whole or not at all, also for a second process doing the same
    return target


def _compiler(say: Callable[[str], None]) -> str:
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say("no C compiler found: installing gcc with apt-get")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        packages = ["gcc", "libc6-dev"]
        install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
        for command in (["apt-get", "update", "-q"], install):
            run = subprocess.run(command, capture_output=True, text=True, env=environment)
            if run.returncode != 0:
                raise CompilerError(f"{' '.join(command)} failed:\n{run.stderr[-2000:]}")
        return "gcc"
    raise CompilerError("no C compiler: install gcc (or set CC), the simulated cards need one")
