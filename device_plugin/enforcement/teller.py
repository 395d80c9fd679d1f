"""Where what happens to slices is told: Events, the notice board, the log, the usage API."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable

from device_plugin.enforcement.messages import Message
from device_plugin.enforcement.notices import NoticeBoards
from device_plugin.enforcement.outbox import Outbox
from gpushare.pods import PodRef
from gpushare.usage import Incident

log = logging.getLogger(__name__)

_KEPT = 100


class Teller:
    """Tells everybody who has to know, once."""

    def __init__(
        self,
        outbox: Outbox,
        boards: NoticeBoards | None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._outbox, self._boards, self._wall = outbox, boards, wall
        self.incidents: deque[Incident] = deque(maxlen=_KEPT)
        self.counts: Counter[str] = Counter()
        # Pods whose boards have something new to show.
        self.news: set[str] = set()

    def tell(self, pod: PodRef, card: str, message: Message) -> None:
        """Write an Event, a notice for the pod's user, and a line in the log."""
        self._keep(pod, card, message)
        self._outbox.event(pod, message)

    def evict(self, pod: PodRef, card: str, message: Message) -> None:
        """The same, and have the pod evicted."""
        self._keep(pod, card, message)
        self._outbox.evict(pod, message)

    def _keep(self, pod: PodRef, card: str, message: Message) -> None:
        now = self._wall()
        log.warning("%s: %s", pod, message.text)
        self.counts[message.reason] += 1
        self.incidents.append(
            Incident(now, pod.namespace, pod.name, pod.uid, card, message.reason, message.text)
        )
        if self._boards is not None:
            self._boards.post(pod.uid, message.reason, message.text, now)
            self.news.add(pod.uid)
