from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from traitlets import TraitError

from device_plugin.app import DevicePlugin
from device_plugin.logs import JsonLines


def configured(*argv: str) -> DevicePlugin:
    app = DevicePlugin()
    app.initialize(list(argv))
    return app


def test_the_nodes_name_comes_from_the_daemonset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "t4-1")
    assert configured().node_name == "t4-1"
    assert configured("--node=other").node_name == "other"


def test_a_json_file_configures_it_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    settings = {"unit": "256MiB", "exclude_cards": ["0"], "driver_root": "/run/nvidia/driver"}
    file.write_text(json.dumps({"DevicePlugin": settings}))
    app = configured(f"--config={file}", "--unit=MiB")
    assert (app.unit, app.exclude_cards, app.driver_root) == ("MiB", ["0"], "/run/nvidia/driver")


def test_a_python_file_as_jupyter_has_them(tmp_path: Path) -> None:
    file = tmp_path / "gpushare_config.py"
    file.write_text("c = get_config()\nc.DevicePlugin.recover_after = 2 + 1\n")
    assert configured(f"--config={file}").recover_after == 3


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SystemExit, match=r"config_file.*nowhere\.json"):
        configured("--config=nowhere.json")


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("unit", "GB", "DevicePlugin.unit: unit 'GB' is not known: use 'GiB'"),
        ("prefix", "No Good", "DevicePlugin.prefix: prefix 'No Good' is not a DNS subdomain"),
        ("card_edits", "magic", "card_edits"),
        ("recover_after", -1, "recover_after"),
    ],
)
def test_wrong_settings_are_named_with_the_fix(setting: str, value: object, says: str) -> None:
    with pytest.raises(TraitError, match=says):
        DevicePlugin(**{setting: value})


def test_every_setting_is_explained() -> None:
    run = [sys.executable, "-m", "device_plugin.app", "--help-all"]
    text = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    for name in DevicePlugin.class_own_traits(config=True):
        assert f"--DevicePlugin.{name}=" in text
        assert len(DevicePlugin.class_own_traits()[name].help) > 30, name


def test_without_credentials_it_says_which_setting_mends_it(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "device_plugin.app", f"--kubeconfig={tmp_path / 'none'}"]
    result = subprocess.run(run, capture_output=True, text=True)
    assert result.returncode == 1
    assert "DevicePlugin.kubeconfig" in result.stderr
    assert "Traceback" not in result.stderr


def test_json_lines() -> None:
    record = logging.LogRecord("device_plugin.x", logging.INFO, "", 1, "a %s\nb", ("c",), None)
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["message"]) == ("info", "a c\nb")
