"""The spawner in a real JupyterHub process: form, refusals on every page, and the Hub's count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.hub_integration.hub import Browser, Hub
from tests.unit.hub_integration.state import A10, T4, FakeExtender, answer, card

CATALOGUE = """
version: 1
profiles:
  - name: t4
    title: NVIDIA <T4> & more
    models: [T4]
    environment: {SECRET_OF_THE_ADMIN: do-not-show}
    slices:
      - {name: 3g, title: 3 GiB, text: 'small <b>things</b>', memory: 3GiB}
      - {name: 7g, title: 7 GiB, memory: 7GiB, image: "internal.example/gpu:1"}
      - {name: 15g, title: 15 GiB, memory: 15GiB}
    custom: {largest: 12GiB}
  - name: a10
    title: NVIDIA A10
    models: [A10]
    allowed_groups: [staff]
    slices:
      - {name: 11g, title: 11 GiB, memory: 11GiB}
  - name: cpu
    title: No GPU
"""


@pytest.fixture(scope="module")
def extender() -> Iterator[FakeExtender]:
    body = answer(
        t4=[card(T4, used_mib=9 * 1024), card(T4, used_mib=15360)],
        a10=[card(A10) for _ in range(4)],
    )
    with FakeExtender(body) as extender:
        yield extender


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, extender: FakeExtender) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("hub")
    (folder / "catalogue.yaml").write_text(CATALOGUE)
    settings = {
        "catalogue_file": str(folder / "catalogue.yaml"),
        "extender_url": extender.url,
        "extender_token_file": "",
        "gpu_start_timeout": 1,
        "quotas": {"users": {"bad": {"slices": 0}}},
    }
    with Hub(folder, "pending", settings) as hub:
        yield hub


def test_form_has_stock_names_and_live_numbers(hub: Hub) -> None:
    page = Browser(hub, "ann").spawn_page()
    assert page.values("profile") == ["t4", "cpu"]
    assert page.values("profile-option-t4--slice") == ["3g", "7g", "15g", "custom"]
    assert page.checked("profile") == ["t4"]
    assert page.checked("profile-option-t4--slice") == ["3g"]
    assert page.text("profile-option-t4--slice--3g-words") == "2 free now"
    assert page.text("profile-option-t4--slice--7g-words") == "none free now"
    assert page.text("profile-item-t4-memory") == "6 of 30 GiB free"


def test_form_is_accessible_and_shows_no_internals(hub: Hub) -> None:
    page = Browser(hub, "ann").spawn_page()
    visible = [i for i in page.inputs if i.get("type") in ("radio", "number")]
    assert visible
    for field in visible:
        assert field["id"] in page.labels
        for part in field.get("aria-describedby", "").split():
            assert part in page.ids
    ids = [i["id"] for i in visible]
    assert len(ids) == len(set(ids))
    assert page.legends == ["Choose your GPU", "Slice of NVIDIA <T4> & more"]
    assert "do-not-show" not in page.source
    assert "internal.example" not in page.source
    assert "<b>things</b>" not in page.source
    assert "&lt;b&gt;things&lt;/b&gt;" in page.source
    assert 'role="status"' in page.source


def test_groups_see_their_own(hub: Hub) -> None:
    assert "a10" in Browser(hub, "prof").spawn_page().values("profile")
    refused = Browser(hub, "ann").submit(profile="a10")
    assert refused.status_code == 400
    assert "no kind of server &#39;a10&#39; for you here" in refused.text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"profile": "gone"}, "no kind of server"),
        ({"profile": "t4", "profile-option-t4--slice": "gone"}, "no slice"),
        ({"profile": "t4", "profile-option-t4--nothing": "x"}, "not an option"),
        (
            {
                "profile": "t4",
                "profile-option-t4--slice": "custom",
                "profile-option-t4--slice--unlisted-choice": "99",
            },
            "from 1 GiB to 12 GiB",
        ),
        ({"profile": "t4", "profile-option-t4--slice": "custom"}, "is not a size"),
    ],
)
def test_bad_forms_come_back_with_the_reason(
    hub: Hub, fields: dict[str, str], expected: str
) -> None:
    refused = Browser(hub, "ann").submit(**fields)
    assert refused.status_code == 400
    assert expected in refused.text
    assert "gpushare-form" in refused.text


def test_links_are_held_to_the_same_rules(hub: Hub) -> None:
    browser = Browser(hub, "link")
    for prefix in ("opt-", ""):
        refused = browser.get(f"spawn?{prefix}profile=gone")
        assert refused.status_code == 400
        assert "no kind of server" in refused.text


def test_a_link_without_a_profile_shows_the_form(hub: Hub) -> None:
    answer = Browser(hub, "link").get("spawn?from=newsletter")
    assert answer.status_code == 400
    assert "names no kind of server" in answer.text
    assert "gpushare-form" in answer.text


def test_pending_page_and_progress_say_why_it_ended(hub: Hub) -> None:
    browser = Browser(hub, "slow")
    started = browser.submit(**{"profile": "t4", "profile-option-t4--slice": "7g"})
    assert started.status_code == 302
    assert "spawn-pending" in started.headers["Location"]
    events = hub.progress("slow")
    assert events[-1]["failed"]
    assert "nothing large enough became free within 1 seconds" in events[-1]["message"]
    assert (
        "3 GiB on NVIDIA &lt;T4&gt; &amp; more is free now"
        in browser.get("spawn-pending/slow").text
    )


def test_fifty_bad_spawns_leave_the_hub_up(hub: Hub) -> None:
    """Through the API, where every failure of a spawn is counted by JupyterHub 5."""
    hub.api("POST", "users/bad")
    over_quota = {"profile": "t4", "slice": "3g"}
    bodies = [
        {"profile": "gone"},
        {"profile": ["t4"]},
        {"profile": "t4", "slice": 7},
        ["t4"],
        "t4",
        over_quota,
    ]
    for i in range(50):
        body = bodies[i % len(bodies)]
        refused = hub.api("POST", "users/bad/server", json=body)
        assert refused.status_code == (403 if body is over_quota else 400), refused.text
        assert refused.json()["message"]
    assert hub.alive
    before = hub.metric('gpushare_spawn_refusals_total{reason="gpu-invalid"}')
    assert before >= 30


def test_the_hub_still_starts_servers_and_counts_real_failures(
    tmp_path: Path, extender: FakeExtender
) -> None:
    """Refusals in between do not hide real failures, nor reset their count."""
    settings = {"gpu_start_timeout": 1, "extender_url": extender.url, "extender_token_file": ""}
    with Hub(tmp_path, "denied", settings) as hub:
        hub.api("POST", "users/x")
        for _ in range(8):
            refused = hub.api("POST", "users/x/server", json={"profile": "t4"})
            assert refused.status_code == 403, refused.text
            assert "exceeded quota: gpu" in refused.json()["message"]
        assert hub.alive


def test_a_rejected_pod_ends_the_wait(tmp_path: Path) -> None:
    with Hub(tmp_path, "failed", slow_spawn_timeout=0) as hub:
        hub.api("POST", "users/x")
        for _ in range(8):
            assert hub.api("POST", "users/x/server", json={"profile": "t4"}).status_code in (
                201,
                202,
            )
            hub.await_stopped("x")
            (event,) = hub.progress("x")[-1:]
            assert event["failed"]
            assert "no such device" in event["message"]
        assert hub.alive
