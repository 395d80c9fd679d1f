"""What all spawners of a Hub share: the catalogue as read last, what the extender said last, the
ledger, and what was admitted.

A spawner lives for one server; these live as long as the Hub.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from gpushare.names import Names
from gpushare.units import Unit
from hub_integration.catalogue_file import CatalogueFile
from hub_integration.culler_client import CullerAddress, CullerClient
from hub_integration.quota.bookkeeper import Bookkeeper
from hub_integration.quota.claims import Claims
from hub_integration.state_client import StateAddress, StateClient
from profiles.reader import SHIPPED


class Desk:
    """What belongs to one event loop."""

    def __init__(self) -> None:
        self.claims = Claims()
        self.admission = asyncio.Lock()
        self._made: dict[tuple[Any, ...], Any] = {}

    def state_client(self, address: StateAddress, log: logging.Logger) -> StateClient:
        """The client for one extender."""
        made: StateClient = self._once(("state", address), lambda: StateClient(address, log))
        return made

    def culler_client(self, address: CullerAddress, log: logging.Logger) -> CullerClient:
        """The client for one culler."""
        made: CullerClient = self._once(("culler", address), lambda: CullerClient(address, log))
        return made

    def bookkeeper(
        self, address: StateAddress, url: str, days: int, zone: str, log: logging.Logger
    ) -> Bookkeeper:
        """The keeper of one ledger, at work."""

        def make() -> Bookkeeper:
            return Bookkeeper(self.state_client(address, log), url, days, zone, log)

        keeper: Bookkeeper = self._once(("ledger", address, url, days, zone), make)
        keeper.start()
        return keeper

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Made when it is asked for first; the same ever after."""
        return self._once((name,), make)

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


_desks: WeakKeyDictionary[asyncio.AbstractEventLoop, Desk] = WeakKeyDictionary()


def desk() -> Desk:
    """That of the running event loop."""
    return _desks.setdefault(asyncio.get_running_loop(), Desk())


@cache
def catalogue_file(path: str, unit: Unit, names: Names, log: logging.Logger) -> CatalogueFile:
    """The reader of one catalogue; ``path`` may be '' for the one that comes with gpushare."""
    return CatalogueFile(Path(path) if path else SHIPPED, unit, names, log)
