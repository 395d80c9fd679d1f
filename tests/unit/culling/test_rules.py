"""Times from the catalogue, the groups, the pod's annotation and the defaults."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path

from gpushare.names import Names
from gpushare.units import GIB
from hub_integration.catalogue_file import CatalogueFile
from hub_integration.culling.policy_book import PolicyBook
from hub_integration.culling.rules import annotated_times, choice_of_options
from profiles.choice import choices
from profiles.pod import idle_clocks
from profiles.reader import load
from tests.unit.culling.scenes import pod, server

MINUTE = timedelta(minutes=1)
TEXT = """
version: 1
defaults: {idle_minutes: 30, warn_minutes: 5, groups: {staff: {idle_minutes: 60}}}
profiles:
  - name: t4
    title: T4
    slices:
      - {name: 3g, title: 3 GiB, memory: 3GiB, gpu_idle_minutes: 40}
      - {name: 7g, title: 7 GiB, memory: 7GiB, idle_minutes: 20, pressed_idle_minutes: 90}
    custom: {largest: 9GiB, idle_minutes: 12}
  - name: cpu
    title: No GPU
    idle_minutes: 0
    groups: {staff: {idle_minutes: 5}, guests: {idle_minutes: 9, max_age_minutes: 99}}
"""


def book(tmp_path: Path) -> PolicyBook:
    path = tmp_path / "catalogue.yaml"
    path.write_text(TEXT)
    file = CatalogueFile(path, GIB, Names(), logging.getLogger("test"))
    return PolicyBook(file, {"idle_minutes": 77}, MINUTE)


def idle(book: PolicyBook, choice: str, *groups: str, annotation: str = "") -> timedelta | None:
    from dataclasses import replace

    one = replace(server("ann"), groups=frozenset(groups))
    return book.rules_of(one, pod("ann", choice=choice, idle=annotation)).policy.idle


def test_the_innermost_layer_wins_and_groups_win_over_it(tmp_path: Path) -> None:
    rules = book(tmp_path)
    assert idle(rules, "t4/3g") == 30 * MINUTE
    assert idle(rules, "t4/7g") == 20 * MINUTE
    assert idle(rules, "t4/custom") == 12 * MINUTE
    assert idle(rules, "cpu") is None
    assert idle(rules, "t4/3g", "staff") == 60 * MINUTE
    assert idle(rules, "cpu", "staff", "guests") == 9 * MINUTE, "the longest of both"


def test_waiting_never_lengthens(tmp_path: Path) -> None:
    policy = book(tmp_path).rules_of(server("ann"), pod("ann", choice="t4/7g")).policy
    assert policy.pressed_idle == policy.idle == 20 * MINUTE


def test_what_the_catalogue_has_no_more_the_pod_remembers(tmp_path: Path) -> None:
    rules = book(tmp_path)
    promised = json.dumps({"idle": 44, "warn": 1, "minRun": 2, "maxAge": 0})
    assert idle(rules, "t4/gone", annotation=promised) == 44 * MINUTE
    assert idle(rules, "t4/gone", annotation="{") == 77 * MINUTE
    assert idle(rules, "") == 77 * MINUTE


def test_the_annotation_says_all_that_the_catalogue_says(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    catalogue = load(path, unit=GIB, names=Names())
    for profile in catalogue.profiles:
        for choice in choices(catalogue, profile):
            times = annotated_times(idle_clocks(choice.settings))
            assert times is not None
            assert times["idle_minutes"] == (choice.settings.idle_minutes or 0)
            assert times.get("gpu_idle_minutes") == choice.settings.gpu_idle_minutes


def test_choices_by_their_options(tmp_path: Path) -> None:
    assert choice_of_options({"profile": "t4", "slice": "3g"}) == "t4/3g"
    assert choice_of_options({"profile": "t4", "slice--unlisted-choice": "9GiB"}) == "t4/custom"
    assert choice_of_options({"profile": "cpu"}) == "cpu"
    assert choice_of_options({"profile": ["t4"]}) == ""
    rules = book(tmp_path)
    assert rules.title(server("ann"), pod("ann", choice="t4/3g")) == "3 GiB on T4"
