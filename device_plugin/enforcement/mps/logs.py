"""What MPS's logs say that somebody has to know. Pure.

Lines look like '[2022-04-28 15:56:08.906 Other 11570] Volta MPS: Server is handling a fatal GPU
error.' (the guide's appendix "MPS Logging Format"). What is not known is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"\[[^\]]*\]\s*(.*)")
_CLIENT = re.compile(r"(?:Volta MPS: )?status of client \{(\d+), \d+\} is INACTIVE")
_STICKY = "the following clients have a sticky error set"
_FATAL = "handling a fatal gpu error"
_EXIT = re.compile(r"Server (\d+) exited with status (-?\d+)")
_FAILED = "mps server failed to start"


@dataclass(frozen=True, slots=True)
class Fault:
    """A program made a fatal error, and all these clients (pids) lost what they computed."""

    clients: frozenset[int]


@dataclass(frozen=True, slots=True)
class ServerEnded:
    """A server ended by itself, not by our word."""

    pid: int
    status: int


@dataclass(frozen=True, slots=True)
class ServerFailed:
    """A server could not be started."""


LogEvent = Fault | ServerEnded | ServerFailed


class LogReader:
    """Reads the lines of one log as they come; a fault is told when the list of its clients ends."""

    def __init__(self) -> None:
        self._faulty: set[int] | None = None
        self._listing = False

    def read(self, lines: Iterable[str]) -> list[LogEvent]:
        """The events in ``lines``; to be called with all new lines of one moment."""
        events: list[LogEvent] = []
        for line in lines:
            match = _LINE.match(line)
            text = (match[1] if match else line).strip()
            self._read(text, events)
        return events

    def settle(self) -> list[LogEvent]:
        """No more lines came for a while: what was begun is complete."""
        events: list[LogEvent] = []
        self._end(events)
        return events

    def _read(self, text: str, events: list[LogEvent]) -> None:
        lower = text.lower()
        if _FATAL in lower:
            self._end(events)
            self._faulty = set()
            return
        if self._faulty is not None:
            if client := _CLIENT.match(text):
                self._faulty.add(int(client[1]))
                return
            if _STICKY in lower:
                self._listing = True
                return
            if text.isdigit():
                if self._listing:
                    self._faulty.add(int(text))
                return
            if self._listing:
                self._end(events)
        if ended := _EXIT.match(text):
            if int(ended[2]) != 0:
                events.append(ServerEnded(int(ended[1]), int(ended[2])))
        elif _FAILED in lower:
            events.append(ServerFailed())

    def _end(self, events: list[LogEvent]) -> None:
        if self._faulty:
            events.append(Fault(frozenset(self._faulty)))
        self._faulty, self._listing = None, False
