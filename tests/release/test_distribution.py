"""What a release consists of: a wheel and a source distribution that install, with each extra.

Each extra gets a virtual environment of its own, with the versions of requirements.lock. They come from
uv's cache, which making the development environment has filled; what is not there is downloaded.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import gpushare

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"

# By extra: what must answer --help, and what must be importable. The names of programs of other extras
# are there too; they say what is missing.
EXTRAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "": (("gpushare", "kubectl-gpushare"), ("gpushare.cli.doctor", "profiles.reader")),
    "hub": (("gpushare", "jupyterhub"), ("hub_integration.spawner", "hub_integration.config")),
    "extender": (("gpushare-extender",), ("extender.app", "extender.scoring")),
    "device-plugin": (("gpushare-device-plugin",), ("device_plugin.app", "device_plugin.plugin")),
    "playground": (("gpushare",), ("playground.cluster", "playground.install")),
}


def run(*command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, and the wheel that is made of it alone."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder / "source", filter="data")
    (unpacked,) = (folder / "source").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=unpacked)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def test_wheel_has_everything_that_is_read_at_run_time(wheel: Path) -> None:
    assert gpushare.__version__ in wheel.name
    inside = set(zipfile.ZipFile(wheel).namelist())
    for package in ("gpushare", "profiles", "hub_integration", "extender", "device_plugin"):
        sources = [
            path
            for path in (ROOT / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".proto"
        ]
        missing = {str(path.relative_to(ROOT)) for path in sources} - inside
        assert not missing
    assert "device_plugin/api/deviceplugin_pb2_grpc.py" in inside
    assert not [name for name in inside if name.startswith(("tests/", "docs/"))]


@pytest.mark.parametrize("extra", EXTRAS)
def test_extra_installs_and_answers(extra: str, wheel: Path, tmp_path: Path) -> None:
    programs, modules = EXTRAS[extra]
    venv = tmp_path / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, venv)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    install = [UV, "pip", "install", "--quiet", "--python", venv / "bin" / "python",
               "--constraints", ROOT / "requirements.lock", wanted]  # fmt: skip
    try:
        run(*install, "--offline")
    except AssertionError:
        run(*install)
    for program in programs:
        assert len(run(venv / "bin" / program, "--help", cwd=tmp_path)) > 200
    for module in modules:
        run(venv / "bin" / "python", "-c", f"import {module}", cwd=tmp_path)
    run(UV, "pip", "check", "--quiet", "--python", venv / "bin" / "python")


def test_programs_of_other_extras_say_what_is_missing(wheel: Path, tmp_path: Path) -> None:
    """The plain installation has them on its path."""
    venv = tmp_path / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, venv)
    install = [UV, "pip", "install", "--quiet", "--python", venv / "bin" / "python",
               "--constraints", ROOT / "requirements.lock", str(wheel)]  # fmt: skip
    try:
        run(*install, "--offline")
    except AssertionError:
        run(*install)
    done = subprocess.run(
        [venv / "bin" / "gpushare", "playground", "up"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "jupyterhub-gpushare[playground]" in done.stderr
