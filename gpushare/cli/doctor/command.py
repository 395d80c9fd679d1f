"""The command: gather, examine, print."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import click

from gpushare.cli import show
from gpushare.cli.cluster import Refused, Target, message
from gpushare.cli.doctor.checks import ALL
from gpushare.cli.doctor.finding import Level, Result, examine
from gpushare.cli.doctor.gather import gather
from gpushare.cli.options import cluster_options, output_option

_MARKS = {Level.OK: "ok", Level.UNKNOWN: "?", Level.WARNING: "warning", Level.ERROR: "ERROR"}
_COLOURS = {Level.OK: "green", Level.UNKNOWN: None, Level.WARNING: "yellow", Level.ERROR: "red"}


@click.command()
@click.option("--strict", is_flag=True, help="Warnings and what could not be checked fail as well.")
@click.option(
    "--check",
    "chosen",
    multiple=True,
    type=click.Choice([check.name for check in ALL]),
    help="Only this one; can be given several times.",
)
@output_option("text", "json", "yaml", text="json and yaml for programs.")
@cluster_options
def doctor(strict: bool, chosen: tuple[str, ...], output: str, target: Target) -> None:
    """Look for what is wrong with gpushare in a cluster, from outside, and say how to mend it.

    It changes nothing, and prints no secret. An administrator's kubeconfig sees the most; what may
    not be read is said so, and not taken for well. The exit status is 1 if anything is wrong.

    \b
    gpushare doctor
    gpushare doctor --check units --check rights
    gpushare doctor -o json --strict
    """
    try:
        facts = gather(target.connection, target.namespace)
    except Refused as refused:
        raise click.ClickException(
            f"the API server does not let you look: {message(refused.message)}"
        ) from None
    results = examine(facts, [check for check in ALL if not chosen or check.name in chosen])
    if output in show.DATA:
        show.data(as_data(results), output)
    else:
        click.echo("\n".join(lines(results)))
    sys.exit(1 if failed(results, strict=strict) else 0)


def failed(results: Iterable[Result], *, strict: bool = False) -> bool:
    """Whether the exit status says that something is wrong."""
    bad = {Level.ERROR, Level.WARNING, Level.UNKNOWN} if strict else {Level.ERROR}
    return any(result.level in bad for result in results)


def lines(results: Iterable[Result]) -> list[str]:
    """For people: one line a check, and below it what was found and what to do."""
    told, levels = [], Counter[Level]()
    for result in results:
        mark = click.style(f"{_MARKS[result.level]:8}", fg=_COLOURS[result.level])
        told.append(f"{mark}{result.check.title}")
        for finding in result.findings:
            if finding.level is Level.OK:
                continue
            levels[finding.level] += 1
            told.append(f"        - {finding.text}")
            if finding.fix:
                told.append(f"          to mend it: {finding.fix}")
    return [*told, "", _summary(levels)]


def _summary(levels: Counter[Level]) -> str:
    words = {Level.ERROR: "wrong", Level.WARNING: "to look after", Level.UNKNOWN: "not checked"}
    parts = [f"{levels[level]} {text}" for level, text in words.items() if levels[level]]
    return ", ".join(parts) if parts else "nothing is wrong"


def as_data(results: Iterable[Result]) -> dict[str, Any]:
    """For programs."""
    return {
        "checks": [
            {
                "name": result.check.name,
                "title": result.check.title,
                "level": result.level.value,
                "findings": [
                    {"level": f.level.value, "text": f.text, "fix": f.fix}
                    for f in result.findings
                    if f.level is not Level.OK
                ],
            }
            for result in results
        ]
    }
