"""Printing: tables that are plain where nobody looks at a terminal, and data as JSON or YAML."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import yaml

from gpushare.cli.table import plain

DATA = ("json", "yaml")
_NARROW = ("NODE", "CARD", "ALLOCATED")


def is_terminal() -> bool:
    """Whether a person reads our standard output."""
    return sys.stdout.isatty()


def data(value: Any, output: str) -> None:
    """Print ``value`` as ``output``, json or yaml."""
    if output == "yaml":
        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def compact(value: Any) -> str:
    """JSON for a reader of texts."""
    return json.dumps(value, separators=(",", ":"))


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    good: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Print a table. ``good``: by column, the cells that are as they should be; others stand out."""
    if is_terminal():
        from rich.console import Console

        Console().print(rich_table(header, rows, good))
    else:
        click.echo("\n".join(plain(header, rows)))


def rich_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    good: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """The same for a terminal, ready to be printed or shown live."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in header:
        shown.add_column(name, overflow="fold", no_wrap=name in _NARROW)
    for row in rows:
        cells = [Text(cell) for cell in row]
        for column, wanted in (good or {}).items():
            at = header.index(column)
            cells[at].stylize("green" if row[at] in wanted else "bold red")
        shown.add_row(*cells)
    return shown
