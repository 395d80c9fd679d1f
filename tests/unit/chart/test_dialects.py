"""The chart's table of dialects is the product's."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from gpushare.dialects.claims import NAMED_BY
from gpushare.dialects.table import DIALECTS
from tests.unit.chart.rendering import CHART

_TABLE = CHART / "templates" / "cluster" / "_dialects.tpl"


def table() -> dict[str, dict[str, object]]:
    text = _TABLE.read_text()
    match = re.search(r'define "gpushare.dialectTable" -\}\}\n(.*?)\{\{- end \}\}', text, re.DOTALL)
    assert match is not None
    found: dict[str, dict[str, object]] = yaml.safe_load(match[1])
    return found


def test_the_chart_knows_all_dialects() -> None:
    assert set(table()) == set(DIALECTS)


@pytest.mark.parametrize("name", DIALECTS)
def test_one_dialect(name: str) -> None:
    ours, theirs = DIALECTS[name], table()[name]
    assert theirs["resources"] == [r.name for r in ours.resources if r.counted]
    assert theirs.get("uncounted", []) == [r.name for r in ours.resources if not r.counted]
    assert set(theirs.get("protected", [])) == set(ours.protected)
    assert theirs.get("started", {}) == dict(ours.started)
    assert theirs.get("count", "") == ours.count
    assert theirs.get("unhealthyMap", "") == ours.unhealthy_map
    assert theirs.get("claimedBy", "") == (NAMED_BY if ours.claims else "")


def test_no_dialect_is_on_by_default() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text())["dialects"] == []
    schema = json.loads((CHART / "values.schema.json").read_text())
    pattern = schema["properties"]["dialects"]["items"]["pattern"]
    assert all(re.fullmatch(pattern, name) for name in (*DIALECTS, "aliyun:MiB"))
