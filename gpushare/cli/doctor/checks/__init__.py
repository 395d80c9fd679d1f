"""All checks, in the order in which one would look."""

from __future__ import annotations

from gpushare.cli.doctor.checks import cluster, hub, nodes, rights, scheduling
from gpushare.cli.doctor.finding import Check

ALL: tuple[Check, ...] = (
    *cluster.CHECKS,
    *nodes.CHECKS,
    *scheduling.CHECKS,
    *rights.CHECKS,
    *hub.CHECKS,
)
