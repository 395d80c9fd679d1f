"""Writes what an image is made of, as CycloneDX 1.6: Python distributions and Debian packages.

    PYTHON sbom.py FILE NAME VERSION

PYTHON is the interpreter whose distributions are meant. Runs while an image is built. The same
packages make the same file: it has no date and no random number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

DPKG = Path("/var/lib/dpkg/status")


def bill(name: str, version: str, components: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The document."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": sorted(components, key=lambda one: one["purl"]),
    }


def distributions() -> Iterator[dict[str, Any]]:
    """What this interpreter has installed."""
    seen = set()
    for found in metadata.distributions():
        name, version = found.metadata["Name"].lower().replace("_", "-"), found.version
        if name in seen:
            continue
        seen.add(name)
        one = {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{quote(version)}",
        }
        if licence := _licence(found.metadata):
            one["licenses"] = [licence]
        yield one


def _licence(about: Any) -> dict[str, Any] | None:
    if expression := about.get("License-Expression"):
        return {"expression": expression}
    named = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier", []) if "License ::" in c]
    text = named[0] if named else (about.get("License") or "").strip().partition("\n")[0]
    return {"license": {"name": text[:100]}} if text else None


def packages(status: Path = DPKG) -> Iterator[dict[str, Any]]:
    """Debian packages, where there are any."""
    if not status.is_file():
        return
    for paragraph in status.read_text("utf-8").split("\n\n"):
        fields = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if ": " in line and line[0] != " "
        )
        if "installed" not in fields.get("Status", "").split():
            continue
        name, version = fields["Package"], fields["Version"]
        yield {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{name}@{quote(version)}?arch={fields.get('Architecture', 'all')}",
        }


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    document = bill(sys.argv[2], sys.argv[3], [*distributions(), *packages()])
    file.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{file}: {len(document['components'])} components")
