"""Who takes part in the demo on which cluster."""

from __future__ import annotations

from playground.demo_people import PEOPLE, guests


def test_everybody_on_a_mixed_pool() -> None:
    assert guests(["Tesla T4", "NVIDIA A10"]) == PEOPLE


def test_only_those_whose_cards_there_are() -> None:
    assert {person.model for person in guests(["Tesla T4", "Tesla T4"])} == {"T4"}


def test_other_cards_are_taken_as_they_are() -> None:
    assert [person.model for person in guests(["NVIDIA L4"])] == ["", "", "", ""]


def test_nobody_without_cards() -> None:
    assert guests([]) == ()
