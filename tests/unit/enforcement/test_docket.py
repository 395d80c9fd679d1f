"""The watchdog's cases on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.docket import Docket, decode, encode
from device_plugin.enforcement.watchdog import Case, Ending, Fault

times = st.floats(0, 1e9)
cases = st.builds(
    Case,
    stepped=times,
    spent=st.floats(0, 1),
    over_since=st.none() | times,
    fault=st.sampled_from(Fault),
    ending=st.none()
    | st.builds(Ending, st.integers(1, 2**22), st.integers(0), times, st.booleans()),
    strikes=st.lists(times, max_size=4).map(tuple),
    evicting_since=st.none() | times,
)


@given(st.dictionaries(st.tuples(st.text(max_size=9), st.text(max_size=9)), cases, max_size=4))
def test_what_is_kept_is_what_was(open_cases: dict[tuple[str, str], Case]) -> None:
    assert decode(encode(open_cases)) == open_cases


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"v":2}', '{"v":1,"cases":[{"uid":"a","card":"b","case":{}}]}', "[" * 9999],
)
def test_a_broken_file_begins_afresh(text: str, tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text(text)
    assert Docket(tmp_path).load() == {}


def test_nothing_open_leaves_no_file(tmp_path: Path) -> None:
    docket = Docket(tmp_path / "run")
    docket.keep({("uid", "card"): Case(1.0, spent=0.5)})
    assert Docket(tmp_path / "run").load() == {("uid", "card"): Case(1.0, spent=0.5)}
    docket.keep({})
    assert list((tmp_path / "run").iterdir()) == []
