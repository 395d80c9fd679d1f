from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_plugin.delivery import Delivery, Start, Way
from device_plugin.edits import read_env
from device_plugin.node_specs import NodeSpecs
from device_plugin.refusal import Code, Refused
from device_plugin.slice_specs import VARIABLE, Record, decode_record
from gpushare.placement import Share

from .making import T4_0, T4_1
from .test_node_specs import KIND, device, spec_text

RECORD = Record("u1", "jupyter", "alice", "main", (T4_1.uuid,), {T4_1.uuid: (3072, 25)})


def start(*shares: Share, **more: Any) -> Start:
    shares = shares or (Share(T4_1.uuid, 3072, 25),)
    return Start(RECORD, shares, {T4_0.uuid: T4_0, T4_1.uuid: T4_1}, **more)


def delivery(folder: Path, way: Way = Way.AUTO) -> Delivery:
    return Delivery("gpushare/slice", way, NodeSpecs([folder], KIND))


def edits(spec: dict[str, Any]) -> dict[str, Any]:
    (device_,) = spec["devices"]
    assert "containerEdits" not in spec
    return dict(device_["containerEdits"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    devices = [device(c.uuid, c.minor) for c in (T4_0, T4_1)]
    (tmp_path / "nvidia.yaml").write_text(spec_text(*devices))
    return tmp_path


def test_the_nodes_own_spec_says_what_a_card_needs(folder: Path) -> None:
    spec = delivery(folder).full("ab", start())
    assert spec["kind"] == "gpushare/slice"
    assert [d["name"] for d in spec["devices"]] == ["ab"]
    paths = [node["path"] for node in edits(spec)["deviceNodes"]]
    assert paths == ["/dev/nvidiactl", "/dev/nvidia1"]


def test_nvidias_runtime_is_kept_from_injecting_the_cards_again(folder: Path) -> None:
    given = edits(delivery(folder).full("ab", start()))
    assert read_env(given, "NVIDIA_VISIBLE_DEVICES") == "void"
    assert read_env(given, "GPUSHARE_CARDS") == T4_1.uuid


def test_where_there_is_no_spec_the_environment_does_it(tmp_path: Path) -> None:
    given = edits(delivery(tmp_path).full("ab", start()))
    assert set(given) == {"env"}
    assert read_env(given, "NVIDIA_VISIBLE_DEVICES") == T4_1.uuid


def test_the_way_can_be_set(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    given = edits(delivery(folder, Way.ENV).full("ab", start()))
    assert set(given) == {"env"}
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(Refused) as caught:
        delivery(empty, Way.CDI).full("ab", start())
    assert caught.value.code is Code.NO_EDITS
    assert "nvidia-ctk" in str(caught.value)


def test_several_cards_share_what_they_have_in_common(folder: Path) -> None:
    shares = (Share(T4_0.uuid, 3072, 0), Share(T4_1.uuid, 3072, 0))
    given = edits(delivery(folder).full("ab", start(*shares)))
    paths = [node["path"] for node in given["deviceNodes"]]
    assert paths == ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"]
    assert read_env(given, "GPUSHARE_CARDS") == f"{T4_0.uuid},{T4_1.uuid}"


def test_the_record_travels_in_the_spec(folder: Path) -> None:
    given = edits(delivery(folder).full("ab", start()))
    assert decode_record(read_env(given, VARIABLE) or "") == RECORD


def test_advice_never_overrides_what_the_pod_sets_but_visibility_does(folder: Path) -> None:
    own = frozenset({"XLA_PYTHON_CLIENT_MEM_FRACTION", "NVIDIA_VISIBLE_DEVICES", VARIABLE})
    given = edits(delivery(folder).full("ab", start(own_env=own)))
    assert read_env(given, "XLA_PYTHON_CLIENT_MEM_FRACTION") is None
    assert read_env(given, "NVIDIA_VISIBLE_DEVICES") == "void"
    assert read_env(given, VARIABLE) == RECORD.encode()
    assert read_env(given, "GPU_MEM_LIMIT") == str(3 * 1024**3)
    assert read_env(given, "GPU_PERCENT_LIMIT") == "25"


def test_what_enforcement_wants_is_joined(folder: Path) -> None:
    more = {"env": ["CUDA_MPS_PIPE_DIRECTORY=/mps"], "mounts": [{"containerPath": "/mps"}]}
    given = edits(delivery(folder).full("ab", start(more=more)))
    assert read_env(given, "CUDA_MPS_PIPE_DIRECTORY") == "/mps"
    assert {"containerPath": "/mps"} in given["mounts"]


def test_the_second_resource_gives_nothing_and_contradicts_nothing(folder: Path) -> None:
    """CDI wants some edit in each device; the runtime applies both specs in either order."""
    full = edits(delivery(folder).full("ab", start()))
    inert = edits(delivery(folder).inert("cd", start()))
    assert set(inert) == {"env"}
    assert inert["env"]
    assert all(entry in full["env"] for entry in inert["env"])
