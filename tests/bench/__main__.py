"""Measure: ``python -m tests.bench [SUITE ...]``; without a suite, all of them, one after the other."""

from __future__ import annotations

import importlib
import sys

SUITES = {
    "coldstart": "tests.bench.coldstart",
    "startup": "tests.bench.startup",
    "verbs": "tests.bench.verbs",
    "throughput": "tests.bench.throughput",
    "replay": "tests.bench.replay",
    "prestart": "tests.bench.prestart",
    "node": "tests.bench.node",
    "form": "tests.bench.form",
    "hub-watchers": "tests.bench.watchers",
    "spawn": "tests.bench.spawn",
    "packing": "tests.bench.packing.__main__",
    "packing-cost": "tests.bench.packing.cost",
    "day": "tests.bench.day.__main__",
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(
            f"no suite called {', '.join(unknown)}: choose from {', '.join(SUITES)}",
            file=sys.stderr,
        )
        return 2
    for name in names or SUITES:
        print(f"== {name}")
        importlib.import_module(SUITES[name]).main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
