"""The server extension: whose memory it is, when the server ends, and what the browser gets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from gpushare.board import NoBoard
from hub_integration.lab import magic
from hub_integration.lab.culler import CullerClient, CullerError, culler_url
from hub_integration.lab.kernels import Kernel, kernels_of, owner_of, parent_of
from hub_integration.lab.shown import History, nothing, shown
from hub_integration.lab.source import slice_now
from tests.unit.lab.test_board import CARD, written

VERDICT = {
    "user": "alice",
    "action": "warn",
    "ends_at": "2026-11-21T14:32:00Z",
    "seconds_left": 240,
    "sentence": "Ends at 14:32 UTC unless it is used.",
    "warned": True,
    "held_until": None,
    "hold": {"minutes": 30, "until_at_most": None, "allowed": True, "why_not": ""},
    "policy": {"warn_seconds": 300},
    "pod": "jupyter-alice",
}


def test_a_process_belongs_to_the_nearest_kernel() -> None:
    kernels = {50: Kernel("k1", "train.ipynb", 50), 60: Kernel("k2", "other.ipynb", 60)}
    parents = {77: 70, 70: 50, 50: 10, 10: 1, 88: 1, 60: 50}
    found = [owner_of(pid, kernels, lambda p: parents.get(p, 0)) for pid in (77, 60, 88, 99)]
    assert [kernel and kernel.id for kernel in found] == ["k1", "k2", None, None]


def test_a_ring_of_parents_ends() -> None:
    assert owner_of(5, {}, lambda pid: 6 if pid == 5 else 5) is None


def test_parent_from_proc() -> None:
    assert parent_of(os.getpid()) == os.getppid()
    assert parent_of(2**30) == 0


def test_kernels_of_a_server() -> None:
    running = {"k1": SimpleNamespace(provisioner=SimpleNamespace(pid=50), kernel_name="python3")}
    remote = {"k2": SimpleNamespace(provisioner=SimpleNamespace(), kernel_name="r")}
    both = {**running, **remote}
    manager = SimpleNamespace(list_kernel_ids=lambda: list(both), get_kernel=both.__getitem__)
    sessions = [{"kernel": {"id": "k1"}, "path": "train.ipynb"}]
    assert kernels_of(manager, sessions) == {50: Kernel("k1", "train.ipynb", 50)}


def test_what_the_browser_gets(tmp_path: Path) -> None:
    board = slice_now(written(tmp_path, CARD, notices=1), {})
    history = History()
    history.add(board, 990.0)
    kernel = Kernel("k1", "train.ipynb", 77)
    answer = shown(board, 1000.0, history, {77: kernel}.get, VERDICT)
    json.dumps(answer)
    card = answer["cards"][0]
    assert (card["model"], card["used_mib"]) == ("T4", 2150)
    assert card["processes"][0]["kernel"] == {"id": "k1", "title": "train.ipynb"}
    assert answer["history"] == [[990.0, 2150, None]]
    assert answer["time"]["ends_at"] == "2026-11-21T14:32:00Z"
    assert answer["time"]["warn_seconds"] == 300
    assert "user" not in answer["time"]
    assert len(answer["notices"]) == 1
    late = shown(board, 1000.0 + 3600, history, lambda _: None, None)
    assert late["notices"] == []  # an hour old
    assert nothing("no slice", VERDICT)["time"]["seconds_left"] == 240


def test_without_a_board_nvml_tells_of_own_processes(tmp_path: Path) -> None:
    mib = 1 << 20
    own = SimpleNamespace(pid=os.getpid(), usedGpuMemory=2150 * mib)
    other = SimpleNamespace(pid=2**30, usedGpuMemory=9000 * mib)
    nvml = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=15360 * mib),
        nvmlDeviceGetName=lambda _: "Tesla T4",
        nvmlDeviceGetUUID=lambda _: "GPU-1",
        nvmlDeviceGetComputeRunningProcesses=lambda _: [own, other],
    )
    missing = tmp_path / "none.json"
    board = slice_now(missing, {"GPU_MEM_LIMIT": str(7168 * mib)}, nvml)
    card = board.cards[0]
    assert (card.model, card.used_mib, card.limit_mib) == ("T4", 2150, 7168)
    with pytest.raises(NoBoard):
        slice_now(missing, {}, nvml)  # a container without a slice


class Http:
    """The culler, as tornado's client sees it."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []

    async def fetch(self, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(body=json.dumps(answer).encode())


def refusal(code: int, body: str) -> HTTPClientError:
    error = HTTPClientError(code, "no")
    error.response = SimpleNamespace(body=body.encode())
    return error


async def test_verdict_is_asked_once_in_a_while() -> None:
    http = Http({"verdicts": [VERDICT]})
    client = CullerClient("http://hub/services/gpushare-culler", "own-token", http)  # type: ignore[arg-type]
    assert await client.verdict() == VERDICT
    assert await client.verdict() == VERDICT
    (request,) = http.requests
    assert request.url == "http://hub/services/gpushare-culler/api/verdicts/mine"
    assert request.headers["Authorization"] == "token own-token"


async def test_hold_is_posted_and_seen_at_once() -> None:
    held = {**VERDICT, "ends_at": None, "held_until": "2026-11-21T15:02:00Z"}
    http = Http({"verdicts": [VERDICT]}, held)
    client = CullerClient("http://c", "own-token", http)  # type: ignore[arg-type]
    await client.verdict()
    assert await client.hold(30) == held
    assert json.loads(http.requests[1].body) == {"minutes": 30}
    assert await client.verdict() == held


async def test_the_cullers_own_sentence_reaches_the_user() -> None:
    http = Http(refusal(409, '{"detail": "It was kept for 4 hours, which is the most."}'))
    client = CullerClient("http://c", "own-token", http)  # type: ignore[arg-type]
    with pytest.raises(CullerError, match="the most") as caught:
        await client.hold(None)
    assert caught.value.status == 409


@pytest.mark.parametrize("trouble", [OSError("refused"), refusal(503, "<html>"), {"verdicts": 3}])
async def test_an_absent_culler_is_no_trouble(trouble: Any) -> None:
    client = CullerClient("http://c", "own-token", Http(trouble))  # type: ignore[arg-type]
    assert await client.verdict() is None


def test_where_the_culler_is() -> None:
    assert culler_url({}) == ""
    assert culler_url({"GPUSHARE_CULLER_URL": "http://c/x/"}) == "http://c/x"
    public = {"JUPYTERHUB_PUBLIC_HUB_URL": "https://hub.example.org/jupyter/hub/"}
    base = {"JUPYTERHUB_BASE_URL": "/jupyter/"}
    service = "/jupyter/services/gpushare-culler"
    assert culler_url({**public, **base}) == f"https://hub.example.org{service}"
    inside = {"PROXY_PUBLIC_SERVICE_HOST": "10.0.0.9", "PROXY_PUBLIC_SERVICE_PORT": "80"}
    assert culler_url({**inside, **base}) == f"http://10.0.0.9:80{service}"


def test_magic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUSHARE_BOARD", str(written(tmp_path, CARD)))
    magic.gpushare("")
    assert capsys.readouterr().out.startswith("T4 (card 0): 2.1 of 7 GiB in use")
    monkeypatch.setenv("GPUSHARE_BOARD", str(tmp_path / "none"))
    monkeypatch.delenv("GPU_MEM_LIMIT", raising=False)
    magic.gpushare("")
    assert "no GPU slice" in capsys.readouterr().out
