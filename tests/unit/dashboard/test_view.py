"""From what others say to what the screens show."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare import waiting
from hub_integration.dashboard.pages import Pages
from hub_integration.dashboard.readings import (
    Reading,
    read_given_back,
    read_minutes,
    read_nodes,
    read_reclaims,
    read_verdicts,
)
from hub_integration.dashboard.view import Everybody, cluster_screen, my_screen, node_view
from tests.unit.dashboard.doubles import (
    T4,
    card,
    classroom,
    held,
    history,
    node,
    reclaimed,
    usage,
    verdict,
    waiter,
)

NOW = time.time()


def reading(nodes: dict[str, Any] | None = None, **more: Any) -> Reading:
    nodes = nodes or classroom()
    values: dict[str, Any] = {
        "at": NOW,
        "nodes": read_nodes(nodes, usage(nodes, NOW)),
        "waiting": waiting.decode(json.dumps({"waiting": [waiter()]})),
        "culler": True,
    }
    return Reading(**{**values, **more})


def test_bars_are_to_scale() -> None:
    screen = cluster_screen(reading(), NOW)
    cards = {c.uuid: c for n in screen.nodes for c in n.cards}
    first = cards["GPU-t4-1-0"]
    widths = [round(s.width, 1) for s in first.segments]
    assert [s.kind for s in first.segments] == ["slice", "slice", "slice", "free"]
    assert widths == [46.7, 20.0, 20.0, 13.3]  # 7, 3, 3 and 2 of 15 GiB
    assert [s.label for s in first.segments] == ["alice 7", "bob 3", "carol 3", "2 free"]
    assert [round(s.used) for s in first.segments] == [73, 0, 70, 0]
    assert (first.used_words, first.state_words) == ("used 48 %", "healthy")
    assert cards["GPU-t4-1-1"].segments[0].label == "job/train 15"
    assert (cards["GPU-a10-1-0"].state, cards["GPU-a10-1-0"].state_words) == ("idle", "idle 42 min")
    assert cards["GPU-a10-1-1"].state == "broken"
    assert cards["GPU-a10-1-2"].cordoned
    assert [s.kind for s in cards["GPU-a10-1-3"].segments] == ["leaving", "outside", "free"]


def test_nodes_in_trouble_come_first() -> None:
    screen = cluster_screen(reading(), NOW)
    assert [n.name for n in screen.nodes] == ["a10-1", "t4-1"]
    assert screen.nodes[0].trouble == "card 1: XID 79 at 13:58"
    assert screen.totals.words == "6 cards on 2 nodes"


@given(
    st.lists(st.integers(0, 20000), max_size=6),
    st.integers(0, 20000),
    st.integers(-20000, 20000),
    st.one_of(st.none(), st.integers(0, 30000)),
)
def test_a_bar_is_never_wider_than_its_card(
    sizes: list[int], taken: int, free: int, used: int | None
) -> None:
    slices = [held(f"u{i}", mib, used) for i, mib in enumerate(sizes)]
    nodes = {"nodes": [node("n", card(T4, 0, *slices, taken_mib=taken, free_mib=free))]}
    (shown,) = cluster_screen(reading(nodes), NOW).nodes[0].cards
    assert sum(s.width for s in shown.segments) <= 100.001
    assert all(s.width >= 0 and 0 <= s.used <= 100 for s in shown.segments)


def test_a_user_sees_themselves_and_counts_alone() -> None:
    mine = verdict("alice", ends_at=waiting.rfc3339(NOW + 240), action="warn")
    now = reading(verdicts=read_verdicts({"verdicts": [mine, verdict("bob")]}))
    screen = my_screen(Everybody(now), "alice", NOW)
    (server,) = screen.servers
    assert server.title == "7 GiB on T4"
    assert server.used_words == "5.1 of 7 GiB used"
    assert server.remaining.words == "Ends in 4 min unless it is used."
    assert server.remaining.soon
    assert server.remaining.may_hold
    t4, a10 = screen.models[1], screen.models[0]
    assert (t4.name, t4.free_words, t4.waiting) == ("T4", "2 of 30 GiB free", "1 waiting")
    assert a10.largest == "largest piece 17.5 GiB"
    html = "".join(Pages("/s/", "/").mine(screen, "", [], "").values())
    for other in ("bob", "carol", "dave", "erin", "frank", "job", "t4-1", "GPU-"):
        assert other not in html


def test_a_user_in_the_line_sees_their_place() -> None:
    screen = my_screen(Everybody(reading()), "frank", NOW)
    assert screen.queue == ("You are number 1 of 1 in the line for 7 GiB on one card (T4).",)
    assert not screen.servers


def test_a_server_without_a_card_is_shown() -> None:
    verdicts = read_verdicts({"verdicts": [verdict("zoe", title="No GPU", server="notes")]})
    (server,) = my_screen(Everybody(reading(verdicts=verdicts)), "zoe", NOW).servers
    assert (server.name, server.title, server.server) == ("notes", "No GPU", "notes")


def test_stop_is_offered_where_the_server_is_known() -> None:
    verdicts = read_verdicts({"verdicts": [verdict("alice", server="big")]})
    shown = cluster_screen(reading(verdicts=verdicts), NOW)
    rows = {r.who: r for n in shown.nodes for c in n.cards for r in c.rows}
    assert (rows["alice"].user, rows["alice"].server) == ("alice", "big")
    assert rows["job/train"].server is None
    assert rows["bob"].server is None


def test_what_came_back() -> None:
    data = reclaimed(NOW)
    now = reading(reclaims=read_reclaims(data), given_back=read_given_back(data))
    screen = cluster_screen(now, NOW)
    assert screen.given_back == "Today 3 slices came back: 4.25 GiB-hours for others."
    assert [r.outcome for r in screen.reclaims] == ["not free yet", "free after 2 s"]
    assert screen.totals.alarms == 1
    assert screen.waiting[0].help == "would fit on t4-1 without alice (7 GiB)"


def test_large_clusters_come_closed() -> None:
    nodes = {"nodes": [node(f"n{i}", card(T4, 0, held(f"u{i}", 1024, 1))) for i in range(13)]}
    screen = cluster_screen(reading(nodes), NOW)
    assert screen.collapsed
    assert not any(n.cards for n in screen.nodes)
    opened = node_view(reading(nodes), "n7", NOW)
    assert opened is not None
    assert opened.cards[0].segments[0].label == "1"  # too small for a name
    assert node_view(reading(nodes), "none", NOW) is None


NASTY = "<script>alert(1)</script>\"'&"


def test_nothing_from_outside_is_markup() -> None:
    nodes = {
        "nodes": [
            node(
                NASTY,
                card((NASTY, 15360), 0, held(NASTY.replace("/", ""), 7168, 1), health=NASTY),
                problem=NASTY,
            )
        ]
    }
    queue = waiting.decode(json.dumps({"waiting": [waiter(NASTY, request=NASTY)]}))
    data = reclaimed(NOW)
    data["reclaimed"][0] |= {"user": NASTY, "sentence": NASTY, "alarm": {"sentence": NASTY}}
    verdicts = read_verdicts({"verdicts": [verdict(NASTY, title=NASTY, server=NASTY)]})
    now = reading(nodes, waiting=queue, reclaims=read_reclaims(data), verdicts=verdicts)
    pages = Pages("/s/", "/")
    parts = pages.cluster(cluster_screen(now, NOW), pages.state(NASTY, 3), [], True)
    parts |= pages.mine(my_screen(Everybody(now), NASTY, NOW), "", [], NASTY)
    parts["allowances"] = pages.allowances([{"user": NASTY, "words": NASTY}])
    page = pages.page(
        "cluster.html",
        parts,
        user=NASTY,
        admin=True,
        stream="s",
        place="cluster",
        order=[],
        collapsed=False,
        allowances=parts["allowances"],
    )
    for html in [*parts.values(), page]:
        assert "<script>alert" not in html
        assert "\"'&" not in html


KEYS = ["nodes", "cards", "slices", "uid", "mib", "hold", "verdicts", "age_seconds", "at"]
KEYS += ["reclaimed", "totals", "minutes", "memory_mib", "by_reason", "today"]
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["nodes", "verdicts", "reclaimed", "minutes"]), values))
def test_whatever_others_say_there_is_a_screen(data: dict[str, Any]) -> None:
    try:
        nodes = read_nodes(data, data)
    except ValueError:
        nodes = ()
    now = Reading(
        at=NOW,
        nodes=nodes,
        verdicts=read_verdicts(data),
        reclaims=read_reclaims(data),
        given_back=read_given_back(data),
    )
    read_minutes(data)
    pages = Pages("/s/", "/")
    pages.cluster(cluster_screen(now, NOW), "", [], False)
    pages.mine(my_screen(Everybody(now), "alice", NOW), "", [], "")


def test_history_is_read() -> None:
    minutes = read_minutes(history(NOW, 10))
    assert len(minutes) == 10
    assert minutes[-1].capacity == 122832


def test_no_nodes_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="list of nodes"):
        read_nodes({}, None)
