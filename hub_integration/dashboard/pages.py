"""Screens as HTML. Each part has an id, so that an open page gets only the parts that changed.

Everything from outside is escaped by Jinja. Parts are the same for all admins: what differs (the
token against forged requests) is filled in when they are sent, in place of a mark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from hub_integration.dashboard.plots import HEIGHT, WIDTH, Plot
from hub_integration.dashboard.view import ClusterScreen, MyScreen, NodeView

HERE = Path(__file__).parent
STATIC = HERE / "static"

Parts = dict[str, str]


class Pages:
    """Templates, and the addresses that they need."""

    def __init__(self, prefix: str, hub_base: str) -> None:
        self.environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.globals |= {
            "prefix": prefix,
            "hub_base": hub_base,
            "plot_width": WIDTH,
            "plot_height": HEIGHT,
            "clock": _clock,
        }
        self.environment.filters["width"] = lambda value: f"{value:.2f}"

    def page(self, name: str, parts: Mapping[str, str], **more: Any) -> str:
        """A whole page around its parts."""
        return self.environment.get_template(name).render(parts=parts, **more)

    def mine(
        self,
        screen: MyScreen,
        state: str,
        hours: Sequence[Any],
        allowance: str,
    ) -> Parts:
        """The parts of a user's page."""
        values = {"screen": screen, "hours": hours, "allowance": allowance}
        return {
            "state": state,
            "servers": self._part("servers.html", values),
            "models": self._part("models.html", values),
            "hours": self._part("hours.html", values),
        }

    def cluster(
        self,
        screen: ClusterScreen,
        state: str,
        plots: Sequence[Plot],
        can_cordon: bool,
    ) -> Parts:
        """The parts of the admins' page; each node is one."""
        values = {"screen": screen, "plots": plots, "can_cordon": can_cordon}
        parts = {
            "state": state,
            "totals": self._part("totals.html", values),
            "line": self._part("line.html", values),
            "reclaims": self._part("reclaims.html", values),
            "plots": self._part("plots.html", values),
        }
        template = self.environment.get_template("node.html")
        for node in screen.nodes:
            parts[node.id] = template.render(node=node, can_cordon=can_cordon)
        return parts

    def node(self, node: NodeView, can_cordon: bool) -> str:
        """The cards of one node that was opened."""
        values = {"node": node, "can_cordon": can_cordon}
        return self.environment.get_template("cards.html").render(values)

    def allowances(self, accounts: Sequence[Mapping[str, Any]]) -> str:
        """The table of quotas, with a form for each account."""
        return self._part("allowances.html", {"accounts": accounts})

    def state(self, problem: str, age: float) -> str:
        """The line that says how old the page's numbers are."""
        return self._part("state.html", {"problem": problem, "age": age})

    def _part(self, name: str, values: Mapping[str, Any]) -> str:
        return self.environment.get_template(name).render(values)


def patch(parts: Mapping[str, str]) -> bytes:
    """A message of the stream: parts by id."""
    return b"event: parts\ndata: " + json.dumps(parts).encode() + b"\n\n"


def _clock(seconds: float | None) -> str:
    """RFC 3339, which the page's script turns into the reader's own time."""
    if seconds is None:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
