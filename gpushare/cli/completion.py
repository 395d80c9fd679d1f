"""``gpushare completion``: what a shell needs to complete our commands; and kubectl's way to ask."""

from __future__ import annotations

import sys

import click
from click.shell_completion import ShellComplete, get_completion_class

_VARIABLE = "_GPUSHARE_COMPLETE"
# cobra's directive for "do not complete file names instead".
_NO_FILES = 4


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    source <(gpushare completion bash)                  # also in ~/.bashrc
    gpushare completion zsh > "${fpath[1]}/_gpushare"
    gpushare completion fish > ~/.config/fish/completions/gpushare.fish

    `kubectl gpushare` completes by itself where kubectl's own completion is on.
    """
    from gpushare.cli.main import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "gpushare", _VARIABLE).source())


def kubectl_complete() -> None:
    """``kubectl_complete-gpushare WORDS… LAST``: candidates for LAST, as kubectl wants them."""
    from gpushare.cli.main import main

    *words, last = sys.argv[1:] or [""]
    asked = ShellComplete(main, {}, "gpushare", _VARIABLE)
    for item in asked.get_completions(words, last):
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_NO_FILES}")
