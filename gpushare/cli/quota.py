"""``gpushare quota``: allowances and what is left of them; admins give more."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote as quoted

import click

from gpushare.cli import show
from gpushare.cli.hub import Hub, NoHub, hub_options
from gpushare.cli.options import output_option

_PATH = "hub/gpushare/quotas"
COLUMNS = ("USER", "SLICES", "GIB", "ALLOWANCE")


@click.command()
@click.argument("user", required=False)
@click.option(
    "--grant",
    type=float,
    metavar="GIB_HOURS",
    help="Give USER so many GPU-GiB-hours more in this window; a negative number takes them.",
)
@click.option("--note", default="", help="Why, for whoever looks later.")
@output_option("table", "json", "yaml", text="json and yaml have every limit and sum.")
@hub_options
def quota(user: str | None, grant: float | None, note: str, output: str, hub: Hub) -> None:
    """Show what people may hold, hold now, and have left; USER, or everybody for admins.

    \b
    gpushare quota
    gpushare quota erin
    gpushare quota erin --grant 20 --note "thesis deadline"
    """
    if grant is not None:
        if user is None:
            raise click.UsageError("--grant needs a USER")
        body = {"gib_hours": grant, "note": note}
        told = _read(hub.ask(f"{_PATH}/{quoted(user)}/grants", body=body))
    else:
        told = _read(hub.ask(f"{_PATH}/{quoted(user)}" if user else _PATH))
    if output in show.DATA:
        show.data(told, output)
        return
    entries = told.get("quotas", [told])
    if not entries:
        click.echo("nobody has a quota, and nobody holds a slice")
        return
    show.table(COLUMNS, [_row(entry) for entry in entries])


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    words = [entry.get("words") or "no limit"]
    words += [f"group {one['group']}: {one['words']}" for one in entry.get("groups") or []]
    gib = f"{(entry.get('mib') or 0) / 1024:g}"
    return (str(entry.get("user", "")), str(entry.get("slices", 0)), gib, "; ".join(words))


def _read(answer: bytes) -> dict[str, Any]:
    try:
        told = json.loads(answer)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise NoHub("the Hub's answer cannot be read: does it run gpushare's spawner?")
    return told
