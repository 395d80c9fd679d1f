"""``gpushare slice``: the slice of the container that this runs in."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from gpushare import board
from gpushare.slice_words import lines


@click.command("slice")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json is the node's notice board, as it is.",
)
@click.option(
    "--board",
    "path",
    envvar="GPUSHARE_BOARD",
    default=str(board.PATH),
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the notice board of the slice is.",
)
def slice(output: str, path: Path) -> None:
    """This container's own slice: what it holds of which card, and by which process.

    For terminals of notebooks and for pods; it needs neither network nor rights.

    \b
    gpushare slice
    """
    try:
        found = board.read(path)
        if output == "json":
            click.echo(path.read_text("utf-8"))
            return
    except (board.NoBoard, OSError) as error:
        raise click.ClickException(str(error)) from None
    for line in lines(found, time.time(), os.getppid()):
        click.echo(line)
