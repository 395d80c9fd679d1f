from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from playground import binaries
from playground.binaries import MODULES, builder, go_modules, go_toolchain
from playground.binaries.go_modules import GoModule
from playground.image_import import NodeImages, read_archive
from playground.pause import write_pause_image
from playground.progress import StepFailed


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(binaries.OVERRIDE, raising=False)
    return tmp_path / "cache" / "gpushare" / "playground"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoModule:
    """A module whose build is a shell script: `go` is replaced."""
    monkeypatch.setattr(go_modules, "SOURCES", tmp_path / "sources")
    module = GoModule("tool", "example.org/tool", ("tool",), links=("alias",))
    module.folder.mkdir(parents=True)
    (module.folder / "go.mod").write_text("module x\n\nrequire example.org/tool v1.2.3\n")
    return module


def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    go = tmp_path / "go"
    # `go build … -o OUTPUT WHAT`: the last argument but one is the output.
    go.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nout=$2\n{script}\n')
    go.chmod(0o755)
    monkeypatch.setattr(builder, "find_go", lambda say: go)


def test_every_module_has_its_version_from_its_own_file() -> None:
    versions = {m.name: m.version for m in MODULES}
    assert versions.pop("pause") == "v0"
    assert all(v.startswith("v") and v != "v0" for v in versions.values())


def test_every_program_of_the_cluster_comes_from_a_module() -> None:
    for program in (*binaries.CLUSTER, "kwok"):
        assert program in binaries.module_of(program).provides
    with pytest.raises(KeyError):
        binaries.module_of("kube-nothing")


def test_kubernetes_knows_its_own_version() -> None:
    module = binaries.module_of("kubelet")
    assert f"-X k8s.io/component-base/version.gitVersion={module.version}" in " ".join(
        module.arguments()
    )


def test_build_id_changes_with_the_source(module: GoModule) -> None:
    before = module.build_id()
    assert before.startswith("tool-v1.2.3-")
    assert module.build_id() == before
    (module.folder / "main.go").write_text("package main")
    assert module.build_id() != before


def test_build_is_done_once(
    module: GoModule, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path, monkeypatch, 'echo built >> "$0.log"; printf x > $out; chmod +x $out')
    said: list[str] = []
    folder = builder.build(module, said.append)
    assert builder.build(module, said.append) == folder
    assert (folder / "alias").resolve() == folder / "tool"
    assert (tmp_path / "go.log").read_text() == "built\n"
    assert said[0].startswith("building tool v1.2.3 (about 1 min the first time)")


def test_failed_build_shows_its_log_and_leaves_nothing(
    module: GoModule, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path, monkeypatch, "printf x > $out; echo main.go:1: no such thing >&2; exit 1")
    with pytest.raises(StepFailed, match=r"(?s)exit 1.*no such thing.*build-tool\.log"):
        builder.build(module, lambda text: None)
    assert not [p for p in (cache / "bin").iterdir() if p.is_dir()]


def test_build_without_its_program_is_a_failure(
    module: GoModule, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path, monkeypatch, "true")
    with pytest.raises(StepFailed, match="left no tool, alias"):
        builder.build(module, lambda text: None)


def test_programs_that_the_user_has_are_taken(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert binaries.available("etcd") is None
    own = tmp_path / "own" / "etcd"
    own.parent.mkdir()
    own.touch(mode=0o755)
    monkeypatch.setenv(binaries.OVERRIDE, str(own.parent))
    assert binaries.available("etcd") == own
    assert binaries.path("etcd") == own
    assert binaries.available("kubelet") is None


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.19.8 linux/amd64", (1, 19)),
        ("go version devel", (0, 0)),
    ],
)
def test_go_version_is_read(
    monkeypatch: pytest.MonkeyPatch, said: str, version: tuple[int, int]
) -> None:
    done = subprocess.CompletedProcess([], 0, stdout=said, stderr="")
    monkeypatch.setattr(go_toolchain.subprocess, "run", lambda *a, **k: done)
    assert go_toolchain.go_version(Path("go")) == version


def test_missing_go_has_no_version(tmp_path: Path) -> None:
    assert go_toolchain.go_version(tmp_path / "go") == (0, 0)


def test_pause_image_is_an_archive_with_matching_digests(tmp_path: Path) -> None:
    import hashlib

    program, archive = tmp_path / "pause", tmp_path / "pause.tar"
    program.write_bytes(b"\x7fELF")
    write_pause_image(program, "docker.io/local/pause:1", archive)
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file
            return file.read()

        (manifest,) = json.loads(read("manifest.json"))
        config = json.loads(read(manifest["Config"]))
        layer = read("layer.tar")
    assert manifest["RepoTags"] == ["docker.io/local/pause:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert tar.getmember("pause").mode == 0o755
    assert read_archive(archive).references == ("docker.io/local/pause:1",)


def test_archive_digest_follows_the_content(tmp_path: Path) -> None:
    digests = []
    for content in (b"a", b"a", b"b"):
        (tmp_path / "pause").write_bytes(content)
        write_pause_image(tmp_path / "pause", "x:1", tmp_path / "x.tar")
        digests.append(read_archive(tmp_path / "x.tar").digest)
    assert digests[0] == digests[1] != digests[2]


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("no archive")
    with pytest.raises(ValueError, match="no image archive"):
        read_archive(tmp_path / "x.tar")
    with tarfile.open(tmp_path / "y.tar", "w"):
        pass
    with pytest.raises(ValueError, match=r"no manifest\.json"):
        read_archive(tmp_path / "y.tar")


def test_image_is_imported_again_only_when_it_is_another_or_gone(tmp_path: Path) -> None:
    present = tmp_path / "present"
    ctr = tmp_path / "ctr"
    ctr.write_text(f"""#!/bin/sh
case "$*" in
*list*) cat {present} ;;
*import*) echo x:1 > {present}; echo import >> {tmp_path}/imports ;;
esac
""")
    ctr.chmod(0o755)
    present.touch()
    images = NodeImages(ctr, (), tmp_path / "records")

    def bring(content: bytes) -> bool:
        (tmp_path / "pause").write_bytes(content)
        write_pause_image(tmp_path / "pause", "x:1", tmp_path / "x.tar")
        return images.bring(read_archive(tmp_path / "x.tar"))

    assert bring(b"a") is True
    assert bring(b"a") is False
    assert bring(b"b") is True
    assert bring(b"a") is True  # the name stands for b now
    present.write_text("")
    assert bring(b"a") is True
    assert (tmp_path / "imports").read_text().count("import") == 4
