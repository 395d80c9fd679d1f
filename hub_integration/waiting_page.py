"""The page of somebody who waits: its living part, and the same as an event of the Hub's progress."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from hub_integration.form import environment
from hub_integration.waiting import WaitingView

EVENT = "gpushare"


def render_waiting(view: WaitingView, *, actions: bool = True) -> Markup:
    """``actions``: with buttons, for a page that holds their forms."""
    template = environment().get_template("waiting.html")
    return Markup(template.render(view=view, actions=actions))  # noqa: S704 - autoescaped


def waiting_event(view: WaitingView) -> dict[str, Any]:
    """For the Hub's progress stream: our page reads ``gpushare``, all others the messages."""
    return {
        "message": view.text,
        "html_message": str(Markup.escape(view.text)),
        EVENT: {"panel": str(render_waiting(view))},
    }
