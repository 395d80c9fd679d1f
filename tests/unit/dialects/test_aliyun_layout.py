"""The table of that system's tool, against what the tool itself printed for the same state."""

from __future__ import annotations

from typing import Any

from gpushare.cli.aliyun_layout import aligned, details, overview

GIB = 1024


def card(index: int, *slices: tuple[str, int]) -> dict[str, Any]:
    return {
        "index": index,
        "memory_mib": 15360,
        "slices": [
            {"pod": pod, "namespace": "default", "mib": units * GIB} for pod, units in slices
        ],
    }


A = {
    "name": "gpu-node-a",
    "address": "192.168.0.71",
    "cards": [card(0, ("jupyter-alice", 6)), card(1, ("jupyter-bob", 3))],
}
B = {"name": "gpu-node-b", "address": "192.168.0.70", "cards": [card(0, ("jupyter-carol", 4))]}

OVERVIEW = """\
NAME        IPADDRESS     GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)
gpu-node-a  192.168.0.71  6/15                   3/15                   9/30
gpu-node-b  192.168.0.70  4/15                   0/0                    4/15
-----------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
13/45 (28%)  
"""  # noqa: W291
DETAILS = """\

NAME:       gpu-node-a
IPADDRESS:  192.168.0.71

NAME           NAMESPACE  GPU0(Allocated)  GPU1(Allocated)  
jupyter-alice  default    6                0                
jupyter-bob    default    0                3                
Allocated :    9 (30%)    
Total :        30         
--------------------------------------------------------------


Allocated/Total GPU Memory In Cluster:  9/30 (30%)  
"""  # noqa: W291


def test_overview() -> None:
    assert overview([A, B], GIB) == OVERVIEW


def test_details() -> None:
    assert details([A], GIB) == DETAILS


def test_nothing_there() -> None:
    assert overview([], GIB).endswith("0/0 (0%)  \n")
    assert details([], GIB).endswith("0/0 (0%)  \n")


def test_an_address_that_is_not_known() -> None:
    assert "unknown" in overview([{**A, "address": ""}], GIB)


def test_a_part_of_a_unit_counts_as_one() -> None:
    half = {
        **B,
        "cards": [{**card(0), "slices": [{"pod": "p", "namespace": "n", "mib": 7680 + 1}]}],
    }
    assert "8/15" in overview([half], GIB)


def test_columns_end_where_a_line_does_not_have_them() -> None:
    assert aligned("a\tb\tc\nlong cell\tx\ny\nz\tz\n") == (
        "a          b  c\nlong cell  x\ny\nz  z\n"
    )
