"""From a user's options to a choice, and from a choice to parts of a pod."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.names import Names
from gpushare.request import Policy
from gpushare.units import Unit
from profiles.choice import Choice, ChoiceError, Person, choices, nearest, select, visible
from profiles.pod import pod_parts
from profiles.profile_list import profile_list
from profiles.reader import SHIPPED, load, loads

CATALOGUE = loads(
    """
version: 1
defaults: {idle_minutes: 30, environment: {A: outer, B: outer}, cpu_limit: 2}
profiles:
  - name: t4
    title: NVIDIA T4
    models: [T4, T4G]
    idle_minutes: 20
    environment: {B: inner}
    images:
      - {name: torch, title: PyTorch, image: "example/torch:1", environment: {C: image}}
      - {name: secret, title: Secret, image: "example/secret:1", allowed_users: [ann]}
    slices:
      - {name: 3g, title: 3 GiB, memory: 3GiB}
      - {name: 7g, title: 7 GiB, memory: 7GiB, idle_minutes: 10, default: true}
      - {name: both, title: 3 GiB and 25 %, memory: 3GiB, percent: 25, policy: spread}
      - {name: four, title: four cards, percent: 400}
      - {name: two, title: 2 × 7 GiB, memory: 7GiB, cards: 2}
      - {name: staff, title: Staff, memory: 15GiB, allowed_groups: [staff]}
    custom: {largest: 12GiB, smallest: 2GiB, step: 2GiB, allowed_groups: [staff], cpu_limit: 8}
  - {name: lab, title: Lab, allowed_groups: [lab], allowed_users: [bob]}
  - {name: cpu, title: No GPU}
"""
)
ANN, BOB = Person("ann"), Person("bob")
STAFF = Person("prof", frozenset({"staff"}))
NAMES = Names()


def pick(person: Person = BOB, **options: str) -> Choice:
    return select(CATALOGUE, {k.replace("_", "--"): v for k, v in options.items()}, person)


def test_what_is_left_out_is_the_default() -> None:
    assert pick().key == "t4/7g"
    assert pick(profile="t4").options == {"profile": "t4", "slice": "7g", "image": "torch"}
    assert pick(profile="cpu").options == {"profile": "cpu"}


def test_layers_of_settings() -> None:
    settings = pick(profile="t4", slice="7g").settings
    assert (settings.idle_minutes, settings.cpu_limit) == (10, 2)
    assert settings.environment == {"A": "outer", "B": "inner", "C": "image"}
    assert settings.image == "example/torch:1"
    assert pick(profile="t4", slice="3g").settings.idle_minutes == 20
    assert pick(profile="cpu").settings.idle_minutes == 30


def test_rights() -> None:
    assert [p.name for p in visible(CATALOGUE, BOB)] == ["t4", "lab", "cpu"]
    assert [p.name for p in visible(CATALOGUE, STAFF)] == ["t4", "cpu"]
    mine = next(visible(CATALOGUE, STAFF))
    assert "staff" in [part.name for part in mine.slices]
    assert mine.custom is not None
    theirs = next(visible(CATALOGUE, BOB))
    assert "staff" not in [part.name for part in theirs.slices]
    assert theirs.custom is None
    assert [image.name for image in theirs.images] == ["torch"]
    with pytest.raises(ChoiceError, match="no image 'secret' for you"):
        pick(image="secret")
    assert pick(ANN, image="secret").settings.image == "example/secret:1"


def test_nobody_may_anything() -> None:
    closed = loads("version: 1\nprofiles: [{name: a, title: a, allowed_users: [x]}]")
    with pytest.raises(ChoiceError, match="no kind of server that you may start"):
        select(closed, {}, BOB)
    with pytest.raises(ChoiceError):
        nearest(closed, {"profile": "a"}, BOB)


def test_custom_sizes_are_bounded_and_stepped() -> None:
    def chosen(size: str) -> Choice:
        options = {"profile": "t4", "slice": "custom", "slice--unlisted-choice": size}
        return select(CATALOGUE, options, STAFF)

    assert chosen("4").key == "t4/custom"
    assert pod_parts(chosen("4")).limits == {NAMES.gpu_mem: 4}
    assert chosen("4GiB").options["slice--unlisted-choice"] == "4096MiB"
    assert select(CATALOGUE, chosen("4").options, STAFF).slice == chosen("4").slice
    assert chosen("4").settings.cpu_limit == 8
    for size in ("0", "1", "3", "14", "-2", "x", "", "1e3", "4.5", "99999999999", "4GiB; rm"):
        with pytest.raises(ChoiceError, match="from 2 GiB to 12 GiB in steps of 2 GiB"):
            chosen(size)
    with pytest.raises(ChoiceError):
        select(CATALOGUE, {"profile": "t4", "slice--unlisted-choice": "4"}, BOB)


def test_two_sizes_at_once_are_none() -> None:
    options = {"profile": "t4", "slice": "3g", "slice--unlisted-choice": "4"}
    with pytest.raises(ChoiceError, match="Both"):
        select(CATALOGUE, options, STAFF)


@given(
    st.dictionaries(
        st.one_of(
            st.sampled_from(["profile", "slice", "image", "slice--unlisted-choice"]), st.text()
        ),
        st.one_of(
            st.sampled_from(["t4", "lab", "cpu", "3g", "two", "custom", "torch", "4"]),
            st.text(max_size=5),
            st.none(),
            st.integers(),
            st.lists(st.text(max_size=2), max_size=2),
        ),
        max_size=4,
    ),
    st.sampled_from([ANN, BOB, STAFF]),
)
def test_options_are_a_choice_or_a_choice_error(options: dict[str, object], who: Person) -> None:
    selected, _ = nearest(CATALOGUE, options, who)
    assert select(CATALOGUE, selected.options, who).key == selected.key
    with contextlib.suppress(ChoiceError):
        choice = select(CATALOGUE, options, who)
        pod_parts(choice)
        assert select(CATALOGUE, choice.options, who).options == choice.options


@pytest.mark.parametrize(
    ("options", "expected", "exact"),
    [
        ({}, "t4/7g", True),
        ({"profile": "t4", "slice": "3g", "image": "torch"}, "t4/3g", True),
        ({"profile": "t4", "slice": "gone"}, "t4/7g", False),
        ({"profile": "t4", "slice": "3g", "image": "gone"}, "t4/3g", False),
        ({"profile": "gone", "slice": "3g"}, "t4/7g", False),
        ({"profile": "cpu", "slice": "3g"}, "cpu", False),
        ({"profile": ["x"], "slice": 7}, "t4/7g", True),
    ],
)
def test_nearest(options: dict[str, object], expected: str, exact: bool) -> None:
    choice, same = nearest(CATALOGUE, options, BOB)
    assert (choice.key, same) == (expected, exact)


def test_limits_and_annotations() -> None:
    parts = pod_parts(pick(profile="t4", slice="both"))
    assert parts.limits == {NAMES.gpu_mem: 3, NAMES.gpu_percent: 25}
    assert parts.annotations[NAMES.card_model] == "T4,T4G"
    assert parts.annotations[NAMES.policy] == "spread"
    assert parts.request.policy is Policy.SPREAD
    assert json.loads(parts.annotations[NAMES.idle]) == {
        "idle": 20,
        "warn": 0,
        "minRun": 0,
        "maxAge": 0,
    }
    assert parts.scheduler_name == "gpushare-user-scheduler"
    two = pod_parts(pick(profile="t4", slice="two"))
    assert two.annotations[NAMES.cards] == "2"
    assert two.request.containers[0].demand.cards == 2
    four = pod_parts(pick(profile="t4", slice="four"))
    assert four.limits == {NAMES.gpu_percent: 400}
    assert four.request.containers[0].demand.whole


def test_no_gpu() -> None:
    parts = pod_parts(pick(profile="cpu"))
    assert parts.limits == {}
    assert parts.scheduler_name is None
    assert not parts.request
    assert parts.environment == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_units_and_prefix() -> None:
    parts = pod_parts(pick(slice="3g"), names=Names("x.example"), unit=Unit(256))
    assert parts.limits == {"x.example/gpu-mem": 12}
    assert parts.annotations["x.example/choice"] == "t4/3g"


def test_every_shipped_choice_becomes_a_request() -> None:
    catalogue = load(SHIPPED)
    parts = [pod_parts(c) for p in catalogue.profiles for c in choices(catalogue, p)]
    assert len(parts) == 13
    assert sum(bool(p.request) for p in parts) == 12


def test_profile_list_is_plain_data_and_escaped() -> None:
    catalogue = loads(
        "version: 1\nprofiles:\n  - name: a\n    title: <b>&\n    text: <i>\n"
        "    slices: [{name: s, title: '<s> {x}', memory: 3GiB}]\n"
    )
    (entry,) = profile_list(catalogue)
    assert entry["display_name"] == "&lt;b&gt;&amp;"
    assert entry["description"] == "&lt;i&gt;"
    choice = entry["profile_options"]["slice"]["choices"]["s"]
    assert choice["display_name"] == "&lt;s&gt; {x}"
    override = choice["kubespawner_override"]
    assert override["extra_resource_limits"] == {NAMES.gpu_mem: "3"}
    assert override["environment"]["GPUSHARE_SLICE"] == "<s> {{x}} on <b>&"
    assert json.loads(override["extra_annotations"][NAMES.idle].format())["idle"] == 0
    assert json.loads(json.dumps(entry)) == entry
