"""``gpushare inspect`` through an API server that is a small HTTP double: tables, JSON, and advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gpushare.cli import table
from gpushare.cli.main import main
from tests.unit.cli.double import PROXY, STATE, TOKEN, ApiServer, card, held


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["inspect", *arguments])


def test_the_table(api: ApiServer, kubeconfig: Path):
    result = run()
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].split() == list(table.COLUMNS)
    lines = {line.split()[0]: line for line in result.output.splitlines()}
    assert "alice 7, train 3 40%" in result.output
    assert "10/15 GiB 67%, 40% compute" in result.output
    assert "job whole card" in lines["t4-1"]
    assert lines["t4-1"].endswith("XID 79")
    assert lines["broken"].endswith("not JSON")
    assert lines["cluster:"] == "cluster: 25/52.5 GiB allocated (48%), 9.3 GiB used, 1 waiting"
    assert api.seen == [("POST", TOKEN, ""), ("GET", PROXY, "Bearer a-token")]


def test_columns_are_aligned(kubeconfig: Path):
    lines = run("-o", "wide").output.splitlines()
    at = lines[0].index("HEALTH")
    assert lines[0].split()[-1] == "UUID"
    assert [line[at:].split("  ")[0] for line in lines[1:-1]] == ["ok", "not JSON", "ok", "XID 79"]
    assert "jupyter/jupyter-alice 7" in "\n".join(lines)
    assert lines[1].endswith("GPU-A10-0")


def test_json_is_the_answer_itself(kubeconfig: Path):
    assert json.loads(run("-o", "json").output) == STATE
    only = json.loads(run("t4-1", "-o", "json").output)
    assert [node["name"] for node in only["nodes"]] == ["t4-1"]


def test_one_node_or_advice(kubeconfig: Path):
    result = run("a10-1")
    assert "t4-1" not in result.output
    assert "cluster: 0/22.5 GiB allocated (0%)" in result.output
    result = run("nope")
    assert result.exit_code == 1
    assert "no node 'nope' with shared cards; there are: a10-1, broken, t4-1" in result.output


def test_marks_of_what_comes_and_goes():
    node = {"name": "n", "cards": [card(0, slices=[held("a", 1, reserved=True),
                                                   held("b", 1.5, leaving=True)])]}  # fmt: skip
    (row,) = table.rows([node])
    assert row[3] == "a 1 (binding), b 1.5 (leaving)"


@pytest.mark.parametrize(
    ("path", "status", "body", "words"),
    [
        (TOKEN, 403, {"message": "cannot create serviceaccounts/token"}, "role gpushare-inspect"),
        (TOKEN, 404, {"message": 'namespaces "gpushare" not found'}, "--namespace"),
        (TOKEN, 401, {"message": "Unauthorized"}, "log in again"),
        (PROXY, 403, {"message": "cannot get services/proxy"}, "role gpushare-inspect"),
        (PROXY, 503, {"message": "no endpoints available"}, "kubectl -n gpushare get pods"),
        (PROXY, 403, {"detail": "x may not get /v1/nodes"}, "the extender says: x may not"),
        (PROXY, 503, {"detail": "the pods are not read yet"}, "the pods are not read yet"),
        (PROXY, 500, "<html>", "answered 500: <html>"),
    ],
)
def test_every_refusal_says_what_to_do(
    api: ApiServer, kubeconfig: Path, path: str, status: int, body: Any, words: str
):
    api.answers[path] = (status, body)
    result = run()
    assert result.exit_code == 1
    assert words in result.output
    assert "Traceback" not in result.output


def test_no_cluster_and_no_answer(kubeconfig: Path, api: ApiServer, monkeypatch, tmp_path: Path):
    api.close()
    result = run()
    assert result.exit_code == 1
    assert f"the API server at {api.url} does not answer" in result.output
    result = run("--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "Set KUBECONFIG or --kubeconfig" in result.output


def test_another_namespace_by_option_and_environment(
    api: ApiServer, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
):
    run("-n", "elsewhere")
    monkeypatch.setenv("GPUSHARE_NAMESPACE", "third")
    run()
    assert [path.split("/")[4] for _, path, _ in api.seen] == ["elsewhere", "third"]


def test_help_lists_the_commands():
    result = CliRunner().invoke(main, ["--help"])
    assert "inspect" in result.output
    assert "playground" in result.output
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2


def test_on_a_terminal_the_table_is_rich(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpushare.cli.show.is_terminal", lambda: True)
    result = run()
    assert result.exit_code == 0
    assert "alice 7" in result.output
    assert "cluster:" in result.output


def test_classic_layout(kubeconfig: Path):
    lines = run("-o", "classic").output.splitlines()
    assert lines[0].split("  ")[0] == "NAME"
    assert "GPU1(Allocated/Total)" in lines[0]
    assert lines[0].endswith("GPU Memory(GiB)")
    by_node = {line.split()[0]: line.split() for line in lines[1:4]}
    assert by_node["t4-1"] == ["t4-1", "10/15", "15/15", "25/30"]
    assert by_node["a10-1"] == ["a10-1", "0/22", "0/0", "0/22"]
    assert lines[-2:] == ["Allocated/Total GPU Memory In Cluster:", "25/52 (47%)"]


def test_details_of_a_node(kubeconfig: Path):
    text = run("-d", "t4-1").output
    assert "NAME:       t4-1" in text
    assert ["jupyter-alice", "jupyter", "7", "0"] in [line.split() for line in text.splitlines()]
    assert "Allocated : 25 (83%)" in text
    assert "a10-1" not in text


def test_yaml_is_the_same_as_json(kubeconfig: Path):
    assert yaml.safe_load(run("-o", "yaml").output) == STATE
