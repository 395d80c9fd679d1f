"""``gpushare profiles``."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner

from gpushare.cli.profiles import profiles
from profiles.reader import SHIPPED


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(profiles, arguments)
    return result.exit_code, result.output


def test_what_show_prints_passes_check(tmp_path: Path) -> None:
    status, text = run("show")
    assert status == 0
    (tmp_path / "mine.yaml").write_text(text)
    status, listed = run("check", str(tmp_path / "mine.yaml"))
    assert status == 0
    assert listed.splitlines()[1].split() == [
        "t4/7g",
        "7",
        "GiB",
        "on",
        "NVIDIA",
        "T4",
        "gpushare/gpu-mem:",
        "7",
    ]
    assert listed.splitlines()[-1].split() == ["cpu", "No", "GPU", "no", "card"]


def test_check_fails_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nprofiles:\n  - {name: a, title: a, colour: red}\n")
    status, text = run("check", str(file))
    assert status == 1
    assert text.startswith(f"Error: {file}:3: profiles[0].colour: is not known; known here: ")


def test_check_knows_the_clusters_unit(tmp_path: Path) -> None:
    assert run("check", str(SHIPPED), "--unit", "256MiB")[0] == 0
    status, text = run("check", str(SHIPPED), "--unit", "2GiB")
    assert status == 1
    assert "3072 MiB is no whole number of this cluster's unit, 2GiB" in text


def test_render_is_a_profile_list() -> None:
    status, text = run("render", str(SHIPPED))
    assert status == 0
    entries = yaml.safe_load(text)
    assert [entry["slug"] for entry in entries] == ["t4", "a10", "cpu"]
    choices = entries[0]["profile_options"]["slice"]["choices"]
    assert choices["7g"]["kubespawner_override"]["extra_resource_limits"] == {
        "gpushare/gpu-mem": "7"
    }
