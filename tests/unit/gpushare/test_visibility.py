"""The cards of a container in its environment, for runtimes without CDI."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.request import Role
from gpushare.visibility import visible_annotations, visible_variable

# What the API server accepts as an annotation's key, and container names.
QUALIFIED = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(LABELS)
def test_the_variable_reads_what_the_binding_carries(name: str) -> None:
    names = Names("gpu.example.org")
    placed = ContainerPlacement(name, Role.APP, (Share("GPU-b", 1, 0), Share("GPU-a", 1, 0)))
    ((key, value),) = visible_annotations(Placement("uid", "node", (placed,)), names).items()
    assert QUALIFIED.fullmatch(key)
    assert value == "GPU-b,GPU-a"
    path = visible_variable(names, name)["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == f"metadata.annotations['{key}']"
