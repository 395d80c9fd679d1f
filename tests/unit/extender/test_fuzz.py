"""Whatever comes over HTTP or stands in an annotation: an answer, and nothing changes by it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.facts import FactReader
from gpushare import cards
from gpushare.units import GIB
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import running
from tests.unit.extender.objects import NAMES, a10, bound, node, pod, t4
from tests.unit.extender.test_http import post, served
from tests.unit.gpushare.strategies import json_values

VERBS = ("filter", "prioritize", "preempt", "bind")
READER = FactReader(NAMES, GIB)
KEYS = ("Pod", "Nodes", "NodeNames", "Items", "PodName", "PodNamespace", "PodUID", "Node",
        "NodeNameToVictims", "NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations",
        "metadata", "spec", "containers", "resources", "limits", NAMES.gpu_mem)  # fmt: skip


def cased(key: str) -> st.SearchStrategy[str]:
    return st.sampled_from([key, key[:1].lower() + key[1:], key.lower(), key.upper()])


# Objects made of the words of the protocol, in any nesting and casing.
words = st.sampled_from(KEYS).flatmap(cased)
bodies = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["n", "3"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=6),
    max_leaves=25,
)


async def test_any_body_gets_an_answer_of_its_verb(api: ApiDouble) -> None:
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender, served(extender.service.verbs_app) as session:
        loop = asyncio.get_running_loop()
        before = extender.service.view.ledger.snapshot()

        @settings(deadline=None)
        @given(bodies, st.sampled_from(VERBS), st.integers(0, 200))
        def check(body: Any, verb: str, cut: int) -> None:
            text = json.dumps(body).encode()
            for data in (text, text[:cut], text + b"\xff"):
                call = post(session, verb, data)
                answer = asyncio.run_coroutine_threadsafe(call, loop).result(30)
                assert isinstance(answer, list if verb == "prioritize" else dict)
                if verb == "bind":
                    assert answer["Error"]
                assert "internal error" not in json.dumps(answer)

        await asyncio.to_thread(check)
        assert extender.service.view.ledger.snapshot() == before
        assert api.bindings == []


good_cards = cards.encode(cards.NodeCards((t4("n", 0), a10("n", 1))))


@settings(deadline=None)
@given(
    st.text(max_size=40) | json_values().map(json.dumps), st.integers(0, 300), st.text(max_size=3)
)
def test_any_annotation_is_read_or_refused(text: str, at: int, more: str) -> None:
    damaged = good_cards[:at] + more + good_cards[at + 1 :]
    for value in (text, damaged):
        its = node("n", t4("n", 0))
        its["metadata"]["annotations"][NAMES.cards] = value
        fact = READER.node(its)
        assert (fact.cards is None) == bool(fact.problem)
    for key in (NAMES.placement, NAMES.policy, NAMES.cards, NAMES.card_model, NAMES.card_uuid):
        its = bound(pod("p", mem=3), "n", None)
        its["metadata"]["annotations"][key] = text
        fact_of_pod = READER.pod(its)
        assert fact_of_pod is not None
        if key == NAMES.placement and fact_of_pod.placement is None:
            assert fact_of_pod.placement_problem
        if fact_of_pod.refusal is not None:
            assert fact_of_pod.refusal.sentence()
