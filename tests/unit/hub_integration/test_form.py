"""What the form shows, and what it keeps to itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpushare.capacity import Capacity, Kind
from hub_integration.availability import Memory, Offer, alternative, offer
from hub_integration.form import FormView, form_view, live_numbers, render, render_message
from hub_integration.outlook import Outlook
from hub_integration.quota.ledger import Holding, Stay
from hub_integration.quota.rules import Account, Limits
from hub_integration.quota.windows import Window
from profiles.choice import Choice, Person, choices, select, visible
from profiles.pod import pod_parts
from profiles.reader import loads
from tests.unit.hub_integration.hub import Page
from tests.unit.hub_integration.state import waiting_pod

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


def view(
    room: Capacity | None,
    ends: bool = True,
    waiting: int = 0,
    accounts: Sequence[Account] = (),
    **options: str,
) -> FormView:
    profiles = list(visible(CATALOGUE, ANN))
    selected = select(CATALOGUE, options, ANN)
    outlook = Outlook(room, number_waiting=waiting)
    return form_view(
        CATALOGUE, profiles, selected, pod_parts, outlook, ends=ends, accounts=accounts
    )


def words(form: FormView) -> dict[str, str]:
    return {s.value: s.words for profile in form.profiles for s in profile.slices}


def test_numbers() -> None:
    assert words(view(capacity(15360, 4096))) == {
        "3g": "6 free now",
        "7g": "2 free now",
        "whole": "1 free now",
        "custom": "up to 15 GiB free now",
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
        (0, "What is free now; nobody is waiting."),
        (1, "What is free now; 1 is waiting."),
        (3, "What is free now; 3 are waiting."),
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


def test_what_changes_has_a_place_in_the_page() -> None:
    """The ids in the stream of numbers are those of the page, with or without numbers in it."""
    numbers = live_numbers(view(capacity(15360)))
    assert numbers["rows"]["profile-option-t4--slice--7g"] == ["2 free now", False]
    assert numbers["bars"]["profile-item-t4"] == ["15 of 15 GiB free", 0]
    for room in (capacity(15360), None):
        ids = Page(render(view(room))).ids
        for row in numbers["rows"]:
            assert f"{row}-words" in ids
        for bar in numbers["bars"]:
            assert {f"{bar}-memory", f"{bar}-bar"} <= ids.keys()
    assert live_numbers(view(None))["bars"]["profile-item-t4"] == ["", 0]


def test_a_full_choice_says_how_long_and_how_many() -> None:
    gib = 1024
    back = [
        Stay(Holding(f"u{i}", "GPU-1", "x", "n", "p", "t4-1", "Tesla T4", 7 * gib, 0), 0, at, at)
        for i, at in enumerate(range(1000, 7001, 1000))
    ]
    waiting = waiting_pod("a", models=("T4",)), waiting_pod("b", models=("A10",))
    outlook = Outlook(capacity(2000), waiting, 2, back, 7600)
    (profile, *_) = visible(CATALOGUE, ANN)
    said = {
        c.slice.name: outlook.words(offer(c, pod_parts(c), outlook.capacity))
        for c in choices(CATALOGUE, profile)
        if c.slice
    }
    # Seven came back in 6600 s, which is one in 943 s; one waits, so the second one is ours.
    assert said["7g"] == "none free now · about 30 min · 1 waiting"
    assert said["whole"] == "none free now · 1 waiting"
    assert said["3g"] == "none free now · about 30 min · 1 waiting"


@pytest.mark.parametrize("count", [0, 4])
def test_no_estimate_without_grounds(count: int) -> None:
    stays = [
        Stay(Holding("u", "c", "x", "n", "p", "t4-1", "Tesla T4", 7168, 0), 0, 10.0 * i, 10.0 * i)
        for i in range(count)
    ]
    outlook = Outlook(capacity(2000), (), 0, stays, 1000)
    (profile, *_) = visible(CATALOGUE, ANN)
    choice = next(choices(CATALOGUE, profile))
    assert outlook.words(offer(choice, pod_parts(choice), outlook.capacity)) == "none free now"


def test_the_allowance_is_told() -> None:
    mine = Account(Limits(slices=2, gib_hours_per_week=40), 1, 7168, {Window.WEEK: 26})
    group = Account(Limits(memory="45GiB"), 3, 21 * 1024, group="ml")
    page = Page(render(view(capacity(15360), accounts=[mine, group])))
    assert page.text("gpushare-allowance") == (
        "Your allowance: 1 of 2 slices in use · 14 of 40 GiB-hours left this week "
        "Your group ml: 21 of 45 GiB in use"
    )
    assert "gpushare-allowance" not in Page(render(view(capacity(15360)))).ids


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
