"""The budget: a look each second at eight cards and 110 pods costs at most 1 % of a core."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from playground.nvml import CompilerError, library


def test_eight_cards_and_110_pods_cost_less_than_a_hundredth_of_a_core() -> None:
    try:
        library(lambda _: None)
    except CompilerError as error:
        pytest.skip(str(error))
    # A process of its own: the library is loaded once, and nothing else may use CPU time in it.
    command = [sys.executable, "-m", "tests.unit.enforcement.cost", "110"]
    cost = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # A look each second; boards of all pods each 10 s and who computes each 5 s at the most.
    per_second = cost["cpu_ms_per_look"] + cost["cpu_ms_of_a_full_look"] / 5
    assert per_second <= 10.0, cost
