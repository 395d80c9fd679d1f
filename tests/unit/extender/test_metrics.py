"""What Prometheus sees: the figures, and that alerts and dashboard ask for what is there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from extender.admission.settings import Webhook as Settings
from extender.drift import differences
from gpushare import usage
from gpushare.usage import CardUse, NodeUsage
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import Extender, running, until
from tests.unit.extender.objects import node, pod, t4

MONITORING = Path(__file__).parents[3] / "charts" / "gpushare" / "monitoring"
Labels = dict[str, set[str]]
GIB = 1 << 30


@pytest.fixture
async def extender(api: ApiDouble) -> AsyncIterator[Extender]:
    """One with something of everything: slices, usage, a verb, the webhook, a silent node."""
    api.put("nodes", node("n", t4("n", 0), t4("n", 1, taken=1024, health="XID 79")))
    async with running(api) as extender:
        extender.service.webhook(Settings())
        held = api.put("pods", pod("p", mem=3))
        assert await extender.bind(held, "n") == ""
        told = NodeUsage("n", 1.0, "watchdog", (CardUse("GPU-n-0", 15360, 2048),))
        extender.service.usage.heard("n", usage.encode(told).encode())
        extender.service.metrics.verb("filter").observe(0.001)
        await extender.caught_up()
        yield extender


async def exported(extender: Extender) -> tuple[dict[tuple[str, ...], float], Labels]:
    """Samples by name and label values (in the order of the labels), and the labels of each name."""
    samples: dict[tuple[str, ...], float] = {}
    labels: Labels = {}
    for family in text_string_to_metric_families((await extender.service.metrics.text()).decode()):
        for sample in family.samples:
            samples[sample.name, *sample.labels.values()] = sample.value
            labels.setdefault(sample.name, set()).update(sample.labels)
    return samples, labels


async def test_cards_are_told_in_bytes(extender: Extender):
    samples, labels = await exported(extender)
    assert labels["gpushare_card_free_bytes"] == {"node", "card", "model"}
    card = ("0", "T4", "n")
    assert samples["gpushare_card_memory_bytes", *card] == 15 * GIB
    assert samples["gpushare_card_allocated_bytes", *card] == 3 * GIB
    assert samples["gpushare_card_free_bytes", *card] == 12 * GIB
    assert samples["gpushare_card_used_bytes", *card] == 2 * GIB
    assert samples["gpushare_card_reserved_bytes", *card] == 0
    assert samples["gpushare_card_taken_bytes", "1", "T4", "n"] == GIB
    assert samples["gpushare_card_healthy", "1", "T4", "n"] == 0
    assert samples["gpushare_card_free_bytes", "1", "T4", "n"] == 0
    assert ("gpushare_card_used_bytes", "1", "T4", "n") not in samples
    assert samples["gpushare_binds_total", "bound"] == 1
    assert samples["gpushare_ledger_drift_slices", "all"] == 0


async def test_units_are_in_the_names(extender: Extender):
    ends = (
        "_bytes", "_percent", "_seconds", "_slices", "_cards", "_pods", "_nodes", "_total",
        "_created", "_bucket", "_count", "_sum", "_healthy",
    )  # fmt: skip
    _, labels = await exported(extender)
    assert [name for name in labels if not name.endswith(ends)] == []


# -- drift ---------------------------------------------------------------------------------------


async def test_a_right_ledger_does_not_drift_and_a_wrong_one_does(extender: Extender):
    view = extender.service.view
    assert not list(differences(view, "n"))
    (uid,) = view.ledger.slices
    account = view.ledger.nodes["n"].accounts["GPU-n-0"]
    account.used_mib += 1
    assert "are not those of its slices" in " ".join(differences(view, "n"))
    account.used_mib -= 1
    view.ledger.release(uid)
    assert "holds nothing" in " ".join(differences(view, "n"))


async def test_drift_is_counted(extender: Extender, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("extender.drift._EVERY", 0.0)
    drift = extender.service.drift
    task = asyncio.create_task(drift.run())
    await until(lambda: drift.looks > 1, "it looked")
    assert drift.found == 0
    view = extender.service.view
    view.ledger.release(next(iter(view.ledger.slices)))
    await until(lambda: drift.found == 1, "the missing slice is found")
    task.cancel()
    samples, _ = await exported(extender)
    assert samples["gpushare_ledger_drift_slices", "all"] == 1


# -- what asks for them --------------------------------------------------------------------------


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for group in yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule


def queries() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of every alert and every panel."""
    for name, rule in rules():
        yield name, rule["expr"]
    board = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", str(variable["query"]))
        if match:
            yield f"${variable['name']}", f"max by ({match[2]}) ({match[1]})"


_SELECTOR = re.compile(r"\b(gpushare_\w+)\s*(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


async def test_every_query_asks_for_what_is_exported(extender: Extender):
    _, labels = await exported(extender)
    asked = list(queries())
    assert len(asked) > 30
    for where, query in asked:
        found = _SELECTOR.findall(query)
        assert found, f"{where}: {query} asks for none of our metrics"
        known: set[str] = set()
        for name, matchers in found:
            assert name in labels, f"{where}: there is no {name}"
            known |= labels[name]
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
                assert label in labels[name], f"{where}: {name} has no label {label}"
        for group in _GROUPING.findall(query):
            names = {name.strip() for name in group.split(",")}
            assert names <= known, f"{where}: {names - known} is no label of {found}"


async def test_sentences_name_labels_that_their_query_has(extender: Extender):
    board = json.loads((MONITORING / "dashboard.json").read_text())
    told = [
        (target["expr"], target["legendFormat"])
        for panel in board["panels"]
        for target in panel["targets"]
    ]
    for _, rule in rules():
        text = " ".join(rule["annotations"].values())
        told.append((rule["expr"], text.replace("{{ $value }}", "")))
    for expr, text in told:
        kept = {name.strip() for group in _GROUPING.findall(expr) for name in group.split(",")}
        used = set(_LEGEND.findall(text)) - {"value"}
        assert used <= kept, f"{text!r} names {used - kept}, which {expr!r} does not keep"


def test_a_query_for_something_else_would_be_found():
    """The test above can fail."""
    found = _SELECTOR.findall('sum by (node) (gpushare_card_x{node=~"$n", y!="1"}) / gpushare_z')
    assert found == [("gpushare_card_x", 'node=~"$n", y!="1"'), ("gpushare_z", "")]


def test_panels_do_not_overlap():
    board = json.loads((MONITORING / "dashboard.json").read_text())
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        own = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not own & cells, panel["title"]
        assert max(x for x, _ in own) < 24
        cells |= own
