"""Images: when they are built, what the builds are given, and what is known about the result."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from configparser import ConfigParser
from pathlib import Path
from types import ModuleType

import pytest

from playground.images import StepFailed, archive, buildah, names, recipes, wheel
from playground.images import build as build_image
from playground.progress import run_logged

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_images_there_are() -> None:
    products = {"extender", "device-plugin", "hub-base", "hub"}
    notebooks = {"notebook-base", "singleuser"}
    assert set(names()) == {"debian-base", "kube-scheduler"} | notebooks | products
    for recipe in recipes.RECIPES.values():
        assert recipe.containerfile.exists()
        assert recipe.base is None or recipe.base in recipes.RECIPES


def test_an_unknown_image_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        build_image("nonsense")


# --- when


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base and an image on it, of one file each; the file to change is returned."""
    content = tmp_path / "content"
    content.write_text("first")

    def fill(context: Path, logs: Path, say: object) -> None:
        shutil.copy(content, context / "content")

    for name, text in (
        ("tiny-base", "FROM scratch\nCOPY content /base\n"),
        ("tiny", "ARG BASE\nFROM ${BASE}\nCOPY content /top\nUSER 65532:65532\n"),
    ):
        containerfile = tmp_path / f"{name}.Containerfile"
        containerfile.write_text(text)
        recipe = recipes.Recipe(
            name,
            containerfile,
            (lambda: [content.read_text()]) if name == "tiny" else (lambda: ["fixed"]),
            fill,
            base="tiny-base" if name == "tiny" else None,
        )
        monkeypatch.setitem(recipes.RECIPES, name, recipe)
    return content


def test_a_key_follows_inputs_containerfile_and_base(tiny: Path) -> None:
    keys = [recipes.RECIPES["tiny"].key()]
    assert recipes.RECIPES["tiny"].key() == keys[0]
    tiny.write_text("second")
    keys.append(recipes.RECIPES["tiny"].key())
    for name in ("tiny", "tiny-base"):
        with recipes.RECIPES[name].containerfile.open("a") as file:
            file.write("# another\n")
        keys.append(recipes.RECIPES["tiny"].key())
    assert len(set(keys)) == len(keys)


def test_product_images_follow_their_own_sources_only() -> None:
    sources = wheel.sources(CHECKOUT, ("gpushare", "extender"))
    assert CHECKOUT / "gpushare/ledger.py" in sources
    tops = {path.relative_to(CHECKOUT).parts[0] for path in sources}
    assert tops == {"gpushare", "extender"}
    assert not [path for path in sources if "_pb2" in path.name or "__pycache__" in path.parts]


can_build = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("buildah"), reason="building needs root and buildah"
)


@can_build
def test_building_once_and_again_when_something_changed(tiny: Path) -> None:
    said: list[str] = []
    first = build_image("tiny", said.append)
    assert [line for line in said if line.startswith("building ")]
    assert first.reference == "localhost/gpushare/tiny:dev"
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", first.digest)
    files, settings = unpacked(first.path)
    assert files == {"base": "first", "top": "first"}
    assert settings["config"]["User"] == "65532:65532"

    said.clear()
    assert build_image("tiny", said.append) == first
    assert said == []

    tiny.write_text("second")
    second = build_image("tiny", said.append)
    assert "building tiny …" in said
    assert "building tiny-base …" not in said
    assert second.digest != first.digest
    assert unpacked(second.path)[0] == {"base": "first", "top": "second"}

    tiny.write_text("first")
    assert build_image("tiny", lambda _: None) == first  # kept, for whoever switches branches


@can_build
def test_a_failing_build_shows_the_end_of_its_log_and_leaves_nothing(
    tiny: Path, cache: Path
) -> None:
    recipes.RECIPES["tiny"].containerfile.write_text("ARG BASE\nFROM ${BASE}\nCOPY missing /\n")
    with pytest.raises(StepFailed) as failure:
        build_image("tiny", lambda _: None)
    assert "missing" in str(failure.value)
    assert f"The whole log: {cache}" in str(failure.value)
    assert str(cache) not in Path("/proc/self/mounts").read_text()
    assert list((cache / "gpushare/playground/contexts").iterdir()) == []
    assert not list((cache / "gpushare/playground/images").glob("tiny-????????????????.*"))


@can_build
def test_only_the_newest_archives_are_kept(tiny: Path, cache: Path) -> None:
    for number in range(5):
        tiny.write_text(str(number))
        build_image("tiny", lambda _: None)
    kept = list((cache / "gpushare/playground/images").glob("tiny-????????????????.tar"))
    assert len(kept) == 3
    assert list((cache / "gpushare/playground/images").glob("tiny-base-*.tar"))


def unpacked(path: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The files of all layers by name, and the image's configuration."""
    files: dict[str, str] = {}
    with tarfile.open(path) as tar:

        def content(name: str) -> io.BytesIO:
            file = tar.extractfile(name)
            assert file
            return io.BytesIO(file.read())

        [manifest] = json.load(content("manifest.json"))
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=content(name)) as layer:
                for member in layer.getmembers():
                    if member.isfile():
                        inner = layer.extractfile(member)
                        assert inner
                        files[member.name] = inner.read().decode()
        return files, json.load(content(manifest["Config"]))


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("hatchling", "grpc_tools")),
    reason="the wheel's build tools are not installed",
)
def test_the_wheel_is_built_once_for_the_same_sources(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "thing").mkdir(parents=True)
    (checkout / "hatch_build.py").touch()
    (checkout / "pyproject.toml").write_text(
        """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "thing"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["thing"]
"""
    )
    (checkout / "thing" / "__init__.py").write_text("X = 1\n")
    said: list[str] = []
    log = tmp_path / "log"
    first = wheel.build(checkout, tmp_path / "a", log, said.append)
    wheel.build(checkout, tmp_path / "b", log, said.append)
    assert said.count("building our wheel …") == 1
    assert (tmp_path / "b" / first.name).read_bytes() == first.read_bytes()
    (checkout / "thing" / "__init__.py").write_text("X = 2\n")
    second = wheel.build(checkout, tmp_path / "c", log, said.append)
    assert said.count("building our wheel …") == 2
    assert second.read_bytes() != first.read_bytes()


def test_without_a_checkout_there_is_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="git clone"):
        wheel.build(tmp_path, tmp_path / "dist", tmp_path / "log", lambda _: None)


# --- what a build is given


def test_package_clients_get_the_hosts_index_and_authorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "authorities.pem"
    bundle.touch()
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://one.example https://two.example")
    monkeypatch.setenv("PIP_CERT", str(bundle))
    monkeypatch.setenv("PIP_FIND_LINKS", "/only/on/this/host")
    mounts = {target: (source, mode) for source, target, mode in buildah.package_clients(tmp_path)}
    assert mounts["/etc/ssl/certs/ca-certificates.crt"] == (bundle, "ro")

    pip = ConfigParser(interpolation=None)
    pip.read(mounts["/etc/pip.conf"][0])
    assert pip["global"]["index-url"] == "https://packages.example/simple"
    assert pip["global"]["extra-index-url"] == "https://one.example https://two.example"
    assert pip["global"]["cert"] == "/etc/ssl/certs/ca-certificates.crt"
    assert "find-links" not in pip["global"]

    uv = tomllib.loads(mounts["/etc/uv/uv.toml"][0].read_text())
    assert uv["index-url"] == "https://packages.example/simple"
    assert uv["extra-index-url"] == ["https://one.example", "https://two.example"]
    assert uv["system-certs"] is True


def test_a_program_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StepFailed, match="no-such-program"):
        buildah.require(["no-such-program"], tmp_path / "log", lambda _: None)


# --- the product's environment


@pytest.fixture(scope="module")
def environment() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "image_environment", CHECKOUT / "images/environment.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_slimming_keeps_everything_importable(tmp_path: Path, environment: ModuleType) -> None:
    client = tmp_path / "kubernetes" / "client"
    client.mkdir(parents=True)
    (tmp_path / "kubernetes" / "__init__.py").write_text('"""Long text."""\nfrom . import client\n')
    (client / "__init__.py").write_text("PODS = 110\n")
    other = tmp_path / "other"
    (other / "tests").mkdir(parents=True)
    (other / "__init__.py").write_text("X = 1\n")
    (other / "fast.pyx").touch()
    (other / "tests" / "test_x.py").touch()
    environment.slim(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {
        "kubernetes/__init__.pyc",
        "kubernetes/client/__init__.pyc",
        "other/__init__.py",
    }
    check = "import kubernetes, other; print(kubernetes.client.PODS, kubernetes.__doc__, other.X)"
    command = [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path[0:0] = [{str(tmp_path)!r}]; {check}",
    ]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "110 None 1\n"


def test_the_lock_names_uv_and_each_extra_exists(environment: ModuleType) -> None:
    assert re.search(r"^uv==[^\s;]+", (CHECKOUT / "requirements.lock").read_text(), re.MULTILINE)
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    for name in ("extender", "device-plugin"):
        text = (CHECKOUT / "images" / f"{name}.Containerfile").read_text()
        (extra,) = re.findall(r"environment\.py dependencies (\S+)", text)
        (program,) = re.findall(r'ENTRYPOINT \["/opt/gpushare/bin/([^"]+)"\]', text)
        assert extra in project["optional-dependencies"]
        assert program in project["scripts"]


# --- the archive


def test_an_archive_is_described_from_its_manifest(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    with tarfile.open(path, "w") as tar:
        manifest = [{"Config": "ab12.json", "Layers": ["a/layer.tar", "b/layer.tar"]}]
        for name, content in (
            ("a/layer.tar", b"x" * 1000),
            ("b/layer.tar", b"y" * 24),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    image = archive.read("x", path, "localhost/gpushare/x:dev")
    assert (image.digest, image.size) == ("sha256:ab12", 1024)


# --- long commands


def test_a_failed_command_shows_how_its_log_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "for i in $(seq 40); do echo line $i; done; exit 3"
    with pytest.raises(StepFailed) as failure:
        run_logged("counting", ["sh", "-c", script], log, lambda _: None)
    text = str(failure.value)
    assert text.startswith("counting failed (exit 3):")
    assert "line 40" in text
    assert "line 20\n" not in text
    assert text.endswith(f"The whole log: {log}")


def test_a_command_that_works_says_how_long_it_took(tmp_path: Path) -> None:
    said: list[str] = []
    run_logged("resting", ["true"], tmp_path / "log", said.append)
    assert said == ["resting …", "  done in 0 s"]
