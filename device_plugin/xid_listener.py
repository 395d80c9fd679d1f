"""A thread that waits for the driver's error reports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

from device_plugin.patience import wait_at_most
from device_plugin.physical_card import CardSource, NoDriver, XidEvent

log = logging.getLogger(__name__)

# The driver wakes the wait at once when there is an error; this is how long ending may take.
_WAIT = 0.5


class XidListener:
    """Tells the event loop of each error, until stopped, or until the driver fails."""

    def __init__(
        self,
        source: CardSource,
        uuids: Sequence[str],
        on_xid: Callable[[str, int], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._source, self._uuids = source, tuple(uuids)
        self._on_xid, self._on_failure = on_xid, on_failure
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._ended = asyncio.Event()
        threading.Thread(target=self._run, name="xid", daemon=True).start()

    def covers(self, uuids: Sequence[str]) -> bool:
        """Whether it listens to exactly these cards."""
        return self._uuids == tuple(uuids) and not self._ended.is_set()

    def stop(self) -> None:
        """End after the wait that is under way."""
        self._stop.set()

    async def ended(self, limit: float) -> bool:
        """Wait for the end; False if it did not come within ``limit`` seconds."""
        return await wait_at_most(self._ended, limit)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                event = self._source.wait(_WAIT)
                if event is not None:
                    self._tell(self._on_event, event)
        except NoDriver as error:
            log.warning("%s; the cards are looked at anew", error)
            self._tell(self._on_failure)
        except Exception:
            log.exception("listening for errors of the cards broke")
            self._tell(self._on_failure)
        finally:
            self._tell(self._ended.set)

    def _on_event(self, event: XidEvent) -> None:
        self._on_xid(event.uuid, event.xid)

    def _tell(self, function: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and we end with it
            self._loop.call_soon_threadsafe(function, *arguments)
