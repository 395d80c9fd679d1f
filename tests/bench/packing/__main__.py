"""How much of the same cards each policy hands out: ``python -m tests.bench.packing --traces FOLDER``.

Prints the table of docs/benchmarks/packing.md and keeps every run in build/bench/packing.json;
``--plot FILE`` draws the picture.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from extender.scoring import POLICIES
from tests.bench.packing import traces
from tests.bench.packing.inflation import LEARNED, Run, run
from tests.bench.packing.plot import draw
from tests.bench.packing.variants import VARIANTS
from tests.bench.results import FOLDER

SEEDS = (42, 43, 44)


def main(arguments: Sequence[str] | None = None) -> int:
    choices = [*POLICIES, LEARNED]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.packing", description=__doc__)
    parser.add_argument(
        "--traces", metavar="FOLDER", help=f"default: the variable {traces.SETTING}"
    )
    parser.add_argument(
        "--trace",
        action="append",
        metavar="NAME",
        help=f"only this one; those in the folder, or made from 'default': {', '.join(VARIANTS)}",
    )
    parser.add_argument("--policy", action="append", choices=choices, help="only this one")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the picture (SVG) there")
    options = parser.parse_args(arguments)
    try:
        folder = traces.folder(options.traces)
        nodes = traces.read_nodes(folder)
        runs: list[Run] = []
        for name in options.trace or traces.names(folder):
            made = VARIANTS.get(name)
            pods = traces.read_pods(folder, "default" if made else name)
            pods = made(pods) if made else pods
            for policy in options.policy or choices:
                mine = [run(name, pods, nodes, policy, seed) for seed in options.seeds]
                runs += mine
                print(row(mine) if len(runs) > len(mine) else f"{HEAD}\n{row(mine)}", flush=True)
    except traces.TracesMissing as error:
        print(error, file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "packing.json"
    path.write_text(json.dumps([asdict(one) for one in runs], indent=1) + "\n")
    print(f"\nevery run is in {path}")
    if options.plot:
        options.plot.write_text(draw(runs))
        print(f"the picture is {options.plot}")
    return 0


HEAD = (
    "| trace | policy | @100 | @130 | 8-card pods refused | first refusal at | ms a decision |\n"
    "|---|---|---|---|---|---|---|"
)


def row(runs: Sequence[Run]) -> str:
    """One line of the table: means over the seeds."""
    one = runs[0]
    return (
        f"| {one.trace} | {one.policy} | {_mean(r.at_100 for r in runs):.2f} "
        f"| {_mean(r.at_130 for r in runs):.2f} "
        f"| {_mean(r.refused_8 for r in runs):.0f} of {_mean(r.asked_8 for r in runs):.0f} "
        f"| {_mean(r.first_refused for r in runs):.1f} | {_mean(r.ms for r in runs):.2f} |"
    )


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


if __name__ == "__main__":
    sys.exit(main())
