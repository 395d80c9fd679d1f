"""``gpushare cordon``, ``uncordon`` and ``drain``: what is written, and who is evicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpushare.cli.main import main
from tests.unit.cli.double import PROXY, STATE, ApiServer, card, held

NODE = "/api/v1/nodes/t4-1"
CONFIG = "/api/v1/namespaces/gpushare/configmaps/gpushare-extender"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def node(annotations: dict[str, str] | None = None, version: str = "7") -> tuple[int, Any]:
    return 200, {"metadata": {"resourceVersion": version, "annotations": annotations or {}}}


def patched(api: ApiServer) -> list[Any]:
    return [body["metadata"] for method, _, body in api.sent if method == "PATCH"]


@pytest.mark.parametrize("said", ["t4-1/0", "GPU-T4-0"])
def test_cordon_writes_the_uuid_with_the_version_it_read(
    api: ApiServer, kubeconfig: Path, said: str
) -> None:
    api.answers[NODE] = node({"gpushare/cordon": "GPU-T4-1"})
    result = run("cordon", said)
    assert result.exit_code == 0, result.output
    assert patched(api) == [
        {"resourceVersion": "7", "annotations": {"gpushare/cordon": "GPU-T4-0,GPU-T4-1"}}
    ]


def test_cordon_under_another_prefix(api: ApiServer, kubeconfig: Path) -> None:
    settings = '{"Extender": {"prefix": "gpu.example.org"}}'
    api.answers[CONFIG] = (200, {"data": {"config.json": settings}})
    api.answers[NODE] = node()
    run("cordon", "t4-1/0")
    assert patched(api)[0]["annotations"] == {"gpu.example.org/cordon": "GPU-T4-0"}
    run("cordon", "t4-1/0", "--prefix", "mine")
    assert patched(api)[1]["annotations"] == {"mine/cordon": "GPU-T4-0"}


def test_uncordon_takes_index_and_uuid(api: ApiServer, kubeconfig: Path) -> None:
    api.answers[NODE] = node({"gpushare/cordon": "0, GPU-T4-0"})
    assert "takes pods again" in run("uncordon", "t4-1/0").output
    assert patched(api)[0]["annotations"] == {"gpushare/cordon": None}
    api.answers[NODE] = node()
    assert "had no cordon" in run("uncordon", "t4-1/0").output
    assert len(patched(api)) == 1


def test_another_writer_is_not_overwritten(api: ApiServer, kubeconfig: Path) -> None:
    api.answers[f"GET {NODE}"] = [node(), node({"gpushare/cordon": "GPU-T4-1"}, "8")]
    api.answers[f"PATCH {NODE}"] = [(409, {"message": "conflict"}), node()]
    assert run("cordon", "t4-1/0").exit_code == 0
    assert patched(api)[-1] == {
        "resourceVersion": "8",
        "annotations": {"gpushare/cordon": "GPU-T4-0,GPU-T4-1"},
    }


def test_unknown_card_and_missing_right(api: ApiServer, kubeconfig: Path) -> None:
    result = run("cordon", "t4-1/9")
    assert result.exit_code == 1
    assert "a10-1/0, t4-1/0, t4-1/1" in result.output
    api.answers[NODE] = (403, {"message": "nodes is forbidden"})
    assert "rights to get and patch nodes" in run("cordon", "t4-1/0").output


POD = "/api/v1/namespaces/jupyter/pods"
EMPTY = {**STATE, "nodes": [{"name": "t4-1", "cards": [card(0)]}]}


@pytest.fixture
def guests(api: ApiServer, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """Two pods on the card; they are gone from the state once they were evicted."""
    monkeypatch.setattr("gpushare.cli.drain._LOOK_SECONDS", 0.0)
    api.answers[NODE] = node()
    owner = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
    api.answers[f"{POD}/jupyter-alice"] = (200, {"metadata": {}})
    api.answers[f"{POD}/train"] = (200, {"metadata": {"ownerReferences": owner}})
    for name in ("jupyter-alice", "train"):
        api.answers[f"{POD}/{name}/eviction"] = (201, {"status": "Success"})
    api.answers[PROXY] = [(200, STATE), (200, STATE), (200, EMPTY)]
    return api


def evictions(api: ApiServer) -> list[Any]:
    return [body for _, path, body in api.sent if path.endswith("/eviction")]


def test_drain_cordons_evicts_and_waits(guests: ApiServer) -> None:
    result = run("drain", "t4-1/0", "--yes", "--grace", "9")
    assert result.exit_code == 0, result.output
    assert "by its ReplicaSet web" in result.output
    assert "is empty and takes nothing new" in result.output
    assert patched(guests)[0]["annotations"] == {"gpushare/cordon": "GPU-T4-0"}
    assert [body["metadata"]["name"] for body in evictions(guests)] == ["jupyter-alice", "train"]
    assert evictions(guests)[0]["deleteOptions"] == {
        "preconditions": {"uid": "uid-jupyter-alice"},
        "gracePeriodSeconds": 9,
    }
    methods = [method for method, _, _ in guests.sent]
    assert methods.index("PATCH") < len(methods) - 2, "the cordon comes first"


def test_dry_run_changes_nothing(guests: ApiServer) -> None:
    guests.answers[f"{POD}/train/eviction"] = (429, {"message": "the budget web allows none"})
    result = run("drain", "t4-1/0", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "jupyter/train would not be evicted now: the budget web allows none" in result.output
    assert "1 of 2 pods evicted" in result.output
    assert patched(guests) == []
    assert all(body["deleteOptions"]["dryRun"] == ["All"] for body in evictions(guests))


def test_without_a_terminal_it_wants_a_yes(guests: ApiServer) -> None:
    result = run("drain", "t4-1/0")
    assert result.exit_code == 1
    assert "--yes" in result.output
    assert evictions(guests) == patched(guests) == []


def test_a_no_at_the_question_ends_it(guests: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpushare.cli.show.is_terminal", lambda: True)
    result = CliRunner().invoke(main, ["drain", "t4-1/0"], input="n\n")
    assert result.exit_code == 1
    assert evictions(guests) == patched(guests) == []


def test_budget_gives_way_at_last(guests: ApiServer) -> None:
    no = (429, {"message": "not now"})
    guests.answers[f"{POD}/train/eviction"] = [no, no, (201, {})]
    assert run("drain", "t4-1/0", "--yes").exit_code == 0
    assert [b["metadata"]["name"] for b in evictions(guests)].count("train") == 3


def test_drain_that_cannot_end_says_who_is_left(guests: ApiServer) -> None:
    guests.answers[PROXY] = (200, STATE)
    result = run("drain", "t4-1/0", "--yes", "--timeout", "0")
    assert result.exit_code == 1
    assert "still there after 0 s: jupyter/jupyter-alice, jupyter/train" in result.output
    guests.answers[f"{POD}/train/eviction"] = (429, {"message": "not now"})
    result = run("drain", "t4-1/0", "--yes", "--timeout", "0")
    assert "not evicted: jupyter/train: not now" in result.output


def test_card_without_slices_is_just_cordoned(guests: ApiServer) -> None:
    busy = {
        **STATE,
        "nodes": [{"name": "t4-1", "cards": [card(0), card(1, slices=[held("x", 1)])]}],
    }
    guests.answers[PROXY] = (200, busy)
    assert run("drain", "t4-1/0").exit_code == 0
    assert evictions(guests) == []
