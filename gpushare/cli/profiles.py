"""``gpushare profiles``: the catalogue of what notebook users may choose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpushare.units import Unit
    from profiles.catalogue import Catalogue


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def profiles() -> None:
    """The catalogue of what notebook users may choose.

    \b
    gpushare profiles show > catalogue.yaml
    gpushare profiles check catalogue.yaml
    gpushare profiles render catalogue.yaml > profile-list.yaml
    """


@profiles.command()
def show() -> None:
    """Print the catalogue that comes with gpushare, to begin one's own with."""
    from profiles.reader import SHIPPED

    click.echo(SHIPPED.read_text("utf-8"), nl=False)


_FILE = click.argument("file", type=click.Path(path_type=Path))
_UNIT = click.option(
    "--unit",
    default="GiB",
    show_default=True,
    help="What one gpu-mem is in the cluster: GiB, MiB or a step such as 256MiB.",
)


@profiles.command()
@_FILE
@_UNIT
def check(file: Path, unit: str) -> None:
    """Say what is wrong with a catalogue, with line and field; or list its choices."""
    from profiles.choice import choices
    from profiles.pod import pod_parts

    catalogue, step = _load(file, unit)
    for profile in catalogue.profiles:
        for choice in choices(catalogue, profile):
            parts = pod_parts(choice, unit=step)
            limits = ", ".join(f"{name}: {amount}" for name, amount in parts.limits.items())
            click.echo(f"{choice.key:20} {choice.title:32} {limits or 'no card'}")


@profiles.command()
@_FILE
@_UNIT
def render(file: Path, unit: str) -> None:
    """Print a catalogue as KubeSpawner's profile_list, in YAML.

    For hubs that use KubeSpawner without gpushare's spawner, and for zero-to-jupyterhub's image
    puller, which reads singleuser.profileList.
    """
    import yaml

    from profiles.profile_list import profile_list

    catalogue, step = _load(file, unit)
    rendered = profile_list(catalogue, unit=step)
    click.echo(yaml.safe_dump(rendered, sort_keys=False, allow_unicode=True), nl=False)


def _load(file: Path, unit: str) -> tuple[Catalogue, Unit]:
    from gpushare.units import Unit
    from profiles.reader import load

    try:
        step = Unit.parse(unit)
        return load(file, unit=step), step
    except ValueError as error:
        raise click.ClickException(str(error)) from None
