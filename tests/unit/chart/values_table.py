"""The table of values in the chart's README, made from the comments in values.yaml.

`python -m tests.unit.chart.values_table` writes it anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.unit.chart.rendering import CHART

README = CHART / "README.md"
START, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"
_KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):")


@dataclass(frozen=True)
class Value:
    """One setting: its dotted name, its default as JSON, and what the comment above it says."""

    name: str
    default: str
    text: str


def values(path: Path = CHART / "values.yaml") -> Iterator[Value]:
    """The settings in the order of the file. A key with settings below it is none itself."""
    source = path.read_text()
    data = yaml.safe_load(source)
    stack: list[tuple[int, str]] = []
    comment: list[str] = []
    of_section = False
    for line in source.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            # What is said of a section is said of its first setting, unless that has its own words.
            comment = [] if of_section else comment
            of_section = False
            comment.append(stripped.removeprefix("#").strip())
            continue
        match = _KEY.match(line)
        if match is None:
            comment = [] if not stripped else comment
            continue
        indent = len(match[1])
        stack = [(i, key) for i, key in stack if i < indent] + [(indent, match[2])]
        name = ".".join(key for _, key in stack)
        default = _at(data, name)
        if default is not _ABSENT and not _is_section(line, default):
            yield Value(name, json.dumps(default), " ".join(comment))
            comment, of_section = [], False
        else:
            of_section = True


_ABSENT = object()


def _at(data: Any, name: str) -> Any:
    for key in name.split("."):
        if not isinstance(data, dict) or key not in data:
            return _ABSENT
        data = data[key]
    return data


def _is_section(line: str, default: Any) -> bool:
    return isinstance(default, dict) and bool(default) and line.rstrip().endswith(":")


def table() -> str:
    rows = ["| setting | default | what it is |", "|---|---|---|"]
    for value in values():
        cells = (f"`{value.name}`", f"`{value.default}`", value.text)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    """The README's text with the table as it should be."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return before + START + table() + END + after


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
