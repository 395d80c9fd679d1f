"""What each constant of our policy is worth: ``python -m tests.bench.packing.sensitivity --traces FOLDER``.

Each constant of ``extender.scoring.fragmentation`` at half and at twice its value, and as good as off.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from extender.scoring import fragmentation
from tests.bench.packing import traces
from tests.bench.packing.inflation import run

# Small enough to be without effect; a step of 0 would divide by it.
_OFF = {"STEP": 1e-3}
CONSTANTS = ("RARE", "CROWD", "STARVED", "SCARCE", "FILL", "STEP")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.packing.sensitivity")
    parser.add_argument("--traces", metavar="FOLDER")
    parser.add_argument("--trace", action="append", metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=(45,))
    options = parser.parse_args(arguments)
    try:
        folder = traces.folder(options.traces)
        nodes = traces.read_nodes(folder)
        names = options.trace or traces.names(folder)
        pods = {name: traces.read_pods(folder, name) for name in names}
    except traces.TracesMissing as error:
        print(error, file=sys.stderr)
        return 2

    def line(label: str) -> None:
        cells = []
        for name in names:
            runs = [run(name, pods[name], nodes, "fragmentation", s) for s in options.seeds]
            at = statistics.fmean(r.at_100 for r in runs)
            first = statistics.fmean(r.first_refused for r in runs)
            cells.append(f"{at:.2f} ({first:.0f})")
        print(f"| {label} | {' | '.join(cells)} |", flush=True)

    print(f"| constant | {' | '.join(names)} |")
    print("|---" * (1 + len(names)) + "|")
    line("as they are")
    for constant in CONSTANTS:
        value = getattr(fragmentation, constant)
        for label, other in (
            ("off", _OFF.get(constant, 0.0)),
            ("half", value / 2),
            ("twice", 2 * value),
        ):
            setattr(fragmentation, constant, other)
            line(f"{constant} {label}")
        setattr(fragmentation, constant, value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
