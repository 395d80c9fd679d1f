"""``gpushare why``: the sentence, what would help, and which pod is meant."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpushare.cli.main import main
from gpushare.cli.why import lines
from gpushare.cli.words import ordinal, since
from gpushare.waiting import (
    Leaver,
    Obstacle,
    PlacedCard,
    PlacedPod,
    RefusedPod,
    WaitingPod,
    WayOut,
    why_object,
)
from tests.unit.cli.double import BASE, PROXY, STATE, ApiServer

NOW = 1_800_000_000.0
ROOM = "wants 7 GiB on one card, the most free on one card is 2 GiB"
ERIN = WaitingPod(
    namespace="jupyter", pod="jupyter-erin", uid="u", user="erin", since=NOW - 200,
    request="7 GiB on a T4", mib=7168, percent=0, cards=1, models=("T4",), place=2, of=3,
    reasons=(
        Obstacle("t4-1", "GPU-T4-0", 0, "T4", 2048, 100, ROOM),
        Obstacle("t4-1", "GPU-T4-1", 1, "T4", 0, 0, ROOM),
        Obstacle("old", "", 0, "", 0, 0, "the node takes no pods"),
    ),
    would_end=(WayOut("t4-1", "GPU-T4-0", (Leaver("jupyter", "jupyter-bob", "bob", 5120, 0),)),),
)  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["why", *arguments])


def path(namespace: str, pod: str) -> str:
    return f"{BASE}/v1/pods/{namespace}/{pod}/why"


def test_waiting_in_one_sentence_and_what_would_help() -> None:
    holders = {"GPU-T4-1": ("job/train",)}
    assert lines(ERIN, NOW, holders) == [
        "waiting 3 min for 7 GiB on a T4 (2nd in line): t4-1/0 has 2 GiB, "
        "t4-1/1 is held whole by job/train, old: the node takes no pods",
        "it would fit on t4-1 if these ended: bob (5 GiB)",
    ]


def test_a_share_of_the_compute_and_many_holders() -> None:
    words = "wants 30 % of a card's compute, the most free on one card is 20 %"
    one = replace(ERIN, percent=30, would_end=(), reasons=(
        Obstacle("n", "c", 0, "T4", 5120, 20, words), Obstacle("n", "d", 1, "T4", 0, 0, words),
    ))  # fmt: skip
    (line,) = lines(one, NOW, {"d": ("ann", "bob", "cem", "dee", "eve")})
    assert line.endswith("n/0 has 5 GiB and 20 %, n/1 is held by ann, bob, cem and 2 more")


def test_many_cards_are_told_in_full_only_when_asked() -> None:
    many = replace(
        ERIN,
        reasons=tuple(Obstacle("n", f"c{i}", i, "T4", 0, 0, "is full") for i in range(6)),
        more=10,
        would_end=(),
    )
    (short,) = lines(many, NOW)
    assert short.endswith("n/3: is full, and 12 more (-o wide)")
    full = lines(many, NOW, wide=True)
    assert full[6:] == ["  n/5: is full", "  and 10 more"]


def test_placed_and_refused() -> None:
    placed = PlacedPod("a", "b", "u", "t4-1", (PlacedCard("GPU-1", 1, "T4", 3072, 40),))
    assert lines(placed, NOW) == ["has its slice: t4-1/1 (T4) 3 GiB and 40 %"]
    refused = RefusedPod("a", "b", "u", "wants 40 GiB, the largest card has 22.5 GiB")
    assert lines(refused, NOW)[0].startswith("cannot be placed: wants 40 GiB")


@pytest.mark.parametrize("said", ["jupyter-erin", "pod/jupyter-erin", "jupyter/jupyter-erin"])
def test_pod_is_found_by_its_name(api: ApiServer, kubeconfig: Path, said: str) -> None:
    waiting = {"namespace": "jupyter", "pod": "jupyter-erin", "uid": "u"}
    api.answers[PROXY] = (200, {**STATE, "waiting": [waiting]})
    api.answers[path("jupyter", "jupyter-erin")] = (200, why_object(ERIN))
    result = run(said)
    assert result.exit_code == 0, result.output
    assert "for 7 GiB on a T4 (2nd in line)" in result.output
    assert json.loads(run(said, "-o", "json").output)["state"] == "waiting"


def test_namesakes_must_be_told_apart(api: ApiServer, kubeconfig: Path) -> None:
    waiting = [{"namespace": n, "pod": "train", "uid": n} for n in ("one", "two")]
    api.answers[PROXY] = (200, {**STATE, "waiting": waiting})
    result = run("train")
    assert result.exit_code == 1
    assert "jupyter/train, one/train, two/train" in result.output


def test_unknown_pod_is_looked_for_in_the_context_s_namespace(
    api: ApiServer, kubeconfig: Path
) -> None:
    answer: Any = {"detail": "there is no pod default/none"}
    api.answers[path("default", "none")] = (404, answer)
    result = run("none")
    assert result.exit_code == 1
    assert "the extender says: there is no pod default/none" in result.output


def test_answer_of_another_version_is_no_traceback(api: ApiServer, kubeconfig: Path) -> None:
    api.answers[path("a", "b")] = (200, {"state": "dreaming"})
    result = run("a/b")
    assert result.exit_code == 1
    assert "cannot be read" in result.output


def test_words() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "112th",
    ]  # fmt: skip
    assert [since(s) for s in (-1, 59, 60, 3600, 90000)] == ["0 s", "59 s", "1 min", "1 h", "1 d"]
