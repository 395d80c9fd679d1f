"""The application's settings: files, command line, and refusals that name the setting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from traitlets import TraitError

from extender.app import Extender
from gpushare.request import Policy
from gpushare.units import Unit
from tests.unit.extender.command import run


def test_a_json_file_and_the_command_line_over_it(tmp_path: Path):
    file = tmp_path / "config.json"
    settings = {"prefix": "gpu.example.org", "unit": "256MiB", "policy": "spread"}
    file.write_text(json.dumps({"Extender": settings}))
    app = Extender()
    app.initialize([f"--config={file}", "--policy=binpack"])
    assert app.rules.names.gpu_mem == "gpu.example.org/gpu-mem"
    assert app.rules.unit == Unit(256)
    assert app.rules.policy is Policy.BINPACK


@pytest.mark.parametrize(
    ("setting", "value"), [("prefix", "Not A Name"), ("unit", "furlong"), ("max_hold", -1)]
)
def test_a_wrong_setting_is_named(setting: str, value: object):
    with pytest.raises(TraitError, match=rf"Extender\.{setting}"):
        Extender(**{setting: value})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kubeconfig=/nowhere", "--state=127.0.0.1:0"), "Set Extender.kubeconfig"),
        ((), "the pod's service account"),
        (("--verbs=nonsense",), "Extender.verbs_address='nonsense' is not host:port"),
        (("--policy=best",), "policy"),
        (("--config=/nowhere.json",), "nowhere"),
    ],
)
def test_it_says_in_one_line_why_it_does_not_start(arguments: tuple[str, ...], words: str):
    done = run(*arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_address_beyond_loopback_needs_a_certificate(tmp_path: Path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    done = run(f"--kubeconfig={kubeconfig}", "--verbs=127.0.0.1:0", "--state=0.0.0.0:0")
    assert done.returncode == 1
    assert "Extender.tls_cert and Extender.tls_key are needed" in done.stderr


def test_help_is_a_manual():
    text = subprocess.run(
        [sys.executable, "-m", "extender.app", "--help-all"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    for setting in ("prefix", "unit", "policy", "verbs_address", "state_address", "tls_cert"):
        assert f"--Extender.{setting}" in text
    assert "Whoever reaches it can bind pods" in text
