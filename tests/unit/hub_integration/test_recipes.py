"""The snippets of the pages for Hub admins do what they say: each is run, none is only read."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from traitlets.config import Config

from hub_integration.settings import GPUShareSettings
from hub_integration.spawner import GPUShareSpawner
from profiles.choice import ChoiceError, Person, select, visible
from profiles.reader import loads
from tests.unit.docs.pages import DOCS, name, snippets

PAGES = [DOCS / "hub-admins.md", *sorted((DOCS / "recipes").glob("*.md"))]


def configured(text: str, monkeypatch: pytest.MonkeyPatch, values: Any = None) -> Config:
    """The configuration after a snippet, as JupyterHub or the chart runs it."""
    chart = ModuleType("z2jh")
    chart.get_config = lambda key, default=None: (values or {}).get(key, default)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "z2jh", chart)
    c = Config()
    exec(compile(text, "jupyterhub_config.py", "exec"), {"c": c, "get_config": lambda: c})
    return c


def check(c: Config) -> None:
    """Each setting exists, and takes its value."""
    for setting, value in c.GPUShareSpawner.items():
        assert setting in GPUShareSettings.class_trait_names(config=True), setting
        GPUShareSettings(config=Config({"GPUShareSettings": {setting: value}}))
    for setting in c.KubeSpawner:
        assert setting in GPUShareSpawner.class_trait_names(config=True), setting


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_configuration(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for line, text in snippets(page, "python"):
        c = configured(text, monkeypatch)
        assert any(c[section] for section in c), f"{name(page)}:{line} sets nothing"
        check(c)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_yaml(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalogues are read as the Hub reads them, values of the chart as the chart runs them."""
    for line, text in snippets(page, "yaml"):
        data = yaml.safe_load(text)
        if "version" in data:
            assert loads(text, file=f"{name(page)}:{line}").profiles
            continue
        values = {"custom.gpushare": data["custom"]["gpushare"]}
        for snippet in data["hub"]["extraConfig"].values():
            c = configured(snippet, monkeypatch, values)
            assert c.JupyterHub.spawner_class == "gpushare"
            for setting, value in values["custom.gpushare"].items():
                assert c.GPUShareSpawner[setting] == value
            check(c)


def catalogue(page: str) -> Any:
    (text,) = (text for _, text in snippets(DOCS / "recipes" / page, "yaml"))
    return loads(text)


def test_the_course_is_seen_by_its_group_alone() -> None:
    course = catalogue("course.md")
    seen = {
        who: [p.name for p in visible(course, Person(who, frozenset(groups)))]
        for who, groups in {"ann": ["course-ml"], "prof": ["teachers"], "eve": []}.items()
    }
    assert seen == {"ann": ["lesson", "cpu"], "prof": ["lesson", "cpu"], "eve": ["cpu"]}
    with pytest.raises(ChoiceError, match="no kind of server 'lesson'"):
        select(course, {"profile": "lesson"}, Person("eve"))
    with pytest.raises(ChoiceError, match="no slice '7g'"):
        select(
            course, {"profile": "lesson", "slice": "7g"}, Person("ann", frozenset({"course-ml"}))
        )


def test_sizes_of_ones_own_are_bounded() -> None:
    sizes = catalogue("custom-sizes.md")
    options = {"profile": "a10", "slice--unlisted-choice": "8GiB"}
    person = Person("x", frozenset({"research"}))
    chosen = select(sizes, options, person).slice
    assert chosen is not None
    assert chosen.memory == 8192
    for bad in ("9GiB", "22GiB", "1GiB"):
        with pytest.raises(ChoiceError, match="from 2 GiB to 20 GiB in steps of 2 GiB"):
            select(sizes, {**options, "slice--unlisted-choice": bad}, person)


def test_whole_cards_go_back_sooner() -> None:
    idle = catalogue("idle-times.md")
    times = [
        select(idle, options, Person("x")).settings.idle_minutes
        for options in ({"profile": "t4"}, {"profile": "t4", "slice": "whole"}, {"profile": "cpu"})
    ]
    assert times == [60, 20, 0]


def test_the_lab_brings_its_image_and_its_data() -> None:
    images = catalogue("images.md")
    chosen = select(images, {"profile": "t4", "image": "own"}, Person("x", frozenset({"lab"})))
    assert chosen.settings.image == "registry.example.org/lab:2026"
    assert chosen.settings.kubespawner_override["volume_mounts"][0]["mountPath"] == "/data"
