"""axe-core on a page: what would keep people from using it. Installed by npm into the cache."""

from __future__ import annotations

from typing import Any

import pytest

VERSION = "4.14.1"


def axe_script() -> str:
    """The script; skips the test where it is neither in the cache nor to be had."""
    from playground.hub_proxy import ensure_package
    from playground.packages import PackagesMissing
    from playground.progress import StepFailed

    try:
        return (ensure_package("axe-core", VERSION) / "axe.min.js").read_text("utf-8")
    except (PackagesMissing, StepFailed, OSError) as error:
        pytest.skip(f"axe-core is missing: {error}")


def serious_problems(page: Any, script: str, within: str) -> None:
    """Fail with all that is serious or critical inside the element ``within``."""
    page.evaluate(script)
    found = page.evaluate("where => axe.run(where, {resultTypes: ['violations']})", within)
    bad = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    told = [
        f"{v['id']}: {v['help']}\n    "
        + "\n    ".join(f"{n['target']} {n.get('failureSummary', '')}" for n in v["nodes"][:5])
        for v in bad
    ]
    assert not bad, "\n".join(told)
    assert found["passes"], f"axe found nothing to look at in {within}"
