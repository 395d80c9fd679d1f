from __future__ import annotations

from tests.unit.extender.conftest import api  # noqa: F401
