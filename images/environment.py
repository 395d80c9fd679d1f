"""Makes the Python environment of an image, in two steps so that each is a layer of its own.

    python3 environment.py dependencies EXTRA    rarely changes, most of the size
    python3 environment.py application           the product's wheel, in dist/

Runs while an image is built, with nothing but the base image's Python. Versions and hashes are
those of requirements.lock; where to get packages is pip's and uv's own configuration.
"""

from __future__ import annotations

import compileall
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

TARGET = Path("/opt/gpushare")
ADDED = Path("added")  # what the application adds, with full paths
LOCK = Path("requirements.lock")
UV = Path("tools/bin/uv")


def dependencies(extra: str) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", str(TARGET))
    run(sys.executable, "-m", "venv", "tools")
    uv = re.search(r"^uv==[^\s;]+", LOCK.read_text(), re.MULTILINE)
    run("tools/bin/pip", "install", "--quiet", uv.group() if uv else "uv")
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"][extra]
    install("--constraints", str(LOCK), *wanted)
    slim(site_packages())
    compile_imported(wanted)


def application() -> None:
    before = set(files())
    (wheel,) = Path("dist").glob("*.whl")
    install("--no-deps", str(wheel))
    for path in sorted(set(files()) - before):
        copy = ADDED / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def install(*arguments: str) -> None:
    run(str(UV), "pip", "install", "--python", str(TARGET / "bin/python"), *arguments)


def slim(packages: Path) -> None:
    """Remove what no running service reads."""
    for pattern in ("*/tests", "*/*/tests", "*/*/*/tests", "bin"):
        for folder in packages.glob(pattern):
            shutil.rmtree(folder)
    for pattern in ("**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.c", "**/*.h", "**/*.a"):
        for file in packages.glob(pattern):
            file.unlink()
    # The Kubernetes client is 70 MB of generated source, most of it docstrings. Compiled without
    # them it is a third of that, and starts faster; only its own lines are missing in tracebacks.
    client = packages / "kubernetes"
    if client.is_dir():
        if not compileall.compile_dir(client, quiet=1, legacy=True, optimize=2, workers=0):
            sys.exit(f"could not compile {client}")
        for source in client.rglob("*.py"):
            source.unlink()


def compile_imported(wanted: list[str]) -> None:
    """Leave bytecode of what ``wanted`` imports, and of nothing else.

    A container can't write it itself: without it each start compiles anew, which takes half a
    second and leaves 7 MB more in memory.
    """
    names = [re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", one)[0]).lower() for one in wanted]
    run(str(TARGET / "bin/python"), "-c", IMPORT_ALL, *names)


IMPORT_ALL = """
import importlib, importlib.metadata, re, sys
for package, distributions in importlib.metadata.packages_distributions().items():
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in distributions}
    if names & set(sys.argv[1:]) and package.isidentifier():
        importlib.import_module(package)
"""


def files() -> list[Path]:
    return [path for path in TARGET.rglob("*") if path.is_file() or path.is_symlink()]


def site_packages() -> Path:
    (found,) = TARGET.glob("lib/python3*/site-packages")
    return found


def run(*command: str) -> None:
    print("$", *command, flush=True)
    subprocess.run(command, check=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["dependencies", extra]:
            dependencies(extra)
        case ["application"]:
            application()
        case _:
            sys.exit(__doc__)
