"""Completion scripts, kubectl's way to complete a plugin, and the plugin's own name."""

from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner

from gpushare.cli.completion import kubectl_complete
from gpushare.cli.main import main, plugin


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_calls_us(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0, result.output
    assert "_GPUSHARE_COMPLETE" in result.output


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["ins"], "inspect\t"),
        (["inspect", "--out"], "--output\t"),
        (["top", "--sort", "u"], "used"),
    ],
)
def test_kubectl_asks_us_for_candidates(
    words: list[str], wanted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-gpushare", *words])
    kubectl_complete()
    *candidates, directive = capsys.readouterr().out.splitlines()
    assert any(line.startswith(wanted) for line in candidates)
    assert directive == ":4"


def test_plugin_calls_itself_by_kubectl_s_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-gpushare", "--help"])
    with pytest.raises(SystemExit) as ended:
        plugin()
    assert ended.value.code == 0
    assert "Usage: kubectl gpushare" in capsys.readouterr().out


def _names() -> list[str]:
    assert isinstance(main, click.Group)
    return main.list_commands(click.Context(main))


@pytest.mark.parametrize("command", [name for name in _names() if name != "demo"])
def test_help_of_each_command_has_an_example(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0, result.output
    assert f"gpushare {command}" in result.output.split("Options:")[0].split("\n", 1)[1]
