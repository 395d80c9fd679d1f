"""What somebody who waits is told: the place in the line, what it hangs on, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from gpushare.units import human_mib
from gpushare.waiting import WaitingPod
from hub_integration.availability import Offer
from hub_integration.culler_client import Ending
from hub_integration.outlook import competes
from hub_integration.pod_state import Stage
from profiles.choice import Choice

_GRACE = 120  # seconds past an announced end for which the announcement is still told


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence; ``at`` is a time in it, in seconds since 1970, written as {at}."""

    text: str
    at: float | None = None

    @property
    def plain(self) -> str:
        return self.text.format(at=self._clock) if self.at is not None else self.text

    @property
    def html(self) -> Markup:
        """The time as an element that the browser shows in its own time zone."""
        if self.at is None:
            return Markup.escape(self.text)
        stamp = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        time = Markup('<time datetime="{}">{}</time>').format(stamp, self._clock)
        return Markup.escape(self.text).format(at=time)

    @property
    def _clock(self) -> str:
        return datetime.fromtimestamp(self.at or 0.0, UTC).strftime("%H:%M UTC")


@dataclass(frozen=True, slots=True)
class WaitingView:
    """What the page shows. ``instead`` can be had at once; '' keys mean that nothing can."""

    headline: str
    lines: tuple[Line, ...] = ()
    instead_key: str = ""
    instead_title: str = ""
    done: bool = False

    @property
    def text(self) -> str:
        """For programs, and for the Hub's own page."""
        return " ".join([self.headline, *(line.plain for line in self.lines)])


def starting_view(choice: Choice, stage: Stage, node: str, latest: str) -> WaitingView:
    """A server that need not wait for a slice, or not any more. ``latest``: the last event."""
    if stage is Stage.STARTING:
        with_slice = f"{_up(choice.title)} is yours" if choice.slice else "A place was found"
        where = f", on {node}" if node else ""
        lines = (Line(latest),) if latest else ()
        return WaitingView(f"{with_slice}{where}. The server starts.", lines, done=True)
    return WaitingView("Your server is being set up.", (Line(latest),) if latest else ())


def waiting_view(
    choice: Choice,
    own: WaitingPod | None,
    endings: Sequence[Ending],
    instead: Offer | None,
    scale_up: str,
    now: float,
) -> WaitingView:
    """A server that waits for a slice. ``own`` is its entry in the line, None where not known."""
    lines = [Line(scale_up)] if scale_up else []
    if own is not None:
        lines += _what_comes_back(own, endings, now)
        lines += _largest(own)
    key = title = ""
    if instead is not None:
        key, title = instead.choice.key, instead.choice.title
        lines.append(Line(f"{_up(title)} is free right now."))
    return WaitingView(_headline(choice, own), tuple(lines), key, title)


def _headline(choice: Choice, own: WaitingPod | None) -> str:
    if own is None or own.place < 1:
        return f"You are waiting for {choice.title}."
    if own.place == 1:
        others = own.of - 1
        behind = f" {others} {'waits' if others == 1 else 'wait'} behind you." if others else ""
        return f"You are next in line for {choice.title}.{behind}"
    return f"You are {_ordinal(own.place)} in line for {choice.title}."


def _what_comes_back(own: WaitingPod, endings: Sequence[Ending], now: float) -> list[Line]:
    """When the culler ends what is in the way, and how many lie idle."""
    relevant = [one for one in endings if competes(own.models, tuple(one.models))]
    idle = [one for one in relevant if one.idle]
    soonest = _soonest(own, relevant, now)
    if idle:
        count = "One notebook" if len(idle) == 1 else f"{len(idle)} notebooks"
        has = "has" if len(idle) == 1 else "have"
        text = f"{count} on such cards {has} been idle for more than 20 minutes"
        if soonest is None:
            return [Line(f"{text}.")]
        return [Line(f"{text}; room comes back at {{at}} if nobody touches them.", soonest)]
    if soonest is not None:
        return [Line("Room comes back at {at} if what is there stays unused.", soonest)]
    return []


def _soonest(own: WaitingPod, endings: Iterable[Ending], now: float) -> float | None:
    """The first time at which all slices of one way out have ended."""
    ends = {(one.namespace, one.pod): one.ends for one in endings if one.ends is not None}
    times = []
    for way in own.would_end:
        parts = [ends.get((part.namespace, part.pod)) for part in way.slices]
        known = [end for end in parts if end is not None]
        if parts and len(known) == len(parts):
            times.append(max(known))
    return min((end for end in times if end > now - _GRACE), default=None)


def _largest(own: WaitingPod) -> list[Line]:
    """What is there of such cards, where it is too little."""
    free = [one.free_mib for one in own.reasons if one.card]
    if not own.mib or not free:
        return []
    most = max(free)
    if most <= 0:
        return [Line("All such cards are full.")]
    if most >= own.mib:
        return []  # memory is not what it waits for
    return [Line(f"The largest piece of such a card that is free is {human_mib(most)}.")]


def _ordinal(number: int) -> str:
    tail = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{tail}"


def _up(text: str) -> str:
    return text[:1].upper() + text[1:]
