"""The ``gpushare`` command; as ``kubectl-gpushare`` on the path it is ``kubectl gpushare`` too."""

from __future__ import annotations

import importlib
import importlib.util

import click

import gpushare

# Loaded when they are asked for: what inspects a cluster should not wait for what builds one.
_COMMANDS = {
    "inspect": ("gpushare.cli.inspect", "Cards, the slices on them, and who holds them."),
    "top": ("gpushare.cli.top", "What slices really use, live."),
    "slice": ("gpushare.cli.slice", "This container's own slice, as its node sees it."),
    "why": ("gpushare.cli.why", "Why a pod waits, and what would help."),
    "plan": ("gpushare.cli.plan", "What would make room for those who wait. Nothing is done."),
    "cordon": ("gpushare.cli.cordon", "Let nothing new onto a card."),
    "uncordon": ("gpushare.cli.cordon", "Let pods onto a card again."),
    "drain": ("gpushare.cli.drain", "Empty a card: cordon it and evict the pods on it."),
    "usage": ("gpushare.cli.usage", "Who held how much of the cards for how long."),
    "quota": ("gpushare.cli.quota", "Allowances, and what is left of them."),
    "doctor": (
        "gpushare.cli.doctor",
        "Find what is wrong with an installation, and how to mend it.",
    ),
    "profiles": ("gpushare.cli.profiles", "The catalogue of what notebook users may choose."),
    "completion": ("gpushare.cli.completion", "Complete commands in bash, zsh or fish."),
    "playground": (
        "gpushare.cli.playground",
        "A real Kubernetes on this machine to try things on.",
    ),
    "demo": ("gpushare.cli.demo", "Eight notebooks on six simulated cards, from nothing."),
}


class _Commands(click.Group):
    """A group whose commands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (module, _) in _COMMANDS.items() if importlib.util.find_spec(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        try:
            module = importlib.import_module(_COMMANDS[cmd_name][0])
        except ImportError as error:
            raise click.ClickException(
                f"'gpushare {cmd_name}' needs {error.name}, which is not installed: "
                "pip install 'jupyterhub-gpushare[playground]'"
            ) from error
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gpushare.__version__, prog_name="gpushare")
def main() -> None:
    """Shared GPU cards on Kubernetes: see them, run them, and try them.

    \b
    gpushare inspect                     which cards, who is on them
    gpushare why pod/jupyter-erin        why a pod waits
    gpushare doctor                      what is wrong, and how to mend it
    gpushare demo                        all of it on this machine, with simulated cards
    """


def plugin() -> None:
    """The same as `kubectl gpushare`, with that name in its help."""
    main(prog_name="kubectl gpushare")


if __name__ == "__main__":
    main(prog_name="gpushare")
