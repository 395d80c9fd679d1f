"""What the form shows, and what it keeps to itself."""

from __future__ import annotations

import pytest

from gpushare.capacity import Capacity, Kind
from hub_integration.availability import Memory, Offer, alternative, offer
from hub_integration.form import FormView, form_view, render, render_message
from hub_integration.snapshot import Snapshot
from profiles.choice import Choice, Person, choices, select, visible
from profiles.pod import pod_parts
from profiles.reader import loads
from tests.unit.hub_integration.hub import Page

CATALOGUE = loads(
    """
version: 1
defaults: {idle_minutes: 30, warn_minutes: 5}
profiles:
  - name: t4
    title: NVIDIA T4
    models: [T4]
    images: [{name: torch, title: PyTorch, image: "internal.example/torch"}]
    slices:
      - {name: 3g, title: 3 GiB, memory: 3GiB}
      - {name: 7g, title: 7 GiB, memory: 7GiB}
      - {name: whole, title: whole card, percent: 100}
    custom: {largest: 12GiB}
  - {name: l4, title: NVIDIA L4, models: [L4], slices: [{name: 5g, title: 5 GiB, memory: 5GiB}]}
  - {name: cpu, title: No GPU, idle_minutes: 0, max_age_minutes: 1440}
"""
)
ANN = Person("ann")


def capacity(*free: int) -> Capacity:
    return Capacity([[Kind("Tesla T4", 15360, "ok", mib, 100, mib == 15360) for mib in free]])


def view(room: Capacity | None, ends: bool = True, waiting: int = 0, **options: str) -> FormView:
    profiles = list(visible(CATALOGUE, ANN))
    selected = select(CATALOGUE, options, ANN)
    now = Snapshot(room, waiting) if room else None
    return form_view(CATALOGUE, profiles, selected, pod_parts, now, ends=ends)


def words(form: FormView) -> dict[str, str]:
    return {s.value: s.words for profile in form.profiles for s in profile.slices}


def test_numbers() -> None:
    assert words(view(capacity(15360, 4096))) == {
        "3g": "6 free now",
        "7g": "2 free now",
        "whole": "1 free now",
        "custom": "",
        "5g": "no such card here now",
    }
    full = view(capacity(2000))
    assert words(full)["3g"] == "none free now"
    assert full.profiles[0].slices[0].full
    assert full.profiles[0].memory == Memory(2000, 15360)


def test_without_numbers_the_form_says_so() -> None:
    page = Page(render(view(None)))
    assert page.text("gpushare-updated") == (
        "How much is free is not known right now; you can start all the same."
    )
    assert page.text("profile-option-t4--slice--3g-words") == ""
    assert page.text("profile-item-t4-memory") == ""


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (0, "Free slices as of now."),
        (1, "Free slices as of now; 1 server waits for one."),
        (3, "Free slices as of now; 3 servers wait for one."),
    ],
)
def test_who_waits(waiting: int, expected: str) -> None:
    page = Page(render(view(capacity(15360), waiting=waiting)))
    assert page.text("gpushare-updated") == expected


def test_selection() -> None:
    page = Page(render(view(None, profile="t4", slice="whole")))
    assert page.checked("profile") == ["t4"]
    assert page.checked("profile-option-t4--slice") == ["whole"]
    assert page.checked("profile-option-l4--slice") == ["5g"]
    page = Page(render(view(None, profile="t4", **{"slice--unlisted-choice": "9"})))
    assert page.checked("profile-option-t4--slice") == ["custom"]
    assert page.values("profile-option-t4--slice--unlisted-choice") == ["9"]


def test_exactly_one_of_each_group_is_checked() -> None:
    page = Page(render(view(capacity(15360))))
    for name in {i["name"] for i in page.inputs if i.get("type") == "radio"}:
        assert len(page.checked(name)) == 1


def test_only_the_chosen_cards_slices_show_by_css_alone() -> None:
    html = render(view(None))
    for name in ("t4", "l4", "cpu"):
        rule = f".gpushare-form:has(#profile-item-{name}:not(:checked)) #profile-item-{name}-parts"
        assert rule in html


def test_live_parts_have_ids_of_their_own() -> None:
    html = render(view(capacity(15360)))
    live = [part.split('id="')[1].split('"')[0] for part in html.split(" data-live>")[:-1]
            for part in [part[part.rindex("<"):]]]  # fmt: skip
    assert len(live) == len(set(live)) == 1 + 3 + 4 + 1


def test_when_servers_end_is_said_only_if_something_ends_them() -> None:
    idle = [profile.idle for profile in view(None).profiles]
    assert idle[0] == "Ends after 30 min without use (warning 5 min before)."
    assert idle[2] == "Ends after 24 h in any case."
    assert [p.idle for p in view(None, ends=False).profiles] == ["", "", ""]


def test_nothing_internal_is_in_the_page() -> None:
    html = render(view(capacity(15360)))
    assert "internal.example" not in html
    assert "gpu-mem" not in html


def test_messages_are_escaped() -> None:
    assert "<b>" not in render_message("a <b>")


def offers(room: Capacity) -> dict[str, Offer]:
    everything: list[Choice] = [c for p in CATALOGUE.profiles for c in choices(CATALOGUE, p)]
    return {c.key: offer(c, pod_parts(c), room) for c in everything}


@pytest.mark.parametrize(
    ("free", "wanted", "expected"),
    [
        ((5000,), "t4/7g", "t4/3g"),
        ((8000,), "t4/whole", "t4/7g"),
        ((1000,), "t4/7g", None),
        ((15360,), "t4/3g", "t4/7g"),
        ((15360,), "t4/whole", "t4/7g"),
        ((8000,), "l4/5g", "t4/3g"),
    ],
)
def test_something_else_that_is_free(
    free: tuple[int, ...], wanted: str, expected: str | None
) -> None:
    all_offers = offers(capacity(*free))
    found = alternative(all_offers[wanted], all_offers.values())
    assert (found.choice.key if found else None) == expected


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (Memory(0, 0), "no such card here now"),
        (Memory(0, 30720), "full"),
        (Memory(11 * 1024, 30720), "11 of 30 GiB free"),
        (Memory(41472, 92112), "40.5 of 90 GiB free"),
    ],
)
def test_memory_in_words(memory: Memory, expected: str) -> None:
    assert memory.words == expected
