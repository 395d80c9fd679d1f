"""Reading catalogues: what is wrong is said with file, line, field and the fix."""

from __future__ import annotations

import contextlib
import string
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpushare.demand import Policy
from gpushare.units import Unit
from profiles.catalogue import Slice
from profiles.reader import SHIPPED, CatalogueError, load, loads

HEAD = "version: 1\nprofiles:\n  - name: t4\n    title: T4\n    models: [T4]\n"
SLICE = "    slices:\n      - name: a\n        title: A\n"


def problems(text: str, **settings: object) -> list[str]:
    with pytest.raises(CatalogueError) as error:
        loads(text, file="my.yaml", **settings)  # type: ignore[arg-type]
    return str(error.value).splitlines()


def test_the_shipped_catalogue_has_the_usual_choices() -> None:
    catalogue = load(SHIPPED)
    sizes = {
        profile.name: [part.memory or part.percent for part in profile.slices]
        for profile in catalogue.profiles
    }
    assert sizes == {
        "t4": [3 * 1024, 7 * 1024, 15 * 1024, 25, 50, 100],
        "a10": [5 * 1024, 11 * 1024, 22 * 1024, 25, 50, 100],
        "cpu": [],
    }


def test_the_shipped_catalogue_fits_other_units() -> None:
    assert load(SHIPPED, unit=Unit(256)).profiles


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "my.yaml:1: the file is empty"),
        ("a: [1", "my.yaml:1: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("- 1", "my.yaml:1: [1] is not a mapping; write 'name: value' lines below it"),
        (
            "version: 1\nprofiles: []\nversion: 1",
            "my.yaml:3: version: is set on line 1 already; keep one",
        ),
        (
            "version: 2\nprofiles: [{name: a, title: a}]",
            "my.yaml:1: version: 2 is not known; use 1",
        ),
        ("version: 1\nprofiles: []", "my.yaml:2: profiles: is empty; add at least one profile"),
        ("version: 1", "my.yaml:1: profiles: is missing; add it"),
        (
            HEAD + SLICE + "        memory: 7",
            "my.yaml:9: profiles[0].slices[0].memory: 7 is not a size: "
            "write it with its unit, for example 7GiB",
        ),
        (
            HEAD + SLICE + "        memory: 7GB",
            "my.yaml:9: profiles[0].slices[0].memory: '7GB' is not a size: "
            "write it with its unit, for example 7GiB",
        ),
        (
            HEAD + SLICE + "        memory: 7500MiB",
            "my.yaml:9: profiles[0].slices[0].memory: 7500 MiB is no whole number of this "
            "cluster's unit, GiB",
        ),
        (
            HEAD + SLICE + "        percent: 150",
            "my.yaml:7: profiles[0].slices[0]: percent 150 is neither part of a card nor "
            "whole cards",
        ),
        (
            HEAD + SLICE + "        memroy: 7GiB",
            "my.yaml:9: profiles[0].slices[0].memroy: is not known; did you mean 'memory'?",
        ),
        (
            HEAD + SLICE,
            "my.yaml:7: profiles[0].slices[0]: the slice has no size: set 'memory', for example "
            "7GiB, or 'percent', or both",
        ),
        (
            HEAD + SLICE + "        memory: 9999999GiB",
            "my.yaml:7: profiles[0].slices[0]: the request is not valid: gpushare/gpu-mem: 9999999 "
            "GiB is larger than any card; ask for less",
        ),
        (
            HEAD,
            "my.yaml:3: profiles[0]: the profile has models but no slices: add slices of these cards",
        ),
        (
            "version: 1\nprofiles:\n  - {name: A, title: a}",
            "my.yaml:3: profiles[0].name: 'A' is not a name: use lower-case letters, digits and "
            "single '-', at most 40, for example 't4' or '7-gib'",
        ),
        (
            "version: 1\nprofiles:\n  - {name: no, title: a}",
            "my.yaml:3: profiles[0].name: False is not a text; put it in quotes",
        ),
        (
            "version: 1\nprofiles:\n  - {name: a, title: a}\n  - {name: a, title: b}",
            "my.yaml:2: profiles: two profiles are named 'a': names tell them apart, rename one",
        ),
        (
            "version: 1\ndefaults: {idle_minutes: 5, warn_minutes: 9}\n"
            "profiles: [{name: a, title: a}]",
            "my.yaml:2: defaults.warn_minutes: 9 is not below idle_minutes (5): "
            "nobody could be warned in time",
        ),
        (
            "version: 1\nprofiles:\n  - {name: a, title: a, mem_limit: 4GiB}",
            "my.yaml:3: profiles[0].mem_limit: '4GiB' is not an amount of memory; use for example "
            "'512M' or '4G'",
        ),
        (
            "version: 1\nprofiles:\n  - name: a\n    title: a\n    kubespawner_override:\n"
            "      scheduler_name: x",
            "my.yaml:5: profiles[0].kubespawner_override: 'scheduler_name' is set from the slice; "
            "leave it out here",
        ),
        (
            HEAD + SLICE + "        memory: 7GiB\n    custom: {largest: 3GiB, smallest: 5GiB}",
            "my.yaml:10: profiles[0].custom: smallest (5 GiB) is above largest (3 GiB): swap them",
        ),
    ],
)
def test_problems_name_line_field_and_fix(text: str, expected: str) -> None:
    assert problems(text) == [expected]


def test_all_problems_are_told_at_once() -> None:
    text = HEAD + SLICE + "        memory: x\n      - name: b\n        percent: 0\n"
    assert [p.split(" ")[0] for p in problems(text)] == ["my.yaml:9:", "my.yaml:10:", "my.yaml:11:"]


def test_a_clock_is_checked_where_it_is_set() -> None:
    text = (
        "version: 1\ndefaults: {idle_minutes: 10, warn_minutes: 5}\nprofiles:\n"
        "  - name: a\n    title: a\n    idle_minutes: 4\n  - {name: b, title: b}\n"
    )
    (problem,) = problems(text)
    assert problem.startswith("my.yaml:4: profiles[0].warn_minutes: 5 is not below")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"none\.yaml:1: cannot be read: No such file"):
        load(tmp_path / "none.yaml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CatalogueError, match="not UTF-8 text"):
        load(tmp_path / "x")


def test_aliases_that_explode_are_read_in_time() -> None:
    layers = "\n".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30))
    (problem,) = problems(f"x0: &x0 [lol]\n{layers}\nversion: 1\n")
    assert "counting what its aliases repeat" in problem
    assert "counting what its aliases repeat" in problems("&a [*a]")[0]


_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(string.printable, max_size=8)
)
_KEYS = st.sampled_from(
    [
        *("version", "profiles", "defaults", "name", "title", "slices", "memory", "percent"),
        *("cards", "models", "images", "image", "custom", "largest", "idle_minutes"),
        *("allowed_groups", "kubespawner_override", "environment", "nonsense"),
    ]
)


@given(
    st.recursive(
        _LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_nothing_but_catalogue_errors_comes_of_any_yaml(data: object) -> None:
    with contextlib.suppress(CatalogueError):
        loads(yaml.safe_dump(data))


@given(st.text(max_size=200))
def test_nothing_but_catalogue_errors_comes_of_any_text(text: str) -> None:
    with pytest.raises(CatalogueError):
        loads(text)


def test_every_policy_of_the_extender_may_be_chosen() -> None:
    offered = get_args(get_args(Slice.model_fields["policy"].annotation)[0])
    assert set(offered) == {policy.value for policy in Policy}
