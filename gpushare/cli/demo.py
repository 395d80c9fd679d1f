"""``gpushare demo``: eight notebooks on six simulated cards, from nothing."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option("--name", metavar="NAME", help="Which playground; as in `gpushare playground`.")
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Use this cluster of yours instead, with gpushare installed in it. "
    "[env: GPUSHARE_PLAYGROUND_KUBECONFIG]",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="With --kubeconfig: an image with Python and nvidia-ml-py, so that each pod can say which "
    "cards it sees. Default: a pause image, and only the placements are checked.",
)
def demo(name: str | None, kubeconfig: str | None, image: str | None) -> None:
    """Start a cluster on this machine, and eight notebooks that share six simulated cards.

    Builds whatever is missing (about 15 minutes on two cores, once), starts Kubernetes, gpushare
    and JupyterHub, runs a cell in each notebook, and checks that it sees the card it was given.
    JupyterHub goes on running; `gpushare playground down` takes everything down.

    Where no containers can run, the scheduling half is shown on simulated nodes.

    With --kubeconfig nothing is made on this machine: up to eight pods, with the limits that
    notebooks would have, are placed on the cards of that cluster and checked, in a namespace
    gpushare-demo that is deleted at the end.

    \b
    gpushare demo
    gpushare demo --kubeconfig ~/.kube/config --image registry.example.org/notebook:1
    """
    from playground.demo import run, run_on
    from playground.existing import chosen_kubeconfig

    existing = chosen_kubeconfig(kubeconfig)
    if existing:
        sys.exit(run_on(existing, image, click.echo))
    if image:
        raise click.UsageError("--image goes with --kubeconfig: this demo makes its own")

    sys.exit(run(name, click.echo))
