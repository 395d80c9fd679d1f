from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.edits import env_edits, spec
from device_plugin.slice_specs import VARIABLE, Record, SliceSpecs, decode_record, held_by_others

records = st.builds(
    Record,
    uid=st.text(max_size=8),
    namespace=st.text(max_size=8),
    pod=st.text(max_size=8),
    container=st.text(max_size=8),
    cards=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    footprint=st.dictionaries(
        st.text(max_size=8), st.tuples(st.integers(0, 10**6), st.integers(0, 100)), max_size=3
    ),
)


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def record(uid: str = "u1", mib: int = 3072, card: str = "GPU-a") -> Record:
    return Record(uid, "jupyter", f"pod-{uid}", "main", (card,), {card: (mib, 0)})


def write(specs: SliceSpecs, digest: str, of: Record) -> Path:
    return specs.write(
        digest, spec("gpushare/slice", digest, env_edits({VARIABLE: of.encode()})), of
    )


@given(records)
def test_a_record_survives_being_written_and_read(one: Record) -> None:
    assert decode_record(one.encode()) == one


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_anything_else_is_refused_not_misread(value: object) -> None:
    with pytest.raises(ValueError, match=r"slice|v=1"):
        decode_record(json.dumps(value))


def test_what_an_earlier_run_wrote_is_known_again(tmp_path: Path) -> None:
    write(SliceSpecs(tmp_path, "gpushare"), "ab12", record())
    again = SliceSpecs(tmp_path, "gpushare")
    again.load()
    assert again.records == {"ab12": record()}


def test_unreadable_and_unfinished_files_go_and_others_files_stay(tmp_path: Path) -> None:
    ours = [tmp_path / name for name in ("gpushare-slice-ab.json", "gpushare-slice-cd.json.new")]
    others = [
        tmp_path / name for name in ("nvidia.yaml", "gpushare-slice-x.json", "a-slice-ab.json")
    ]
    for path in (*ours, *others):
        path.write_text("{")
    specs = SliceSpecs(tmp_path, "gpushare")
    specs.load()
    assert specs.records == {}
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in others)


def test_a_spec_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = SliceSpecs(tmp_path, "gpushare")
    path = write(specs, "ab", record())
    before = path.read_text()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write(specs, "ab", record("u2"))
    assert path.read_text() == before
    assert specs.records["ab"] == record()


def test_only_what_nobody_uses_and_nobody_just_started_is_removed(tmp_path: Path) -> None:
    clock = Clock()
    specs = SliceSpecs(tmp_path, "gpushare", clock)
    for digest in ("aa", "bb"):
        write(specs, digest, record(digest))
    clock.time = 200.0
    asked = specs.now()
    clock.time = 201.0
    write(specs, "cc", record("cc"))  # a container that starts while the kubelet answers
    removed = specs.remove_unused(frozenset({"aa"}), asked)
    assert [r.uid for r in removed] == ["bb"]
    assert sorted(specs.records) == ["aa", "cc"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "gpushare-slice-aa.json",
        "gpushare-slice-cc.json",
    ]


def test_a_pod_counts_once_however_many_containers_it_has() -> None:
    two_containers = [record("u1"), record("u1")]
    assert held_by_others(two_containers, "u2") == {"GPU-a": (3072, 0)}
    assert held_by_others(two_containers, "u1") == {}
    assert held_by_others([record("u1"), record("u2", 1024)], "") == {"GPU-a": (4096, 0)}
