"""``gpushare top``: what slices really use, live."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from gpushare import usage as wire
from gpushare.cli import show
from gpushare.cli.cluster import NoState, Target
from gpushare.cli.options import cluster_options, output_option
from gpushare.cli.words import since
from gpushare.units import human_mib
from gpushare.usage import NodeUsage, SliceUse

COLUMNS = ("NODE", "CARD", "POD", "SLICE", "USED", "PEAK", "SM", "IDLE", "NOTE")
_TOKEN_LIVES = 500.0  # of its 600 s
_SORTS = ("card", "used", "sm", "idle")


@click.command()
@click.argument("node", required=False)
@click.option("--once", is_flag=True, help="Print it once, also on a terminal.")
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=5.0,
    show_default=True,
    help="Seconds between two looks; nodes are asked every 5 s.",
)
@click.option("--sort", type=click.Choice(_SORTS), default="card", show_default=True)
@output_option("table", "json", "yaml")
@cluster_options
def top(
    node: str | None, once: bool, interval: float, sort: str, output: str, target: Target
) -> None:
    """Show what slices use: memory now and at most, their part of the card's time, since when idle.

    On a terminal it goes on until Ctrl-C; else it is printed once. IDLE is the time since a program
    of the pod last ran on the card; '-' where the node does not measure.

    \b
    gpushare top
    gpushare top t4-1 --sort idle
    gpushare top --once -o json
    """
    if output in show.DATA:
        answer = target.read("/v1/usage")
        nodes = [one for one in answer["nodes"] if node in (None, one["node"])]
        show.data({**answer, "nodes": nodes}, output)
    elif once or not show.is_terminal():
        _print(_look(target, node), sort)
    else:
        _live(target, node, sort, interval)


def rows(nodes: list[NodeUsage], now: float, sort: str = "card") -> list[tuple[str, ...]]:
    """One row a slice, and one for each process that is on a card without one."""
    indexes = {card.uuid: place for one in nodes for place, card in enumerate(one.cards)}
    found: list[tuple[tuple[Any, ...], tuple[str, ...]]] = []
    for one in nodes:
        for held in one.slices:
            row = _slice(one, held, indexes, now)
            found.append((_key(sort, one.node, indexes, held), row))
        for stray in one.strays:
            name = f"({stray.name or 'process'} {stray.pid})"
            used = human_mib(stray.used_mib)
            cells = (one.node, _card(stray.card, indexes), name, "-", used, "-", "-", "-")
            found.append(((_LAST,), (*cells, "no slice")))
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def summary(nodes: list[NodeUsage], ages: Mapping[str, float]) -> str:
    """'6 cards: 9.3 of 118 GiB used; a10-1 told this 40 s ago'."""
    cards = [card for one in nodes for card in one.cards]
    used = human_mib(sum(card.used_mib for card in cards))
    total = human_mib(sum(card.total_mib for card in cards))
    old = [f"{name} told this {since(age)} ago" for name, age in sorted(ages.items()) if age > 30]
    return "; ".join(
        [f"{len(cards)} card{'s' if len(cards) != 1 else ''}: {used} of {total} used", *old]
    )


_LAST = chr(0x10FFFF)


def _key(sort: str, node: str, indexes: Mapping[str, int], held: SliceUse) -> tuple[Any, ...]:
    where = (node, indexes.get(held.card, 0), held.namespace, held.pod)
    first = {
        "card": 0,
        "used": -held.used_mib,
        "sm": -(held.sm_percent or 0),
        # Longest idle first; who never ran anything is idle since the slice is watched.
        "idle": held.last_kernel or held.watched_since,
    }[sort]
    return ("", first, *where)


def _slice(
    node: NodeUsage, held: SliceUse, indexes: Mapping[str, int], now: float
) -> tuple[str, ...]:
    last = held.last_kernel or held.watched_since
    notes = []
    if held.over_since is not None:
        notes.append(f"over its slice for {since(now - held.over_since)}")
    if held.limit_mib > held.slice_mib:
        notes.append(f"may use {human_mib(held.limit_mib)}")
    if held.ended:
        notes.append(f"{held.ended} ended")
    return (
        node.node,
        _card(held.card, indexes),
        f"{held.namespace}/{held.pod}",
        human_mib(held.slice_mib),
        human_mib(held.used_mib),
        human_mib(held.peak_mib),
        "-" if held.sm_percent is None else f"{held.sm_percent}%",
        since(now - last) if last else "-",
        ", ".join(notes),
    )


def _card(uuid: str, indexes: Mapping[str, int]) -> str:
    return str(indexes[uuid]) if uuid in indexes else uuid


Look = tuple[list[NodeUsage], Mapping[str, float]]


def _look(target: Target, wanted: str | None) -> Look:
    answer = target.read("/v1/usage")
    try:
        nodes = [wire.decode(show.compact({"v": wire.VERSION, **one})) for one in answer["nodes"]]
    except (ValueError, KeyError) as error:
        raise NoState(f"the extender's answer cannot be read: {error}") from None
    found = [one for one in nodes if wanted in (None, one.node)]
    if wanted is not None and not found:
        have = ", ".join(one.node for one in nodes) or "none"
        raise NoState(f"node {wanted!r} tells no usage; these do: {have}")
    ages = {name: age for name, age in answer.get("age_seconds", {}).items()
            if wanted in (None, name)}  # fmt: skip
    return found, ages


def _print(look: Look, sort: str) -> None:
    nodes, ages = look
    if not nodes:
        click.echo("no node measures anything: are the device plugins running?")
        return
    show.table(COLUMNS, rows(nodes, time.time(), sort), {"NOTE": ("",)})
    click.echo(summary(nodes, ages))


def _live(target: Target, node: str | None, sort: str, interval: float) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live(auto_refresh=False, screen=True) as live:
        try:
            for nodes, ages in _looks(target, node, interval):
                table = show.rich_table(COLUMNS, rows(nodes, time.time(), sort), {"NOTE": ("",)})
                live.update(Group(table, summary(nodes, ages)), refresh=True)
        except KeyboardInterrupt:
            pass


def _looks(target: Target, node: str | None, interval: float) -> Iterator[Look]:
    """Look again and again; a token is renewed before it expires."""
    got = time.monotonic()
    while True:
        if time.monotonic() - got > _TOKEN_LIVES:
            target.connection.forget_token()
            got = time.monotonic()
        yield _look(target, node)
        time.sleep(interval)
