"""Alibaba's openb traces of GPU-sharing pods, read from a folder that is never part of the tree.

Node columns: sn, cpu_milli, memory_mib, gpu, model. Pod columns: name, cpu_milli, memory_mib, num_gpu,
gpu_milli (per card), gpu_spec ("A|B": the models that will do). A card is 1000 milli; the trace does not
know card memory, so a thousandth of a card stands for a MiB here.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from extender.scoring import Ask, NodeTable

SETTING = "GPUSHARE_TRACES"
CARD = 1000
NODES = "openb_node_list_gpu_node.csv"
_PODS = "openb_pod_list_"


class TracesMissing(Exception):
    """The folder of traces is not set, or not there, or lacks a file."""


@dataclass(frozen=True)
class Node:
    cpu: int
    memory: int
    cards: int
    model: str


@dataclass(frozen=True)
class Pod:
    """``ask`` as the policies see it; ``memory`` is the host's, in MiB, which only the filter sees."""

    ask: Ask
    memory: int

    @property
    def milli(self) -> int:
        """What it takes of all its cards together."""
        return self.ask.cards * (CARD if self.ask.whole else self.ask.mib or 0)


def folder(given: str | None) -> Path:
    """The folder of traces, from the option or the environment."""
    text = given or os.environ.get(SETTING, "")
    path = Path(text)
    if not text or not (path / NODES).is_file():
        raise TracesMissing(
            f"no traces in {text or 'any folder'}: give --traces FOLDER or {SETTING}, a folder with "
            f"{NODES} and {_PODS}*.csv (or .csv.gz). They are the openb files of Alibaba's cluster "
            "trace GPU v2023, published with Weng et al., 'Beware of Fragmentation', USENIX ATC 2023."
        )
    return path


def names(path: Path) -> list[str]:
    """The traces in the folder, default first."""
    found = {p.name.removeprefix(_PODS).split(".")[0] for p in path.glob(f"{_PODS}*.csv*")}
    return sorted(found, key=lambda name: (name != "default", name))


def read_nodes(path: Path) -> list[Node]:
    return [
        Node(int(r["cpu_milli"]), int(r["memory_mib"]), int(r["gpu"]), r["model"])
        for r in _rows(path / NODES)
    ]


def read_pods(path: Path, name: str) -> list[Pod]:
    """The pods of a trace, by name."""
    for suffix in (".csv.gz", ".csv"):
        file = path / f"{_PODS}{name}{suffix}"
        if file.is_file():
            rows = sorted(_rows(file), key=lambda row: row["name"])
            return [_pod(row) for row in rows]
    raise TracesMissing(f"no trace {name!r} in {path}: there are {', '.join(names(path))}")


def _pod(row: Mapping[str, str]) -> Pod:
    cards, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    whole = cards > 0 and milli >= CARD
    ask = Ask(
        cards=cards,
        mib=milli if cards and not whole else None,
        percent=100 if whole else 0,
        whole=whole,
        cpu=int(row["cpu_milli"]),
        models=tuple(row["gpu_spec"].split("|")) if cards and row["gpu_spec"] else (),
    )
    return Pod(ask, int(row["memory_mib"]))


def _rows(file: Path) -> list[dict[str, str]]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return list(csv.DictReader(lines))


def popularity(pods: list[Pod]) -> Counter[Ask]:
    """How often each kind of pod is asked for."""
    return Counter(pod.ask for pod in pods)


def table_of(nodes: list[Node]) -> NodeTable:
    """The empty cluster, a row per node in the given order."""
    table = NodeTable(len(nodes), max(node.cards for node in nodes))
    for row, node in enumerate(nodes):
        n = node.cards
        table.set(
            row,
            memory=[CARD] * n,
            free=[CARD] * n,
            percent=[100] * n,
            empty=[True] * n,
            usable=[True] * n,
            models=[node.model] * n,
            cpu=node.cpu,
        )
    return table


def arrivals(
    pods: list[Pod], nodes: list[Node], seed: int, upto: float
) -> tuple[list[int], list[int]]:
    """Indexes of the pods as they arrive, and of the nodes in their order.

    All pods, shuffled; then draws with replacement until ``upto`` times the cards have been asked for.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(pods)).tolist()
    wanted = sum(pod.milli for pod in pods)
    cards = sum(node.cards for node in nodes) * CARD
    while wanted < upto * cards:
        i = int(rng.integers(len(pods)))
        order.append(i)
        wanted += pods[i].milli
    rank = rng.permutation(len(nodes))
    return order, np.argsort(rank).tolist()
