"""``gpushare usage``: who held how much of the cards for how long."""

from __future__ import annotations

import json
import re

import click

from gpushare.cli import show
from gpushare.cli.hub import Hub, NoHub, hub_options
from gpushare.cli.options import output_option

_PATH = "services/gpushare-culler/api/usage"
_DIMENSIONS = ("day", "user", "group", "namespace", "model")
_HOURS = ("given", "used", "busy", "idle", "unknown")


class Dimensions(click.ParamType[str]):
    """A comma list of what the sums are by."""

    name = "LIST"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        parts = [part.strip() for part in value.split(",") if part.strip()]
        unknown = [part for part in parts if part not in _DIMENSIONS]
        if unknown or not parts:
            self.fail(f"{value!r}: choose from {', '.join(_DIMENSIONS)}", param, ctx)
        return ",".join(parts)


def _day(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        raise click.BadParameter(f"{value!r} is not a day, as 2026-11-01")
    return value


@click.command()
@click.option("--from", "start", callback=_day, metavar="DAY", help="First day, as 2026-11-01.")
@click.option("--to", "end", callback=_day, metavar="DAY", help="Last day.")
@click.option(
    "--by",
    type=Dimensions(),
    default="user",
    show_default=True,
    help=f"What the sums are by, of {', '.join(_DIMENSIONS)}.",
)
@output_option("table", "csv", "json", "yaml", text="csv for a spreadsheet.")
@hub_options
def usage(start: str | None, end: str | None, by: str, output: str, hub: Hub) -> None:
    """Export who held how much of the cards, in GPU-GiB-hours; oneself, or everybody for admins.

    given: what was held. Of that, used: what programs had in memory; busy and idle: while programs
    ran on the card and while none did; unknown: while nothing was measured. It is kept by the culler
    service of the Hub.

    \b
    gpushare usage --from 2026-11-01 --by day,user -o csv > november.csv
    gpushare usage --by group,model
    """
    query = {"from": start, "to": end, "by": by, "format": "csv" if output == "csv" else "json"}
    answer = hub.ask(_PATH, query)
    if output == "csv":
        click.echo(answer.decode(), nl=False)
        return
    try:
        told = json.loads(answer)
        rows = told["rows"]
    except (ValueError, KeyError, TypeError):
        raise NoHub("the culler's answer cannot be read: is it of this version?") from None
    if output in show.DATA:
        show.data(told, output)
        return
    shown = [*by.split(","), *_HOURS]
    if not rows:
        click.echo("nothing was held in that time")
        return
    show.table(
        [name.upper() for name in shown],
        [[_cell(row.get(name)) for name in shown] for row in rows],
    )
    total = sum(row.get("given") or 0 for row in rows)
    click.echo(f"{total:.1f} GPU-GiB-hours given")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return "-" if value is None or value == "" else str(value)
