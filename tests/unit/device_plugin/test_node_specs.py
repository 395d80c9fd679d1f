from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from device_plugin.node_specs import NodeSpecs, NoEdits, card_edits, parse

from .making import A10, T4_0, T4_1

KIND = "nvidia.com/gpu"


def device(name: str, *minors: int) -> dict[str, Any]:
    nodes = [{"path": f"/dev/nvidia{minor}"} for minor in minors]
    return {"name": name, "containerEdits": {"deviceNodes": nodes}}


def spec_text(*devices: dict[str, Any], kind: str = KIND) -> str:
    common = {"deviceNodes": [{"path": "/dev/nvidiactl"}], "env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    return yaml.safe_dump(
        {"cdiVersion": "0.5.0", "kind": kind, "devices": list(devices), "containerEdits": common}
    )


def read(text: str, path: str = "/var/run/cdi/nvidia.yaml") -> Any:
    spec = parse(path, text, KIND)
    assert spec is not None
    return spec


def test_a_card_is_found_by_uuid() -> None:
    spec = read(spec_text(device("0", 0), device(T4_1.uuid, 1), device("all", 0, 1)))
    found = card_edits([spec], T4_1)
    assert found.device["deviceNodes"] == [{"path": "/dev/nvidia1"}]
    assert found.spec.common["deviceNodes"] == [{"path": "/dev/nvidiactl"}]


def test_else_by_its_device_node_not_by_a_number_in_a_name() -> None:
    """The A10 has index 2 and minor 3: the device named '2' is another card."""
    spec = read(spec_text(device("2", 2), device("gpu3", 3), device("all", 0, 1, 2, 3)))
    assert card_edits([spec], A10).device["deviceNodes"] == [{"path": "/dev/nvidia3"}]


def test_a_spec_from_before_the_cards_were_renumbered_gives_nothing_away() -> None:
    spec = read(spec_text(device(T4_1.uuid, 0)))
    with pytest.raises(NoEdits, match=r"nvidia0 for GPU-bbbb.*generate' again"):
        card_edits([spec], T4_1)


def test_no_device_says_what_to_run() -> None:
    with pytest.raises(NoEdits, match="nvidia-ctk cdi generate"):
        card_edits([read(spec_text(device("all", 0, 1)))], T4_0)


def test_later_folders_win() -> None:
    old, new = (
        read(spec_text(device(T4_0.uuid, 0)), path)
        for path in ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml")
    )
    assert card_edits([old, new], T4_0).spec.path.startswith("/var/run")


def test_json_is_read_as_well_and_other_kinds_are_left_alone() -> None:
    text = json.dumps(yaml.safe_load(spec_text(device(T4_0.uuid, 0))))
    assert read(text, "x.json").devices
    assert parse("x.yaml", spec_text(kind="amd.com/gpu"), KIND) is None


@pytest.mark.parametrize("text", ["", "- a", "{", "a: [", "!!python/object:os.system {}"])
def test_what_is_no_spec_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"parsed|not an object"):
        parse("x.yaml", text, KIND)


def test_files_are_read_again_when_they_change_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cdi"
    specs = NodeSpecs([tmp_path / "missing", folder], KIND)
    assert specs.specs() == []
    folder.mkdir()
    (folder / "broken.yaml").write_text("{")
    (folder / "gpushare-slice-0123456789abcdef0123.json").write_text("{}")
    (folder / "nvidia.yaml").write_text(spec_text(device(T4_0.uuid, 0)))
    (first,) = specs.specs()
    assert list(first.devices) == [T4_0.uuid]
    (again,) = specs.specs()
    assert again is first
    fresh = tmp_path / "fresh"
    fresh.write_text(spec_text(device(T4_1.uuid, 1)))
    os.replace(fresh, folder / "nvidia.yaml")
    (changed,) = specs.specs()
    assert list(changed.devices) == [T4_1.uuid]
    (folder / "nvidia.yaml").unlink()
    assert specs.specs() == []
