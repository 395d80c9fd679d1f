"""``gpushare top``: rows, order, and what it says where nothing is measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from click.testing import CliRunner, Result

from gpushare.cli.main import main
from gpushare.cli.top import COLUMNS, rows, summary
from gpushare.usage import CardUse, NodeUsage, SliceUse, StrayUse
from tests.unit.cli.double import BASE, ApiServer

NOW = 1_000_000.0
NODE = NodeUsage(
    "t4-1", NOW, "watchdog",
    cards=(CardUse("GPU-a", 15360, 9000), CardUse("GPU-b", 15360, 500)),
    slices=(
        SliceUse("jupyter", "alice", "1", "GPU-a", 7168, 7168, used_mib=6144, peak_mib=7000,
                 sm_percent=80, last_kernel=NOW - 5),
        SliceUse("jupyter", "bob", "2", "GPU-b", 3072, 5120, used_mib=400, last_kernel=None,
                 watched_since=NOW - 7200, over_since=NOW - 70),
    ),
    strays=(StrayUse("GPU-a", 4711, "Xorg", 100),),
)  # fmt: skip
PATH = f"{BASE}/v1/usage"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["top", *arguments])


def test_rows_say_use_idleness_and_trouble() -> None:
    alice, bob, stray = rows([NODE], NOW)
    assert dict(zip(COLUMNS, alice, strict=True)) == {
        "NODE": "t4-1", "CARD": "0", "POD": "jupyter/alice", "SLICE": "7 GiB", "USED": "6 GiB",
        "PEAK": "6.8 GiB", "SM": "80%", "IDLE": "5 s", "NOTE": "",
    }  # fmt: skip
    assert bob[6:] == ("-", "2 h", "over its slice for 1 min, may use 5 GiB")
    assert stray[2] == "(Xorg 4711)"
    assert stray[-1] == "no slice"


def test_order() -> None:
    def pods(sort: str) -> list[str]:
        return [row[2] for row in rows([NODE], NOW, sort)]

    assert pods("idle")[0] == "jupyter/bob"
    assert pods("used")[0] == pods("sm")[0] == "jupyter/alice"
    assert pods("used")[-1] == "(Xorg 4711)"


def test_summary_tells_of_nodes_that_are_silent() -> None:
    assert summary([NODE], {"t4-1": 4.0}) == "2 cards: 9.3 GiB of 30 GiB used"
    assert summary([NODE], {"t4-1": 90.0}).endswith("; t4-1 told this 1 min ago")


def test_once_and_as_data(api: ApiServer, kubeconfig: Path) -> None:
    answer = {"nodes": [{"v": 1, **asdict(NODE)}], "age_seconds": {"t4-1": 2.0}}
    api.answers[PATH] = (200, json.loads(json.dumps(answer)))
    result = run()
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].split() == list(COLUMNS)
    assert "jupyter/alice" in result.output
    assert json.loads(run("-o", "json").output) == api.answers[PATH][1]
    unknown = run("elsewhere")
    assert unknown.exit_code == 1
    assert "these do: t4-1" in unknown.output


def test_nothing_is_measured(api: ApiServer, kubeconfig: Path) -> None:
    api.answers[PATH] = (200, {"nodes": [], "age_seconds": {}})
    assert "are the device plugins running?" in run().output
