"""``gpushare plan``: what would make room for the pods that wait."""

from __future__ import annotations

from typing import Any

import click

from gpushare.cli import show
from gpushare.cli.cluster import Target
from gpushare.cli.options import cluster_options, output_option


@click.command()
@click.option(
    "--idle",
    "idle_minutes",
    type=click.IntRange(0, 60 * 24 * 366),
    default=30,
    show_default=True,
    metavar="MINUTES",
    help="From when a pod counts as idle: no program on its cards for so long.",
)
@output_option("text", "json", "yaml", text="json and yaml are the state API's own answer.")
@cluster_options
def plan(idle_minutes: int, output: str, target: Target) -> None:
    """Say which idle pods' restarts would make room for those who wait, and what more cards would do.

    Nothing is done: a restart is its owner's, or the culler's, decision. The fewest pods that would
    have to stop are named, then the fewest restarts, then those that have been idle for longest.

    \b
    gpushare plan
    gpushare plan --idle 10 -o json
    """
    answer = target.read(f"/v1/plan?idle_minutes={idle_minutes}")
    if output in show.DATA:
        show.data(answer, output)
    else:
        click.echo("\n".join(lines(answer)))


def lines(answer: Any) -> list[str]:
    """The answer for people."""
    if not answer["pods"]:
        return ["nobody waits"]
    told = [pod["sentence"] for pod in answer["pods"]]
    if answer["more"]:
        told.append(f"and {answer['more']} more wait behind these")
    return told + [addition["sentence"] for addition in answer["additions"]]
