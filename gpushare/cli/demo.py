"""``gpushare demo``: eight notebooks on six simulated cards, from nothing."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option("--name", metavar="NAME", help="Which playground; as in `gpushare playground`.")
def demo(name: str | None) -> None:
    """Start a cluster on this machine, and eight notebooks that share six simulated cards.

    Builds whatever is missing (about 15 minutes on two cores, once), starts Kubernetes, gpushare
    and JupyterHub, runs a cell in each notebook, and checks that it sees the card it was given.
    JupyterHub goes on running; `gpushare playground down` takes everything down.

    Where no containers can run, the scheduling half is shown on simulated nodes.
    """
    from playground.demo import run

    sys.exit(run(name, click.echo))
