"""``gpushare inspect``: the table of cards and slices."""

from __future__ import annotations

from typing import Any

import click

from gpushare.cli import aliyun_layout, classic, show, table
from gpushare.cli.cluster import NoState, Target
from gpushare.cli.options import cluster_options, output_option


@click.command()
@click.argument("node", required=False)
@output_option(
    "table",
    "wide",
    "classic",
    "json",
    "yaml",
    text="wide adds namespaces and card UUIDs; classic has one line a node, as "
    "'kubectl inspect gpushare'; json and yaml are the state API's own answer.",
)
@click.option(
    "--layout",
    type=click.Choice(["aliyun"]),
    help="Print what another system's tool prints, to the byte, for scripts that read it.",
)
@click.option("-d", "--details", is_flag=True, help="A block for each node, with one line a pod.")
@cluster_options
def inspect(
    node: str | None, output: str, layout: str | None, details: bool, target: Target
) -> None:
    """Cards, the slices on them, and who holds them; all nodes, or NODE.

    SLICES names the JupyterHub user, or the pod, and GiB held. USED is what the processes on the
    card really use, '-' where nothing measures it.

    \b
    gpushare inspect
    gpushare inspect t4-1 -o wide
    gpushare inspect -d                      # as kubectl inspect gpushare -d
    gpushare inspect -o json | jq .totals
    """
    state = target.read("/v1/nodes")
    nodes = _nodes(state, node)
    if layout:
        write = aliyun_layout.details if details else aliyun_layout.overview
        click.echo(write(nodes, state["unit_mib"]), nl=False)
    elif output in show.DATA:
        show.data({**state, "nodes": nodes}, output)
    elif not nodes:
        click.echo("no node publishes shared cards: is the device plugin running on the GPU nodes?")
    elif details:
        click.echo("\n".join(classic.details(nodes, state["unit_mib"])))
    elif output == "classic":
        click.echo("\n".join(classic.overview(nodes, state["unit_mib"])))
    else:
        wide = output == "wide"
        header = table.WIDE if wide else table.COLUMNS
        show.table(header, table.rows(nodes, wide=wide), {"HEALTH": ("ok",)})
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
