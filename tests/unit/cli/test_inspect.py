"""``gpushare inspect`` through an API server that is a small HTTP double: tables, JSON, and advice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gpushare.cli import table
from gpushare.cli.main import main

PROXY = "/api/v1/namespaces/gpushare/services/https:gpushare-extender:state/proxy/v1/nodes"
TOKEN = "/api/v1/namespaces/gpushare/serviceaccounts/gpushare-state-reader/token"


def card(index: int, model: str = "T4", memory: int = 15360, **more: Any) -> dict[str, Any]:
    slices = more.pop("slices", [])
    held = sum(s["mib"] for s in slices)
    return {
        "uuid": f"GPU-{model}-{index}",
        "index": index,
        "model": f"Tesla {model}",
        "short_model": model,
        "memory_mib": memory,
        "health": "ok",
        "allocated_mib": held,
        "allocated_percent": sum(s["percent"] for s in slices),
        "free_mib": memory - held,
        "free_percent": 100,
        "used_mib": None,
        "slices": slices,
        **more,
    }


def held(pod: str, gib: float, percent: int = 0, user: str = "", **more: Any) -> dict[str, Any]:
    return {
        "namespace": "jupyter",
        "pod": pod,
        "uid": f"uid-{pod}",
        "user": user,
        "mib": int(gib * 1024),
        "percent": percent,
        **more,
    }


STATE = {
    "unit_mib": 1024,
    "totals": {"nodes": 3, "cards": 3, "waiting": 1},
    "nodes": [
        {"name": "a10-1", "cards": [card(0, "A10", 23028, used_mib=9523)]},
        {"name": "broken", "problem": "not JSON", "cards": []},
        {
            "name": "t4-1",
            "cards": [
                card(0, slices=[held("jupyter-alice", 7, user="alice"), held("train", 3, 40)]),
                card(1, health="XID 79", slices=[held("job", 15, 100)]),
            ],
        },
    ],
    "waiting": [],
}


class ApiServer:
    """Answers by path: (status, body)."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {
            TOKEN: (201, {"status": {"token": "a-token"}}),
            PROXY: (200, STATE),
        }
        self.seen: list[tuple[str, str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                token = self.headers.get("X-Gpushare-Authorization", "")
                outer.seen.append((self.command, self.path, token))
                status, body = outer.answers.get(self.path, (404, {"message": "not found"}))
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _answer

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def api() -> Iterator[ApiServer]:
    api = ApiServer()
    yield api
    api.server.shutdown()
    api.server.server_close()


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": api.url}}],
                "users": [{"name": "u", "user": {"token": "mine"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("GPUSHARE_NAMESPACE", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return path


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
    api.server.shutdown()
    api.server.server_close()
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
    monkeypatch.setattr("gpushare.cli.inspect._is_terminal", lambda: True)
    result = run()
    assert result.exit_code == 0
    assert "alice 7" in result.output
    assert "cluster:" in result.output
