"""The packing experiment itself, on a trace of a few pods made here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.packing import traces
from tests.bench.packing.__main__ import main
from tests.bench.packing.inflation import LEARNED, run
from tests.bench.packing.variants import VARIANTS

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
a,1000,10,1,500,
b,1000,10,1,300,
c,1000,10,1,200,T4|A10
d,4000,10,1,1000,
e,8000,10,2,1000,
f,500,10,0,0,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    nodes = [f"n{i},32000,1000,2,{'T4' if i % 2 else 'A10'}" for i in range(4)]
    (tmp_path / traces.NODES).write_text("sn,cpu_milli,memory_mib,gpu,model\n" + "\n".join(nodes))
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    return tmp_path


@pytest.mark.parametrize("policy", ["fragmentation", LEARNED, "fgd", "binpack"])
def test_small_pods_fill_every_card_and_no_more(folder: Path, policy: str) -> None:
    result = run(
        "default", traces.read_pods(folder, "default"), traces.read_nodes(folder), policy, seed=1
    )
    assert 80 <= result.at_100 <= result.at_130 <= 100
    assert result.first_refused > 100 - 20
    assert result.curve == sorted(result.curve)


def test_the_command_prints_a_row_per_policy(folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    picture = folder / "p.svg"
    assert main(["--traces", str(folder), "--seeds", "1", "2", "--plot", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| default |") == 6
    assert picture.read_text().count("<polyline") == 6
    assert (folder / "build/bench/packing.json").is_file()


def test_without_traces_it_says_where_they_are_from(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv(traces.SETTING, raising=False)
    assert main([]) == 2
    assert "ATC 2023" in capsys.readouterr().err
    assert main(["--traces", str(tmp_path)]) == 2


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_variants_are_the_same_every_time(folder: Path, name: str) -> None:
    pods = traces.read_pods(folder, "default") * 50
    made = VARIANTS[name](pods)
    assert made == VARIANTS[name](pods)
    assert {pod.memory for pod in made} == {10}
