"""How long a container's start waits for us, with 110 pods on the node."""

from __future__ import annotations

from tests.bench.node import prestart as main

__all__ = ["main"]
