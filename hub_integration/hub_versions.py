"""All that differs between the JupyterHub versions that we run on, 5.5 and 6.

JupyterHub ends itself after ``consecutive_failure_limit`` failed spawns (5 in zero-to-jupyterhub).
Since 6.0, a ``SpawnException`` is a refusal and no failure. Before, everything that ends a spawn
counts, so a user who asks five times for what is not there would end the Hub for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from tornado.web import HTTPError

try:
    from jupyterhub.spawner import SpawnException as _Base

    REFUSALS_COUNT = False
except ImportError:  # JupyterHub 5
    _Base = HTTPError
    REFUSALS_COUNT = True


class Why(StrEnum):
    """The kind of a refusal. The values are labels of metrics."""

    INVALID = "gpu-invalid"
    CAPACITY = "gpu-capacity"
    QUOTA = "gpu-quota"
    ADMISSION = "gpu-admission"
    TIMEOUT = "gpu-timeout"
    CATALOGUE = "gpu-catalogue"


_STATUS = {
    Why.INVALID: 400,
    Why.CAPACITY: 409,
    Why.QUOTA: 403,
    Why.ADMISSION: 403,
    Why.TIMEOUT: 409,
    Why.CATALOGUE: 409,
}


class SpawnRefused(_Base):
    """A server is not started, for a reason that is no failure of the Hub.

    ``text`` is plain text for the user. The Hub's pages read ``jupyterhub_message``, which
    ``SpawnException`` itself does not set (6.1), and its API reads the exception's own message.
    """

    def __init__(self, why: Why, text: str) -> None:
        if REFUSALS_COUNT:
            super().__init__(_STATUS[why], text)
        else:
            super().__init__(text, reason=why.value, status_code=_STATUS[why])
        self.why = why
        self.jupyterhub_message = text
        # What tornado fills its log message with: nothing, so that a '%' in the text is safe.
        self.args = ()

    def __str__(self) -> str:
        return str(self.jupyterhub_message)


def do_not_count(spawner: Any) -> None:
    """Take the refusal that ``spawner`` is about to raise out of the Hub's count of failures.

    To be called from within a spawn. On JupyterHub 6 there is nothing to do. On 5, the Hub's
    counter runs when the spawn's future is done; it reads the limit from the spawner, and then
    ours, added later, takes back what it added.
    """
    future, handler = getattr(spawner, "_spawn_future", None), getattr(spawner, "handler", None)
    if not REFUSALS_COUNT or future is None or future.done() or handler is None:
        return
    counts = handler.settings
    limit = spawner.consecutive_failure_limit
    spawner.consecutive_failure_limit = 0

    def take_back(_: object) -> None:
        counts["failure_count"] = max(0, counts.get("failure_count", 0) - 1)
        spawner.consecutive_failure_limit = limit

    future.add_done_callback(take_back)


def link_fields(query: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The form's fields in a link to the spawn page.

    JupyterHub 6 writes them with ``opt-`` in front and takes that away; 5 knows no such prefix. A
    link that works on one works on the other.
    """
    return {name.removeprefix("opt-"): values for name, values in query.items()}
