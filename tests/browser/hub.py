"""A real JupyterHub for the browser, on a cluster and an extender that a test can move as it likes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from hub_integration.quota.ledger import Holding, Ledger
from tests.unit.hub_integration.hub import Hub
from tests.unit.hub_integration.state import A10, T4, FakeExtender, answer, card, line, waiting_pod

GIB = 1024
NAMESPACE = "default"
CATALOGUE = """
version: 1
defaults: {idle_minutes: 30, warn_minutes: 5}
profiles:
  - name: t4
    title: NVIDIA T4
    text: good for classes and inference
    models: [T4]
    default: true
    slices:
      - {name: 3g, title: 3 GiB, text: "small notebooks, PyTorch basics", memory: 3GiB}
      - {name: 7g, title: 7 GiB, text: "fine-tuning small models", memory: 7GiB, default: true}
      - {name: whole, title: whole card, text: "15 GiB, nobody else on it", percent: 100}
    custom: {text: "as much as you need", largest: 14GiB}
  - name: a10
    title: NVIDIA A10
    text: faster, larger models
    models: [A10]
    slices:
      - {name: 5g, title: 5 GiB, text: "inference with small models", memory: 5GiB}
      - {name: 11g, title: 11 GiB, text: "fine-tuning, diffusion models", memory: 11GiB, default: true}
      - {name: whole, title: whole card, text: "22.5 GiB, nobody else on it", percent: 100}
  - name: cpu
    title: No GPU
    text: editing, data preparation, plots
"""


def cards(t4: tuple[int, int], a10: tuple[int, int, int, int] = (0, 0, 0, 0)) -> dict[str, Any]:
    """Two T4 and four A10, with so many GiB of each in use."""
    return answer(
        **{
            "t4-1": [card(T4, used_mib=gib * GIB) for gib in t4],
            "a10-1": [card(A10, used_mib=gib * GIB) for gib in a10],
        }
    )


def queue(*users: str, **more: Any) -> dict[str, Any]:
    """These users wait for 7 GiB on a T4, in this order."""
    pods = [
        waiting_pod(
            f"jupyter-{user}", namespace=NAMESPACE, user=user, place=i + 1, of=len(users), **more
        )
        for i, user in enumerate(users)
    ]
    return line(*pods)


def waiting_counts(body: dict[str, Any], number: int) -> dict[str, Any]:
    return {**body, "totals": {"waiting": number}}


def write_past(folder: Path, user: str) -> None:
    """A ledger in which slices of T4 came back every eight minutes, and ``user`` has used some."""
    ledger, now = Ledger(f"sqlite:///{folder}/ledger.sqlite"), time.time()
    t4 = Holding("", "GPU-1", "x", NAMESPACE, "gone", "t4-1", "Tesla T4", 8 * GIB, 0)
    pods = [replace(t4, uid=f"gone-{i}") for i in range(10)]
    used = replace(t4, uid="used", user=user, mib=30 * GIB)
    ledger.look([*pods, used], now - 2 * 3600)
    ledger.look([*pods, used], now - 1.5 * 3600)
    for i in range(10):
        ledger.look(pods[i:], now - 480 * (10 - i))
    ledger.look([], now - 1)
    ledger.close()


def start_hub(folder: Path, extender: FakeExtender, **settings: Any) -> Hub:
    (folder / "catalogue.yaml").write_text(CATALOGUE)
    given = {
        "catalogue_file": str(folder / "catalogue.yaml"),
        "extender_url": extender.url,
        "extender_token_file": "",
        "culler_runs": True,
        **settings,
    }
    return Hub(folder, "pending", given, start_timeout=600, slow_spawn_timeout=0)


def log_in(page: Any, hub: Hub, user: str, then: str = "spawn") -> Any:
    """As somebody does: the login page, and then the page that is wanted."""
    page.goto(f"{hub.url}/login?next=/hub/{then}")
    page.fill("#username_input", user)
    page.fill("#password_input", "pass")
    page.click("#login_submit")
    page.wait_for_url(f"**/hub/{then}**")
    return page
