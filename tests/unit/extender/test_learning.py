"""What was learned of the workload outlives a restart and reaches the other replica."""

from __future__ import annotations

import json

import pytest

from extender.app import CannotStart
from extender.app import Extender as Application
from extender.learning import prior
from extender.scoring import Ask, Workload
from extender.service import Learning
from gpushare.units import GIB
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import running
from tests.unit.extender.objects import NAMES, node, pod, t4

WHERE = "gpushare/gpushare-workload"
SEVEN = Ask(mib=7168)


def learning() -> Learning:
    return Learning(Workload(prior={Ask(mib=1024): 1.0}), WHERE)


async def test_counts_are_written_and_read_by_the_next(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api, learning=learning()) as extender:
        await extender.service.learned.keep()
        assert api.configmaps == {}
        extender.filter(api.put("pods", pod("p", mem=7)), "n")
        await extender.service.learned.finish()
    text = api.configmaps["gpushare-workload"]["data"]["counts"]
    assert json.loads(text)["v"] == 1
    async with running(api, learning=learning()) as after:
        await after.service.learned.keep()
        ranking = after.service.ranking
        assert ranking.workload.weights()[SEVEN] == pytest.approx(1, abs=0.01)
        assert SEVEN in ranking._target.asks
        # Read, not written: this one has counted nothing.
        assert api.configmaps["gpushare-workload"]["data"]["counts"] == text
        after.filter(api.put("pods", pod("q", mem=7)), "n")
        await after.service.learned.keep()
        counts = json.loads(api.configmaps["gpushare-workload"]["data"]["counts"])["counts"]
        assert next(row[-1] for row in counts if row[1] == 7168) == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v":1}', '{"v":1,"at":1,"counts":[[1]]}'])
async def test_a_spoilt_map_is_left_alone_until_there_is_something_to_write(
    api: ApiDouble, text: str, caplog: pytest.LogCaptureFixture
):
    api.put("nodes", node("n", t4("n", 0)))
    api.configmaps["gpushare-workload"] = {"data": {"counts": text}}
    async with running(api, learning=learning()) as extender:
        await extender.service.learned.keep()
        await extender.service.learned.keep()
        assert caplog.text.count("gpushare-workload") == 1
        assert extender.service.ranking.workload.weights() == {Ask(mib=1024): 1.0}
        extender.filter(api.put("pods", pod("p", mem=7)), "n")
        await extender.service.learned.keep()
        assert json.loads(api.configmaps["gpushare-workload"]["data"]["counts"])["v"] == 1


async def test_without_the_right_to_keep_it_scheduling_goes_on(
    api: ApiDouble, caplog: pytest.LogCaptureFixture
):
    api.put("nodes", node("n", t4("n", 0)))
    api.faults = lambda _method, path: 403 if "configmaps" in path else ""
    async with running(api, learning=learning()) as extender:
        its = api.put("pods", pod("p", mem=7))
        extender.filter(its, "n")
        await extender.service.learned.keep()
        assert await extender.bind(its, "n") == ""
    assert "a fault; scores go on with what is known" in caplog.text


def test_the_prior_is_written_like_limits():
    kinds = [
        {"mem": 7, "models": ["T4"], "cpu": "2", "weight": 3},
        {"percent": 200},
        {"mem": 3, "cards": 2},
    ]
    found = prior(kinds, NAMES, GIB)
    assert set(found) == {
        Ask(mib=7168, cpu=2000, models=("T4",)),
        Ask(cards=2, percent=100, whole=True),
        Ask(cards=2, mib=3072),
    }
    assert sum(found.values()) == 12
    assert found[Ask(mib=7168, cpu=2000, models=("T4",))] == pytest.approx(12 * 3 / 5)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("mem", "use an object"),
        ({"mem": 7, "size": 1}, "use an object"),
        ({}, "mem or percent is needed"),
        ({"percent": 150}, "use at most 100"),
        ({"mem": 7, "weight": 0}, "weight 0"),
        ({"mem": 7, "models": "T4"}, "models"),
        ({"mem": 7, "cpu": "much"}, "'much'"),
    ],
)
def test_a_prior_that_is_none_is_refused_by_its_entry(kind: object, words: str):
    app = Application(workload_prior=[{"mem": 1}, kind])
    with pytest.raises(CannotStart, match=r"workload_prior: entry 2: ") as refused:
        app.learning()
    assert words in str(refused.value)
    assert app.learning is not None


def test_the_usual_prior_is_one():
    assert len(Application().learning().workload.target(0.0).asks) == 3
