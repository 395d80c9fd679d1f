"""`gpushare playground`: a real Kubernetes on this machine, with simulated cards."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from playground.cluster import Cluster
    from playground.status import Status

_EXISTING = (
    "Use the cluster of this kubeconfig; nothing is made. [env: GPUSHARE_PLAYGROUND_KUBECONFIG]"
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--name",
    metavar="NAME",
    help="Which playground; several can run side by side. "
    "[env: GPUSHARE_PLAYGROUND_NAME; default: default]",
)
@click.pass_context
def playground(context: click.Context, name: str | None) -> None:
    """A real Kubernetes on this machine, with simulated GPU cards.

    Two nodes: t4-1 with two Tesla T4, a10-1 with four NVIDIA A10. Containers on them are real, the
    cards are not. The first `up` builds Kubernetes (about six minutes on two cores); after that it
    takes ten seconds. `down` leaves nothing behind but the built programs in the user's cache.

    \b
    gpushare playground up
    gpushare playground kubectl get nodes
    export KUBECONFIG=$(gpushare playground kubeconfig)
    gpushare playground down
    """
    context.obj = name


@playground.command()
@click.option("--kubeconfig", metavar="FILE", help=_EXISTING)
@click.option(
    "--simulated-nodes",
    is_flag=True,
    help="No containers: the control plane is real, the nodes are simulated (kwok). Needs no root.",
)
@click.pass_obj
def up(name: str | None, kubeconfig: str | None, simulated_nodes: bool) -> None:
    """Start it, or whatever of it does not run.

    \b
    gpushare playground up
    gpushare playground up --simulated-nodes
    gpushare playground --name second up
    GPUSHARE_PLAYGROUND_BIN=~/bin gpushare playground up     # programs that you already have
    """
    with _errors_as_text():
        from playground.capability import can_run_containers
        from playground.existing import chosen_kubeconfig, server_version

        existing = chosen_kubeconfig(kubeconfig)
        if existing:
            click.echo(f"using the cluster of {existing} (Kubernetes {server_version(existing)})")
            return
        cluster = _cluster(name)
        if not simulated_nodes and (reason := can_run_containers()):
            raise click.ClickException(
                f"{reason} `gpushare playground up --simulated-nodes` works without."
            )
        cluster.up(simulated=simulated_nodes)
        click.echo(f"kubeconfig: {cluster.kubeconfig()}")


@playground.command()
@click.pass_obj
def down(name: str | None) -> None:
    """Stop it and remove all of it: processes, mounts, interfaces, files."""
    with _errors_as_text():
        existed = _cluster(name).down()
    click.echo("the playground is gone" if existed else "there was no playground")


@playground.command()
@click.option(
    "-o", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.pass_obj
def status(name: str | None, output: str) -> None:
    """Show what runs, and the end of the log of what does not.

    The exit status is 0 if all of it is well, 1 if not, 3 if there is no playground.
    """
    with _errors_as_text():
        found = _cluster(name).status()
    if output == "json":
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        _show(found)
    sys.exit(0 if found.healthy else 1 if found.up else 3)


@playground.command()
@click.pass_obj
def kubeconfig(name: str | None) -> None:
    """Print where the administrator's kubeconfig is.

    \b
    export KUBECONFIG=$(gpushare playground kubeconfig)
    """
    with _errors_as_text():
        from playground.existing import chosen_kubeconfig

        click.echo(chosen_kubeconfig() or _cluster(name).kubeconfig())


@playground.command()
@click.argument("component")
@click.pass_obj
def restart(name: str | None, component: str) -> None:
    """Restart COMPONENT and wait until it is ready.

    \b
    gpushare playground restart kubelet@t4-1
    """
    with _errors_as_text():
        _cluster(name).restart(component)


@playground.command()
@click.argument("component")
@click.pass_obj
def kill(name: str | None, component: str) -> None:
    """End COMPONENT as a crash would, to see what happens then. `up` starts it again.

    \b
    gpushare playground kill kube-scheduler
    """
    with _errors_as_text():
        _cluster(name).kill(component)


@playground.command("load-image")
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_obj
def load_image(name: str | None, archive: Path) -> None:
    """Bring an image ARCHIVE (docker-archive or OCI tar) to every node.

    \b
    buildah push my-image docker-archive:my-image.tar:localhost/my-image:dev
    gpushare playground load-image my-image.tar
    """
    with _errors_as_text():
        nodes = _cluster(name).import_image(archive)
    click.echo(f"loaded on {', '.join(nodes)}" if nodes else "every node has it already")


@playground.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def kubectl(name: str | None, arguments: tuple[str, ...]) -> None:
    """Run kubectl against it, with all that follows.

    \b
    gpushare playground kubectl get pods -A
    """
    with _errors_as_text():
        from playground import binaries
        from playground.existing import chosen_kubeconfig

        config = chosen_kubeconfig() or _cluster(name).kubeconfig()
        program = str(binaries.path("kubectl", _say_aside))
        # Its cache goes with the playground: another one will have the same address.
        cache = {"KUBECACHEDIR": str(config.parent / "cache")}
        environment = {**os.environ, **cache, "KUBECONFIG": str(config)}
        os.execve(program, ["kubectl", *arguments], environment)  # noqa: S606


@playground.command("binaries")
@click.option("--kwok", is_flag=True, help="Build kwok as well, which only simulated nodes need.")
def binaries_(kwok: bool) -> None:
    """Build what is not built yet, and list all programs.

    Programs in the folder named by GPUSHARE_PLAYGROUND_BIN are taken instead of built ones.
    """
    with _errors_as_text():
        from playground import binaries

        wanted = (*binaries.CLUSTER, "kwok") if kwok else binaries.CLUSTER
        for program, path in binaries.ensure(wanted, _say_aside).items():
            click.echo(f"{program:24} {path}")


def _cluster(name: str | None) -> Cluster:
    from playground.cluster import Cluster

    return Cluster(name)


def _say_aside(text: str) -> None:
    click.echo(text, err=True)


def _show(status: Status) -> None:
    if not status.up:
        click.echo(f"playground {status.name!r} is not up")
        return
    kind = "simulated nodes" if status.simulated else "real nodes"
    click.echo(f"playground {status.name!r} ({kind})  {status.server}")
    for component in status.components:
        since = f"{component.seconds:.0f} s" if component.seconds is not None else ""
        click.echo(
            f"  {component.name:26} {component.state:10} {component.pid or '':>8} {since:>9}"
        )
        if component.problem:
            click.echo(f"    {component.problem}")
            for line in component.log:
                click.echo(f"    | {line}")
            click.echo(f"    the whole log: {component.log_file}")
    for node in status.nodes:
        click.echo(
            f"  node {node.name:21} {'ready' if node.ready else f'not ready: {node.problem}'}"
        )


@contextmanager
def _errors_as_text() -> Iterator[None]:
    """Errors that say what to do are shown as they are; all others are ours, with a traceback."""
    try:
        from playground.errors import EXPECTED
    except ImportError as error:
        raise click.ClickException(
            f"the playground's parts are missing ({error.name}): "
            "pip install 'jupyterhub-gpushare[playground]'"
        ) from None
    try:
        yield
    except EXPECTED as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    playground(prog_name="gpushare playground")
