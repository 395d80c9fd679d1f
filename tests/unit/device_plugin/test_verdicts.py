"""XID verdicts on the node's disk."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from device_plugin.verdicts import VerdictFile

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_what_is_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "run" / "xids.json"
    VerdictFile(path).keep({"GPU-a": (79, NOON)})
    after = VerdictFile(path)
    assert after.load() == {"GPU-a": (79, NOON)}
    after.keep({})
    assert VerdictFile(path).load() == {}


@pytest.mark.parametrize("text", ["", "[]", '{"GPU-a": 79}', '{"GPU-a": [79, "noon"]}', "[" * 9999])
def test_a_broken_file_is_no_verdict(tmp_path: Path, text: str) -> None:
    path = tmp_path / "xids.json"
    path.write_text(text)
    assert VerdictFile(path).load() == {}


def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    verdicts = VerdictFile(tmp_path / "file" / "xids.json")
    verdicts.keep({"GPU-a": (79, NOON)})
    verdicts.keep({"GPU-a": (79, NOON)})
    assert caplog.text.count("will not outlive") == 1
