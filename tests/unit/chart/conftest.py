"""The chart as the real helm renders it, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from playground import binaries
from tests.unit.chart.rendering import Chart


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first of these tests on a machine waits while helm is built, which takes minutes."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def chart() -> Chart:
    """Renders the chart."""
    try:
        return Chart(binaries.path("helm"))
    except binaries.NoGo as error:
        pytest.skip(f"helm cannot be built here: {error}")
