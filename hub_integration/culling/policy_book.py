"""Finds the rules of a server: the catalogue's as it is now, else the pod's, else the default."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from hub_integration.catalogue_file import CatalogueFile
from hub_integration.culling.observed import Pod, Server
from hub_integration.culling.rules import (
    ServerRules,
    annotated_times,
    choice_of_options,
    choice_times,
    choice_title,
    rules,
)
from profiles.catalogue import Catalogue
from profiles.reader import CatalogueError


class PolicyBook:
    """``default`` are the times of servers that are of no choice of ours; {} for never."""

    def __init__(
        self, catalogue: CatalogueFile, default: Mapping[str, int], minute: timedelta
    ) -> None:
        self._catalogue = catalogue
        self._default = dict(default)
        self._minute = minute

    def rules_of(self, server: Server, pod: Pod | None) -> ServerRules:
        times = None
        catalogue, choice = self._current(), _choice(server, pod)
        if catalogue is not None and choice:
            times = choice_times(catalogue, choice, server.groups)
        if times is None and pod is not None and pod.idle:
            times = annotated_times(pod.idle)
        return rules(self._default if times is None else times, self._minute)

    def title(self, server: Server, pod: Pod | None) -> str:
        """What people call the server's choice."""
        catalogue, choice = self._current(), _choice(server, pod)
        return choice_title(catalogue, choice) if catalogue is not None else choice

    def _current(self) -> Catalogue | None:
        try:
            return self._catalogue.current()
        except CatalogueError:
            return None  # it is in the log, and the pods say what they were promised


def _choice(server: Server, pod: Pod | None) -> str:
    return (pod.choice if pod else "") or choice_of_options(server.options)
