"""The one line for a jupyterhub_config.py."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest
from traitlets.config import Config

from hub_integration.config import configure
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
