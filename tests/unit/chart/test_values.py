"""values.yaml, its schema, and what helm says to values that make no sense."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

import gpushare
from gpushare.names import DEFAULT_PREFIX, SCHEDULER_NAME
from gpushare.units import Unit
from tests.unit.chart import values_table
from tests.unit.chart.rendering import CHART, Chart, Refused

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())

# Objects of these are Kubernetes' own, or free by purpose.
OPEN = re.compile(
    r"\.(resources|nodeSelector|affinity|updateStrategy|plugins|config|podAnnotations|issuerRef|seLinuxOptions|labels)$"
)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found = SCHEMA["definitions"][reference.rsplit("/", 1)[1]]
    assert isinstance(found, dict)
    return found


def differences(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """Keys that are in one of the two alone."""
    properties = resolved(schema).get("properties", {})
    found = [f"{path}.{key}: not in the schema" for key in values.keys() - properties.keys()]
    missing = properties.keys() - values.keys() - {"global"}
    found += [f"{path}.{key}: not in values.yaml" for key in missing]
    for key in values.keys() & properties.keys():
        here = f"{path}.{key}"
        if isinstance(values[key], dict) and not OPEN.search(here):
            assert resolved(properties[key])["additionalProperties"] is False, here
            found += differences(values[key], properties[key], here)
    return found


def test_schema_and_values_name_the_same_settings() -> None:
    assert differences(VALUES, SCHEMA) == []


def test_readme_has_these_values() -> None:
    text = values_table.README.read_text()
    assert values_table.with_table(text) == text, "run python -m tests.unit.chart.values_table"


def test_defaults_are_those_of_the_code() -> None:
    assert VALUES["prefix"] == DEFAULT_PREFIX
    assert VALUES["schedulerName"] == SCHEDULER_NAME
    assert str(Unit.parse(VALUES["unit"])) == VALUES["unit"]


def test_chart_and_product_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == gpushare.__version__


def test_registry_is_asked_for_with_the_fix(chart: Chart) -> None:
    with pytest.raises(Refused, match=r"images\.registry is not set.*--set images\.registry="):
        chart.render(least=False)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"devicePlugin": {"acces": "cdi"}}, "acces"),
        ({"devicePlugin": {"access": "magic"}}, "access"),
        ({"scheduler": {"replicas": 0}}, "replicas"),
        ({"prefix": "GPU_share"}, "prefix"),
        ({"unit": "GB"}, "unit"),
        ({"images": {"registry": "registry.example.org/gpushare/"}}, "registry"),
        ({"stateApi": {"users": [{"kind": "ServiceAccount", "name": "x"}]}}, "kind"),
        ({"extender": {"config": {"extender": {}}}}, "'extender' does not match"),
        ({"admissionPolicy": {"trustedUsers": ["a' || true || 'b"]}}, "trustedUsers"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    chart: Chart, values: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Refused, match=complaint):
        chart.render(values)


def test_old_kubernetes_is_refused(chart: Chart) -> None:
    with pytest.raises(Refused, match="kubeVersion"):
        chart.render(kubernetes="1.29.9")
