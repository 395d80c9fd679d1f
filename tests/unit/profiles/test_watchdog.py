"""How patiently a profile's slices are held to their size, from the catalogue to the node's rules."""

from __future__ import annotations

import pytest

from device_plugin.enforcement.burst import most_of
from device_plugin.enforcement.rules import Reach, Rules, bounds_of, for_pod
from gpushare.names import Names
from gpushare.units import GIB
from profiles.choice import Person, select
from profiles.pod import pod_parts
from profiles.reader import CatalogueError, loads

NAMES = Names()
CATALOGUE = """
version: 1
defaults: {watchdog: {grace: 60}}
profiles:
  - name: t4
    title: T4
    models: [T4]
    slices:
      - {name: usual, title: 3 GiB, memory: 3GiB}
      - name: patient
        title: 3 GiB and more
        memory: 3GiB
        burst: 6GiB
        watchdog: {reach: end, grace: 90, allowance_mib: 800, evict_after: 9}
"""


def annotations(name: str) -> dict[str, str]:
    choice = select(loads(CATALOGUE), {"profile": "t4", "slice": name}, Person("ann"))
    return dict(pod_parts(choice).annotations)


def test_the_node_reads_what_the_catalogue_says_within_its_bounds() -> None:
    bounds = bounds_of(
        Rules(), '{"reach": "end", "grace": 75, "allowanceMib": 1000, "evictAfter": 9}'
    )
    rules, problem = for_pod(Rules(), bounds, annotations("patient")[NAMES.enforcement])
    assert not problem
    assert (rules.reach, rules.grace, rules.allowance_mib) == (Reach.END, 75, 800)
    assert annotations("usual")[NAMES.enforcement] == '{"grace":60.0}'
    assert NAMES.gpu_mem_limit not in annotations("usual")
    most, problem = most_of(annotations("patient")[NAMES.gpu_mem_limit], GIB, 3072, 200)
    assert (most, problem) == (6144, "")


@pytest.mark.parametrize("wrong", ["burst: 2GiB", "watchdog: {reach: kill}"])
def test_what_cannot_be_is_named(wrong: str) -> None:
    text = CATALOGUE.replace("burst: 6GiB", wrong).replace("watchdog: {grace: 60}", wrong)
    with pytest.raises(CatalogueError, match=wrong.partition(":")[0]):
        loads(text)
