"""``gpushare cordon`` and ``uncordon``: a card takes nothing new, and takes it again."""

from __future__ import annotations

import click

from gpushare.cli import cards
from gpushare.cli.cluster import Target
from gpushare.cli.options import cluster_options, prefix_option


@click.command()
@click.argument("card")
@prefix_option
@cluster_options
def cordon(card: str, prefix: str | None, target: Target) -> None:
    """Let nothing new onto CARD. What runs on it goes on; `gpushare drain` ends that too.

    CARD is NODE/INDEX or a UUID, as `gpushare inspect -o wide` shows them.

    \b
    gpushare cordon t4-1/0
    gpushare cordon GPU-8d2b6c1e-0000-0000-0000-000000000000
    """
    connection = target.connection
    chosen = cards.choose(connection.read("/v1/nodes"), card)
    changed = cards.cordon(connection, cards.names(connection, prefix), chosen)
    click.echo(f"card {chosen} {'takes' if changed else 'already took'} nothing new")


@click.command()
@click.argument("card")
@prefix_option
@cluster_options
def uncordon(card: str, prefix: str | None, target: Target) -> None:
    """Let pods onto CARD again.

    \b
    gpushare uncordon t4-1/0
    """
    connection = target.connection
    chosen = cards.choose(connection.read("/v1/nodes"), card)
    changed = cards.uncordon(connection, cards.names(connection, prefix), chosen)
    click.echo(f"card {chosen} takes pods again" if changed else f"card {chosen} had no cordon")
