from __future__ import annotations

import logging
from pathlib import Path

import pytest

from device_plugin.pod import essence
from device_plugin.pod_store import PodStore

from .making import NAMES, T4_0, app, container, pod
from .test_verification import THREE


def kept(uid: str = "uid-alice") -> dict[str, object]:
    placed = [app("main", THREE)]
    return essence(pod(container("main", 3), placed=placed, uid=uid), NAMES)


def test_a_pod_is_remembered_and_forgotten(tmp_path: Path) -> None:
    store = PodStore(tmp_path / "pods")
    assert store.get("uid-alice") is None
    for uid in ("uid-alice", "uid-bob"):
        store.put(kept(uid))
    assert PodStore(tmp_path / "pods").get("uid-alice") == kept()
    store.keep_only({"uid-bob"})
    assert store.get("uid-alice") is None
    assert store.get("uid-bob") == kept("uid-bob")
    assert T4_0.uuid in str(store.get("uid-bob"))


def test_only_root_may_read_it(tmp_path: Path) -> None:
    store = PodStore(tmp_path / "pods")
    store.put(kept())
    (file,) = store.folder.iterdir()
    assert store.folder.stat().st_mode & 0o077 == 0
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"metadata": {"uid": "other"}}'])
def test_a_corrupt_memory_is_no_memory(tmp_path: Path, text: str) -> None:
    store = PodStore(tmp_path)
    (tmp_path / "uid-alice.json").write_text(text)
    assert store.get("uid-alice") is None


def test_an_odd_uid_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    store = PodStore(tmp_path / "pods")
    assert store.get("../secret") is None
    store.put(kept("../evil"))
    assert not (tmp_path / "evil.json").exists()


def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pods").write_text("a file where the folder should be")
    store = PodStore(tmp_path / "pods")
    with caplog.at_level(logging.WARNING):
        store.put(kept())
        store.put(kept("uid-bob"))
    assert len(caplog.records) == 1
    assert store.get("uid-alice") is None
