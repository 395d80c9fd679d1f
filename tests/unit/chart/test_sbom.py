"""What an image says that it is made of."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.chart.rendering import ROOT

SCRIPT = ROOT / "images" / "sbom.py"


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_lists_what_the_interpreter_has(tmp_path: Path) -> None:
    file = tmp_path / "share" / "sbom.json"
    for _ in range(2):
        subprocess.run(
            [sys.executable, str(SCRIPT), str(file), "extender", "1.2.3"],
            check=True, capture_output=True, cwd=tmp_path,
        )  # fmt: skip
    bill = json.loads(file.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"] == {
        "type": "container",
        "name": "extender",
        "version": "1.2.3",
    }
    purls = [one["purl"] for one in bill["components"]]
    assert purls == sorted(set(purls)), "each once, in order"
    assert f"pkg:pypi/click@{metadata.version('click')}" in purls


def test_debian_packages_that_are_installed(sbom: ModuleType, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9+deb12u4\n"
        "Description: GNU C Library\n Version: of a line that goes on\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"
    )
    (found,) = sbom.packages(status)
    assert found["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u4?arch=amd64"
    assert list(sbom.packages(tmp_path / "none")) == []


def test_licences_as_far_as_they_are_told(sbom: ModuleType) -> None:
    told = {one["name"]: one.get("licenses") for one in sbom.distributions()}
    assert told["click"] == [{"expression": "BSD-3-Clause"}]


@pytest.mark.parametrize("name", ["extender", "device-plugin", "hub"])
def test_every_image_is_labelled_and_has_its_bill(name: str) -> None:
    text = (ROOT / "images" / f"{name}.Containerfile").read_text()
    for label in ("title", "description", "version", "licenses"):
        assert f"org.opencontainers.image.{label}=" in text
    assert f"sbom.cdx.json {name} " in text
    assert "USER" in text
