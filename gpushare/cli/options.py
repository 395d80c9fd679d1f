"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from gpushare.cli.cluster import Target

Command = Callable[..., Any]


def cluster_options(command: Command) -> Command:
    """Which cluster, and where gpushare is in it; the command gets a ``target``."""

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
    @functools.wraps(command)
    def with_target(
        *arguments: Any,
        namespace: str,
        kubeconfig: str | None,
        kube_context: str | None,
        **named: Any,
    ) -> Any:
        return command(*arguments, target=Target(namespace, kubeconfig, kube_context), **named)

    return with_target


def output_option(*choices: str, text: str = "") -> Callable[[Command], Command]:
    """-o, the first choice being the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help=text or "json and yaml are the API's own answer.",
    )


prefix_option = click.option(
    "--prefix",
    envvar="GPUSHARE_PREFIX",
    show_envvar=True,
    help="First part of our annotations' names, where the extender's settings may not be read.",
)
