"""Small clusters and asks for the tests, made by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from extender.scoring import Ask, NodeTable, Target
from gpushare.assignment import CardState
from gpushare.cards import Card

MODELS = {"NVIDIA T4": 15, "NVIDIA A10": 22}


@dataclass
class Node:
    """One node as plain values, the table's double."""

    model: str
    cpu: int
    free: list[int]
    percent: list[int]
    empty: list[bool]
    healthy: list[bool]

    def states(self) -> list[CardState]:
        memory = MODELS[self.model]
        return [
            CardState(
                Card(f"card-{i}", i, i, self.model, memory, "ok" if healthy else "lost"),
                free,
                percent,
                empty,
            )
            for i, (free, percent, empty, healthy) in enumerate(
                zip(self.free, self.percent, self.empty, self.healthy, strict=True)
            )
        ]

    def put(self, table: NodeTable, row: int) -> None:
        table.put(row, self.states(), self.cpu)


@dataclass
class Cluster:
    nodes: list[Node] = field(default_factory=list)

    def table(self) -> NodeTable:
        table = NodeTable(1, 1)
        for row, node in enumerate(self.nodes):
            node.put(table, row)
        return table


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    model = draw(st.sampled_from(sorted(MODELS)))
    node = Node(model, draw(st.integers(0, 32)) * 1000, [], [], [], [])
    for _ in range(draw(st.integers(0, 4))):
        empty = draw(st.booleans())
        node.empty.append(empty)
        node.free.append(MODELS[model] if empty else draw(st.integers(0, MODELS[model])))
        node.percent.append(100 if empty else draw(st.integers(0, 100)))
        node.healthy.append(draw(st.booleans()) or draw(st.booleans()))
    return node


clusters = st.lists(nodes(), min_size=1, max_size=8).map(Cluster)

_models = st.sampled_from([(), ("T4",), ("A10",), ("A10", "T4")])
shares = st.builds(
    Ask,
    mib=st.none() | st.integers(1, 22),
    percent=st.integers(1, 99),
    cpu=st.integers(0, 9).map(lambda n: n * 1000),
    models=_models,
) | st.builds(Ask, mib=st.integers(1, 22), models=_models)
several = st.builds(Ask, cards=st.integers(2, 4), mib=st.integers(1, 22), models=_models)
wholes = st.builds(
    lambda cards, cpu, models: Ask(cards, percent=100, whole=True, cpu=cpu, models=models),
    st.integers(1, 4),
    st.sampled_from([0, 4000, 12000]),
    _models,
)
with_cards = shares | several | wholes
without_cards = st.builds(Ask, cards=st.just(0), cpu=st.integers(1, 40).map(lambda n: n * 1000))
asks = with_cards | without_cards
targets = st.dictionaries(with_cards, st.integers(1, 50), max_size=6).map(Target.of)
