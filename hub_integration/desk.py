"""What all spawners of a Hub share: the catalogue as read last, and what the extender said last.

A spawner lives for one server; these live as long as the Hub.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

from gpushare.names import Names
from gpushare.units import Unit
from hub_integration.catalogue_file import CatalogueFile
from hub_integration.state_client import StateAddress, StateClient
from profiles.reader import SHIPPED

_Clients = dict[StateAddress, StateClient]
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()


@cache
def catalogue_file(path: str, unit: Unit, names: Names, log: logging.Logger) -> CatalogueFile:
    """The reader of one catalogue; ``path`` may be '' for the one that comes with gpushare."""
    return CatalogueFile(Path(path) if path else SHIPPED, unit, names, log)


def state_client(address: StateAddress, log: logging.Logger) -> StateClient:
    """The client for one extender, on the running event loop."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if address not in clients:
        clients[address] = StateClient(address, log)
    return clients[address]
