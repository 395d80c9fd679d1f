"""The notice board as its readers see it, and what a terminal shows of it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.notices import NoticeBoards
from gpushare import board
from gpushare.cli.slice import slice as slice_command
from gpushare.slice_words import lines

CARD: dict[str, Any] = {
    "uuid": "GPU-1",
    "index": 0,
    "model": "T4",
    "memory_mib": 15360,
    "slice_mib": 7168,
    "limit_mib": 7168,
    "used_mib": 2150,
    "peak_mib": 3072,
    "sm_percent": None,
    "last_kernel": 940.0,
    "over_since": None,
    "processes": [{"pid": 77, "name": "python3", "container": "notebook", "used_mib": 2150}],
}


def written(folder: Path, *cards: dict[str, Any], notices: int = 0) -> Path:
    """A board that the device plugin's own code wrote."""
    boards = NoticeBoards(folder)
    boards.edits("uid")
    for number in range(notices):
        boards.post("uid", "GPUMemoryExceeded", f"uses too much ({number})", 900.0)
    boards.show("uid", {"pod": "jupyter-alice", "cards": list(cards)}, 1000.0)
    return folder / "uid" / "slice.json"


def test_reads_what_the_device_plugin_writes(tmp_path: Path) -> None:
    found = board.read(written(tmp_path, CARD, notices=2))
    assert (found.pod, found.updated) == ("jupyter-alice", 1000.0)
    assert [(c.model, c.used_mib, c.limit_mib) for c in found.cards] == [("T4", 2150, 7168)]
    assert found.cards[0].processes == (board.Process(77, "python3", "notebook", 2150),)
    assert [(n.id, n.text) for n in found.notices] == [
        (1, "uses too much (0)"),
        (2, "uses too much (1)"),
    ]


def test_no_board_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(board.NoBoard, match="no GPU slice"):
        board.read(tmp_path / "none.json")
    with pytest.raises(board.NoBoard, match="cannot be read"):
        board.read(tmp_path)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["v", "cards", "notices", "processes", "pid", "used_mib", "model"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(json_values)
def test_anything_else_is_a_value_error(value: Any) -> None:
    text = json.dumps({"v": 1, **value} if isinstance(value, dict) else value)
    with contextlib.suppress(ValueError):
        assert isinstance(board.decode(text), board.Board)


def test_words(tmp_path: Path) -> None:
    over = {**CARD, "uuid": "GPU-2", "index": 1, "used_mib": 8192, "over_since": 995.0}
    found = board.read(written(tmp_path, CARD, over, notices=1))
    text = list(lines(found, 1000.0, own_pid=77))
    assert text == [
        "T4 (card 0): 2.1 of 7 GiB in use, 3 GiB at most so far, last busy 60 s ago",
        "  process 77 (python3): 2.1 GiB, this kernel",
        "T4 (card 1): 8 of 7 GiB in use, last busy 60 s ago, OVER ITS LIMIT for 5 s",
        "  process 77 (python3): 2.1 GiB, this kernel",
        "! 100 s ago: uses too much (0)",
    ]


def test_command(tmp_path: Path) -> None:
    path = written(tmp_path, CARD)
    shown = CliRunner().invoke(slice_command, ["--board", str(path)])
    assert shown.exit_code == 0
    assert shown.output.startswith("T4 (card 0): 2.1 of 7 GiB in use")
    raw = CliRunner().invoke(slice_command, ["-o", "json", "--board", str(path)])
    assert json.loads(raw.output)["cards"] == [CARD]
    missing = CliRunner().invoke(slice_command, ["--board", str(tmp_path / "none")])
    assert missing.exit_code == 1
    assert "no GPU slice" in missing.output
