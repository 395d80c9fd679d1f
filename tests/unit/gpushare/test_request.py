"""Parsing what pods ask for: the whole table of requests, and sentences for what is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings

from gpushare.budget import Amounts, amounts, shortage
from gpushare.names import Names
from gpushare.reasons import Code, Refusal
from gpushare.request import (
    NOTHING,
    ContainerRequest,
    Demand,
    PodRequest,
    Policy,
    Role,
    asks,
    parse_request,
)
from gpushare.units import Unit
from gpushare.wording import wish
from tests.unit.extender.objects import NAMES, container, pod
from tests.unit.gpushare.strategies import json_values, requests

GIB = 1024


def parse(**limits) -> Demand:
    (only,) = parse_request(pod("p", **limits), NAMES).containers
    return only.demand


@pytest.mark.parametrize(
    ("obj", "demand"),
    [
        (pod("p", mem=7), Demand(7 * GIB, 0)),
        (pod("p", percent=40), Demand(None, 40)),
        (pod("p", mem=7, percent=40), Demand(7 * GIB, 40)),
        (pod("p", percent=100), Demand(None, 100, 1, whole=True)),
        (pod("p", percent=300), Demand(None, 100, 3, whole=True)),
        (pod("p", mem=5, annotations={NAMES.cards: "2"}), Demand(5 * GIB, 0, 2)),
        (pod("p", percent=200, annotations={NAMES.cards: "1"}), Demand(None, 100, 2, whole=True)),
    ],
)
def test_one_container(obj, demand):
    (only,) = parse_request(obj, NAMES).containers
    assert only == ContainerRequest("main", Role.APP, demand)


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (pod("p", percent=150), "use at most 100, or 100 or 200"),
        (pod("p", mem=7, percent=100), "leave out gpushare/gpu-mem"),
        (pod("p", mem=7, percent=10, annotations={NAMES.cards: "2"}), "ask for 200 of it alone"),
        (pod("p", percent=10, annotations={NAMES.cards: "2"}), "gpushare/gpu-percent: 200"),
        (pod("p", mem=7, annotations={NAMES.cards: "two"}), "use 1 to 64"),
        (pod("p", mem=7, annotations={NAMES.cards: "0"}), "use 1 to 64"),
        (
            pod("p", mem=7, annotations={NAMES.policy: "best"}),
            "use fragmentation, binpack, spread, first-fit, fgd",
        ),
        (pod("p", mem=7, annotations={NAMES.card_model: " , "}), "name the wanted ones"),
        (pod("p", mem=10**9), "larger than any card"),
        (pod("p", percent=10000), "more than any node has"),
        (pod("p", mem="1.5"), "use a whole number such as 7"),
        (pod("p", mem=-1), "use a whole number such as 7"),
    ],
)
def test_what_can_never_be_met_is_refused_with_the_fix(obj, words):
    with pytest.raises(Refusal) as refusal:
        parse_request(obj, NAMES)
    assert refusal.value.reason.code is Code.BAD_REQUEST
    assert words in str(refusal.value)
    assert asks(obj, NAMES)


def test_roles_units_choices_and_containers_without_a_request():
    obj = pod(
        "p",
        container("main", mem=4),
        container("quiet"),
        init=[
            container("prepare", percent=30),
            container("proxy", mem=2, restartPolicy="Always"),
            container("nothing"),
        ],
        annotations={
            NAMES.card_model: "T4, A10",
            NAMES.card_uuid: "GPU-1",
            NAMES.policy: "spread",
        },
    )
    assert parse_request(obj, NAMES, Unit(512)) == PodRequest(
        (
            ContainerRequest("prepare", Role.INIT, Demand(None, 30)),
            ContainerRequest("proxy", Role.SIDECAR, Demand(1024, 0)),
            ContainerRequest("main", Role.APP, Demand(2048, 0)),
        ),
        ("T4", "A10"),
        ("GPU-1",),
        Policy.SPREAD,
    )


def test_pods_that_ask_for_nothing():
    assert parse_request(pod("p", container()), NAMES) is NOTHING
    zero = pod("p", container())
    zero["spec"]["containers"][0]["resources"]["limits"] = {NAMES.gpu_mem: "0"}
    assert not parse_request(zero, NAMES)
    assert not asks(pod("p", container()), NAMES)
    other = Names("gpu.example.org")
    assert not parse_request(pod("p", mem=7), other)


@settings(deadline=None)
@given(json_values(), json_values())
def test_garbage_is_nothing_or_a_refusal(spec, metadata):
    for obj in ({"spec": spec, "metadata": metadata}, {"spec": {"containers": [spec, metadata]}},
                {"spec": {"containers": [{"resources": {"limits": {NAMES.gpu_mem: spec}}}]},
                 "metadata": {"annotations": metadata}}):  # fmt: skip
        with suppress(Refusal):
            assert isinstance(parse_request(obj, NAMES), PodRequest)


@pytest.mark.parametrize("prefix", ["", "Upper", "a b", "-a", "x" * 300, "a/b"])
def test_a_prefix_that_kubernetes_would_refuse_is_refused(prefix):
    with pytest.raises(ValueError, match="DNS subdomain"):
        Names(prefix)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (pod("p", mem=7), "7 GiB on one card"),
        (pod("p", percent=25), "25 % of one card"),
        (pod("p", percent=200), "2 whole cards"),
        (pod("p", mem=7, percent=30), "7 GiB and 30 % of its compute on one card"),
        (pod("p", mem=7, annotations={NAMES.cards: "2"}), "7 GiB on each of 2 cards"),
        (pod("p", container("a", mem=3), container("b", mem=5)),
         "3 GiB on one card and 5 GiB on one card"),
        (pod("p", mem=7, annotations={NAMES.card_model: "T4"}), "7 GiB on one card (T4)"),
    ],
)  # fmt: skip
def test_wishes_in_words(request_, text):
    assert wish(parse_request(request_, NAMES)) == text


def test_the_kubelet_counts_the_peak_of_a_pods_life():
    obj = pod(
        "p", container("a", mem=3), container("b", percent=40),
        init=[container("i", mem=9), container("s", mem=2, restartPolicy="Always")],
    )  # fmt: skip
    request = parse_request(obj, NAMES)
    assert amounts(request) == Amounts(11, 40)
    assert amounts(parse_request(pod("p", percent=300), NAMES)) == Amounts(0, 300)
    assert shortage(Amounts(11, 40), Amounts(30, 200), Amounts(19, 160), NAMES) is None
    full = shortage(Amounts(11, 40), Amounts(30, 200), Amounts(20, 0), NAMES)
    assert full
    assert full.resolvable
    assert (
        full.sentence() == "the kubelet has 10 of gpushare/gpu-mem left to give, the pod wants 11"
    )
    away = shortage(Amounts(0, 40), Amounts(30, 0), Amounts(), NAMES)
    assert away
    assert not away.resolvable


@settings(deadline=None)
@given(requests())
def test_the_kubelet_never_counts_less_than_any_one_container(request):
    whole = amounts(request)
    for one in request.containers:
        alone = amounts(PodRequest((one,)))
        assert whole.mem >= alone.mem
        assert whole.percent >= alone.percent
