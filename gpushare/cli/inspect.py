"""``gpushare inspect``: the table of cards and slices."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from gpushare.cli import table
from gpushare.cli.cluster import NoState, Target


@click.command()
@click.argument("node", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json"]),
    default="table",
    show_default=True,
    help="wide adds namespaces and card UUIDs; json is the state API's own answer.",
)
@click.option(
    "-n",
    "--namespace",
    envvar="GPUSHARE_NAMESPACE",
    default="gpushare",
    show_default=True,
    show_envvar=True,
    help="Where gpushare is installed.",
)
@click.option("--kubeconfig", help="Instead of KUBECONFIG and ~/.kube/config.")
@click.option("--context", "kube_context", help="Context of the kubeconfig.")
def inspect(
    node: str | None,
    output: str,
    namespace: str,
    kubeconfig: str | None,
    kube_context: str | None,
) -> None:
    """Cards, the slices on them, and who holds them; all nodes, or NODE.

    SLICES names the JupyterHub user, or the pod, and GiB held. USED is what the processes on the
    card really use, '-' where nothing measures it.
    """
    state = Target(namespace, kubeconfig, kube_context).read("/v1/nodes")
    nodes = _nodes(state, node)
    if output == "json":
        click.echo(json.dumps({**state, "nodes": nodes}, indent=2))
        return
    wide = output == "wide"
    header = table.WIDE if wide else table.COLUMNS
    _print(header, table.rows(nodes, wide=wide))
    click.echo(table.summary(state, nodes))


def _nodes(state: Any, wanted: str | None) -> list[Any]:
    nodes: list[Any] = state["nodes"]
    if wanted is None:
        return nodes
    found = [node for node in nodes if node["name"] == wanted]
    if not found:
        have = ", ".join(node["name"] for node in nodes) or "none"
        raise NoState(f"no node {wanted!r} with shared cards; there are: {have}")
    return found


def _print(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    if not rows:
        click.echo("no node publishes shared cards: is the device plugin running on the GPU nodes?")
    elif _is_terminal():
        _print_rich(header, rows)
    else:
        click.echo("\n".join(table.plain(header, rows)))


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _print_rich(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    health = header.index("HEALTH")
    for name in header:
        shown.add_column(name, overflow="fold", no_wrap=name in ("NODE", "CARD", "ALLOCATED"))
    for row in rows:
        cells = [Text(cell) for cell in row]
        cells[health].stylize("green" if row[health] == "ok" else "bold red")
        shown.add_row(*cells)
    Console().print(shown)
