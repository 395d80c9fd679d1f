"""The one line for a jupyterhub_config.py."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest
from traitlets import TraitError
from traitlets.config import Config

from hub_integration.config import PAGES, configure, configure_z2jh
from hub_integration.settings import GPUShareSettings
from hub_integration.spawner import GPUShareSpawner
from profiles.reader import SHIPPED, CatalogueError


def test_it_sets_the_spawner_and_its_settings() -> None:
    c = Config()
    configure(c, catalogue_file=str(SHIPPED), gpu_start_timeout=30)
    assert c.JupyterHub.spawner_class == "gpushare"
    assert c.GPUShareSpawner.gpu_start_timeout == 30


def test_the_name_is_an_entry_point() -> None:
    (found,) = entry_points(group="jupyterhub.spawners", name="gpushare")
    assert found.load() is GPUShareSpawner


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(
        ValueError, match="no setting 'catalog_file': did you mean 'catalogue_file'"
    ):
        configure(Config(), catalog_file="x")
    with pytest.raises(ValueError, match="there are availability_timeout, "):
        configure(Config(), zzz=1)


def test_a_bad_catalogue_stops_the_hub(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nprofiles: []\n")
    with pytest.raises(CatalogueError, match=r"bad\.yaml:2: profiles: is empty"):
        configure(Config(), catalogue_file=str(file))


def test_every_setting_has_help() -> None:
    for name, trait in GPUShareSpawner.class_own_traits(config=True).items():
        assert trait.help, name


def test_pages_come_after_the_admins_own() -> None:
    c = Config()
    c.JupyterHub.template_paths = ["/their/pages"]
    configure(c)
    assert c.GPUShareSpawner.live_pages is True
    assert c.JupyterHub.template_paths == ["/their/pages", str(PAGES)]
    assert (PAGES / "spawn_pending.html").exists()
    bare = Config()
    configure(bare, pages=False)
    assert "template_paths" not in bare.JupyterHub
    assert "live_pages" not in bare.GPUShareSpawner


def test_what_was_appended_stays() -> None:
    c = Config()
    c.JupyterHub.services.append({"name": "theirs"})
    configure(c, culler_url="http://127.0.0.1:10102/services/gpushare-culler/")
    names = [service["name"] for service in c.JupyterHub.services.get_value([])]
    assert names == ["gpushare-hub", "theirs"]
    (role,) = c.JupyterHub.load_roles
    assert role["services"] == ["gpushare-hub"]
    assert len(c.GPUShareSpawner.culler_token) == 64


def test_the_charts_values(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"custom.gpushare": {"gpu_start_timeout": 30, "when_full": "refuse"}}
    chart = ModuleType("z2jh")
    chart.get_config = lambda key, default=None: values.get(key, default)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "z2jh", chart)
    c = Config()
    configure_z2jh(c, when_full="wait")
    assert c.GPUShareSpawner.gpu_start_timeout == 30
    assert c.GPUShareSpawner.when_full == "wait"
    monkeypatch.delitem(sys.modules, "z2jh")
    with pytest.raises(RuntimeError, match=r"use hub_integration\.config\.configure"):
        configure_z2jh(Config())


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("quotas", {"everybody": {"slice": 1}}, "everybody.slice"),
        ("quotas", {"everybody": {"memory": 5}}, "everybody.memory"),
        ("quotas", {"everybody": {1, 2}}, "plain values"),
        ("quota_timezone", "Mars/Base", "no time zone here"),
    ],
)
def test_bad_settings_name_the_field(setting: str, value: object, says: str) -> None:
    with pytest.raises(TraitError, match=says):
        GPUShareSettings(**{setting: value})
