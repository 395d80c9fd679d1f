"""``gpushare usage`` and ``quota`` against a Hub that is a small HTTP double."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from gpushare.cli.main import main
from tests.unit.cli.double import ApiServer

USAGE = "/services/gpushare-culler/api/usage"
QUOTAS = "/hub/gpushare/quotas"
ROW = {"user": "erin", "given": 12.0, "used": 8.25, "busy": 4.0, "idle": 8.0, "unknown": 0.0}
ERIN = {"user": "erin", "slices": 1, "mib": 7168, "words": "1 of 2 slices in use",
        "groups": [{"group": "bio", "words": "3 of 4 slices in use"}]}  # fmt: skip


@pytest.fixture(autouse=True)
def hub(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    monkeypatch.setenv("GPUSHARE_HUB", f"{api.url}/hub/")
    monkeypatch.setenv("GPUSHARE_HUB_TOKEN", "secret")
    return api


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_usage_as_a_table_and_as_data(hub: ApiServer) -> None:
    query = f"{USAGE}?from=2026-11-01&by=user&format=json"
    hub.answers[query] = (200, {"rows": [ROW]})
    result = run("usage", "--from", "2026-11-01")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[1].split() == ["erin", "12.0", "8.2", "4.0", "8.0", "0.0"]
    assert "12.0 GPU-GiB-hours given" in result.output
    assert json.loads(run("usage", "--from", "2026-11-01", "-o", "json").output)["rows"] == [ROW]


def test_csv_comes_as_it_is(hub: ApiServer) -> None:
    hub.answers[f"{USAGE}?by=day%2Cuser&format=csv"] = (200, "day,user,given\n")
    assert run("usage", "--by", "day, user", "-o", "csv").output == "day,user,given\n"


@pytest.mark.parametrize(
    "wrong", [["--by", "colour"], ["--from", "yesterday"], ["--by", ","], ["--to", "2026"]]
)
def test_what_cannot_be_asked(wrong: list[str]) -> None:
    assert run("usage", *wrong).exit_code == 2


def test_quota_of_one_and_of_all(hub: ApiServer) -> None:
    hub.answers[QUOTAS] = (200, {"quotas": [ERIN]})
    hub.answers[f"{QUOTAS}/erin"] = (200, ERIN)
    for arguments in ([], ["erin"]):
        line = run("quota", *arguments).output.splitlines()[1]
        assert line.split()[:3] == ["erin", "1", "7"]
        assert line.endswith("1 of 2 slices in use; group bio: 3 of 4 slices in use")


def test_grant_says_why(hub: ApiServer) -> None:
    hub.answers[f"POST {QUOTAS}/erin/grants"] = (200, ERIN)
    assert run("quota", "erin", "--grant", "20", "--note", "thesis").exit_code == 0
    assert hub.sent == [("POST", f"{QUOTAS}/erin/grants", {"gib_hours": 20.0, "note": "thesis"})]
    assert run("quota", "--grant", "20").exit_code == 2


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "make a new one"), (403, "you may not"), (404, "is the service switched on"),
     (503, "nobody to answer"), (500, "answered 500"), (302, "does not accept the token")],
)  # fmt: skip
def test_refusals_say_what_to_do(hub: ApiServer, status: int, words: str) -> None:
    hub.answers[QUOTAS] = (status, {"detail": "no"})
    result = run("quota")
    assert result.exit_code == 1
    assert words in result.output


def test_which_hub_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSHARE_HUB")
    result = run("quota")
    assert result.exit_code == 1
    assert "GPUSHARE_HUB" in result.output


def test_answer_that_is_no_answer(hub: ApiServer) -> None:
    hub.answers[QUOTAS] = (200, "<html>")
    assert "cannot be read" in run("quota").output
