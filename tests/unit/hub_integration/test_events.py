"""Events in the user's words, with the original beside them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_integration.events import RULES, progress_event, translate


def event(reason: str, message: str) -> dict[str, Any]:
    return {"reason": reason, "message": message, "type": "Normal"}


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        (
            "Scheduled",
            "Successfully assigned jupyter/jupyter-a to t4-1",
            "A place was found, on t4-1.",
        ),
        (
            "FailedScheduling",
            "0/2 nodes are available: 2 wants 7 GiB on one card, the most free on one card is 3 GiB.",
            "Waiting for 7 GiB on NVIDIA T4: nothing is free that is large enough.",
        ),
        (
            "FailedScheduling",
            "0/2 nodes are available: 2 Insufficient cpu.",
            "Waiting for processor time or main memory: the nodes are full.",
        ),
        (
            "FailedScheduling",
            "0/2 nodes are available.",
            "Waiting for a place: no node can take the server now.",
        ),
        (
            "TriggeredScaleUp",
            "pod triggered scale-up: [{pool 0->1}]",
            "The cluster adds a node for this server; that takes some minutes.",
        ),
        ("Pulled", 'Container image "x" already present on machine', "The image is on the node."),
        (
            "Pulling",
            'Pulling image "x"',
            "The image is being fetched; the first time on a node, that takes a while.",
        ),
        (
            "Failed",
            "Error: the placement names another pod",
            "The container cannot be made: the placement names another pod",
        ),
        (
            "Failed",
            'Failed to pull image "x": not found',
            'The image cannot be fetched: Failed to pull image "x": not found',
        ),
        (
            "UnexpectedAdmissionError",
            "Allocate failed due to no such device",
            "The node could not give the slice: Allocate failed due to no such device",
        ),
        (
            "NoCardFree",
            "wants 7 GiB on one card (T4); free: t4-1 card 0 (T4) 3 GiB",
            "Waiting for 7 GiB on NVIDIA T4. Free now: t4-1 card 0 (T4) 3 GiB.",
        ),
        ("SomethingNew", "in {braces}", "in {braces}"),
        ("SomethingNew", "", "SomethingNew"),
    ],
)
def test_translation(reason: str, message: str, expected: str) -> None:
    assert translate(event(reason, message), "7 GiB on NVIDIA T4") == expected


def test_the_original_stays_and_is_escaped() -> None:
    raw = event("Failed", "<script>alert(1)</script>")
    item = progress_event({"progress": 30, "raw_event": raw, "message": "12:00 [Normal] <b>"}, "x")
    assert item["progress"] == 30
    assert item["raw_event"] is raw
    assert "<script>" not in item["html_message"]
    assert "&lt;script&gt;" in item["html_message"]
    assert "12:00 [Normal] &lt;b&gt;" in item["html_message"]


def test_items_without_an_event_stay_as_they_are() -> None:
    assert progress_event({"message": "Spawning…"}, "x") == {"message": "Spawning…"}


@given(
    st.sampled_from([*(rule.reason for rule in RULES), "Other"]),
    st.one_of(st.none(), st.text(max_size=60)),
    st.text(max_size=10),
)
def test_any_event_has_a_text(reason: str, message: str | None, choice: str) -> None:
    assert translate({"reason": reason, "message": message}, choice) is not None
    html = progress_event({"raw_event": {"reason": reason, "message": message}}, choice)
    assert "<" not in html["html_message"].split("<details>")[0]
