"""From readings to screens: what each page shows, as plain values. Pure.

All widths are per cent of the card's memory, to scale. Nothing here knows HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpushare.cards import HEALTHY
from gpushare.waiting import WaitingPod
from hub_integration.dashboard.readings import Card, Node, Reading, Reclaim, Slice, Verdict
from hub_integration.dashboard.wording import counted, duration, gib, of_gib, share, size

# Clusters with more nodes than this show nodes as one line each, opened on demand.
OPEN_NODES = 12
CORDONED = "cordoned"
_QUIET = 20 * 60  # seconds without GPU use after which a card is called idle
_SMALL = 8.0  # per cent of a bar that fits hardly any text
_MOST_RECLAIMS = 20


def key(*parts: str) -> str:
    """An id for HTML, whatever characters the names have."""
    return hashlib.blake2s("\0".join(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a card's bar. ``used`` is per cent of the segment that is really used."""

    kind: str  # slice, leaving, outside, free
    width: float
    label: str = ""
    used: float = 0.0
    title: str = ""
    id: str = ""
    small: bool = False


@dataclass(frozen=True, slots=True)
class SliceRow:
    """A slice with all that is known of it. ``server`` is None where no notebook can be stopped."""

    id: str
    who: str
    pod: str
    size: str
    used: str
    idle: str
    note: str
    user: str = ""
    server: str | None = None


@dataclass(frozen=True, slots=True)
class CardView:
    """One card: its bar, and a row for each slice."""

    id: str
    node: str
    uuid: str
    name: str
    state: str  # ok, idle, cordoned, broken
    state_words: str
    used_words: str
    free_words: str
    cordoned: bool
    segments: tuple[Segment, ...]
    rows: tuple[SliceRow, ...]


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. ``cards`` is empty where the node is closed and shown as one line.

    ``version`` differs when its cards do, so that a page that has it open asks for them again.
    """

    id: str
    name: str
    summary: str
    held: int
    used: int
    trouble: str
    open: bool
    version: str
    cards: tuple[CardView, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingView:
    """Somebody in the line."""

    id: str
    who: str
    wants: str
    since: str
    place: str
    help: str


@dataclass(frozen=True, slots=True)
class ReclaimView:
    """A slice that came back."""

    at: float | None
    who: str
    what: str
    sentence: str
    outcome: str
    alarm: str


@dataclass(frozen=True, slots=True)
class Totals:
    """The line at the top."""

    words: str
    held: int
    used: int | None
    held_words: str
    used_words: str
    waiting: int
    alarms: int


@dataclass(frozen=True, slots=True)
class ClusterScreen:
    """What admins see."""

    totals: Totals
    nodes: tuple[NodeView, ...]
    collapsed: bool
    waiting: tuple[WaitingView, ...]
    reclaims: tuple[ReclaimView, ...]
    given_back: str
    culler: bool
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Model:
    """What is free of one card model: counts, and nothing about anybody."""

    name: str
    cards: int
    free_percent: int
    free_words: str
    largest: str
    waiting: str


@dataclass(frozen=True, slots=True)
class Remaining:
    """How long a server stays, and whether it can be kept."""

    words: str = ""
    soon: bool = False
    hold_minutes: int = 30
    may_hold: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class ServerView:
    """One of the user's own servers. ``server`` is None where its name is not known."""

    id: str
    server: str | None
    name: str
    title: str
    used_words: str
    used_percent: int | None
    over: bool
    remaining: Remaining


@dataclass(frozen=True, slots=True)
class MyScreen:
    """What everybody sees of themselves."""

    servers: tuple[ServerView, ...]
    queue: tuple[str, ...]
    models: tuple[Model, ...]


@dataclass(slots=True)
class _Index:
    """The culler's verdicts by pod, so that 1,000 nodes are one pass."""

    verdicts: Iterable[Verdict]
    by_pod: dict[tuple[str, str], Verdict] = field(init=False)

    def __post_init__(self) -> None:
        self.by_pod = {(v.namespace, v.pod): v for v in self.verdicts if v.pod}

    def of(self, its: Slice) -> Verdict | None:
        return self.by_pod.get((its.namespace, its.pod))


def cluster_screen(reading: Reading, now: float) -> ClusterScreen:
    """The admins' screen. Nodes of a large cluster come closed; see ``node_view``."""
    index = _Index(reading.verdicts)
    collapsed = len(reading.nodes) > OPEN_NODES
    nodes = sorted(reading.nodes, key=lambda node: (not _trouble(node), node.name))
    return ClusterScreen(
        totals=_totals(reading),
        nodes=tuple(_node(node, index, now, open=not collapsed) for node in nodes),
        collapsed=collapsed,
        waiting=tuple(_waiting(pod, now) for pod in reading.waiting),
        reclaims=tuple(_reclaim(r) for r in reading.reclaims[:_MOST_RECLAIMS]),
        given_back=_given_back(reading),
        culler=reading.culler,
        dry_run=reading.dry_run,
    )


def node_view(reading: Reading, name: str, now: float) -> NodeView | None:
    """One node with its cards; None if there is no such node."""
    node = next((node for node in reading.nodes if node.name == name), None)
    return _node(node, _Index(reading.verdicts), now, open=True) if node else None


def _totals(reading: Reading) -> Totals:
    cards = [card for node in reading.nodes for card in node.cards]
    memory = sum(card.memory_mib for card in cards)
    held = sum(its.mib for card in cards for its in card.slices)
    measured = [card.used_mib for card in cards if card.used_mib is not None]
    used = sum(measured) if measured else None
    where = f"{counted(len(cards), 'card')} on {counted(len(reading.nodes), 'node')}"
    return Totals(
        words=where,
        held=share(held, memory),
        used=None if used is None else share(used, memory),
        held_words=f"{of_gib(held, memory)} given",
        used_words="use not measured" if used is None else f"{of_gib(used, memory)} really used",
        waiting=len(reading.waiting),
        alarms=sum(1 for reclaim in reading.reclaims if reclaim.alarm),
    )


def _trouble(node: Node) -> str:
    if node.problem:
        return node.problem
    broken = [card for card in node.cards if card.health not in (HEALTHY, CORDONED)]
    if broken:
        return f"card {broken[0].index}: {broken[0].health}"
    if not node.takes_pods:
        return "takes no pods (cordoned or not ready)"
    return ""


def _node(node: Node, index: _Index, now: float, *, open: bool) -> NodeView:
    memory = sum(card.memory_mib for card in node.cards)
    held = sum(its.mib for card in node.cards for its in card.slices)
    used = sum(card.used_mib or 0 for card in node.cards)
    models: dict[str, int] = {}
    for card in node.cards:
        models[card.model] = models.get(card.model, 0) + 1
    cards = ", ".join(f"{count} × {model}" for model, count in models.items())
    return NodeView(
        id=key("node", node.name),
        name=node.name,
        summary=f"{cards or 'no cards'} · {of_gib(held, memory)} given",
        held=share(held, memory),
        used=share(used, memory),
        trouble=_trouble(node),
        open=open,
        version=_version(node),
        cards=tuple(_card(node, card, index, now) for card in node.cards) if open else (),
    )


def _version(node: Node) -> str:
    """Who is on it, how healthy it is, and what is used in steps that a bar shows."""
    seen = tuple(
        (
            c.uuid,
            c.health,
            c.free_mib,
            tuple((s.uid, s.leaving, (s.used_mib or 0) >> 8) for s in c.slices),
        )
        for c in node.cards
    )
    return f"{hash(seen) & 0xFFFFFFFF:x}"


def _card(node: Node, card: Card, index: _Index, now: float) -> CardView:
    rows = tuple(_row(its, card, index.of(its), now) for its in card.slices)
    state, words = _state(card, now)
    used = "use not measured"
    if card.used_mib is not None:
        used = f"used {share(card.used_mib, card.memory_mib)} %"
    return CardView(
        id=key("card", node.name, card.uuid),
        node=node.name,
        uuid=card.uuid,
        name=f"{card.model} {card.index}",
        state=state,
        state_words=words,
        used_words=used,
        free_words=(
            f"{of_gib(max(0, card.free_mib), card.memory_mib)} free"
            if card.health == HEALTHY
            else f"{gib(card.memory_mib)} GiB, out of service"
        ),
        cordoned=card.health == CORDONED,
        segments=tuple(_segments(card)),
        rows=rows,
    )


def _state(card: Card, now: float) -> tuple[str, str]:
    if card.health == CORDONED:
        return "cordoned", "cordoned"
    if card.health != HEALTHY:
        return "broken", card.health
    if card.slices:
        busy = [its.last_busy for its in card.slices]
        known = [at for at in busy if at is not None]
        if len(known) == len(busy) and now - max(known) >= _QUIET:
            return "idle", f"idle {duration(now - max(known))}"
    return "ok", "healthy"


def _segments(card: Card) -> Iterable[Segment]:
    memory = max(1, card.memory_mib)
    rest = 100.0
    for its in sorted(card.slices, key=lambda its: (-its.mib, its.namespace, its.pod)):
        width = min(rest, 100 * its.mib / memory)
        rest -= width
        who = _who(its)
        small = width < _SMALL
        used = 0.0 if its.used_mib is None else min(100.0, 100 * its.used_mib / max(1, its.mib))
        words = "use not measured" if its.used_mib is None else f"{gib(its.used_mib)} used"
        yield Segment(
            kind="leaving" if its.leaving else "slice",
            width=width,
            label=gib(its.mib) if small else f"{who} {gib(its.mib)}",
            used=used,
            title=f"{who}: {size(its.mib, its.percent)}, {words}",
            id=_slice_id(its, card),
            small=small,
        )
    if card.taken_mib:
        width = min(rest, 100 * card.taken_mib / memory)
        rest -= width
        title = f"{gib(card.taken_mib)} GiB held by processes without a slice"
        yield Segment("outside", width, gib(card.taken_mib), 100.0, title, small=width < _SMALL)
    if card.health != HEALTHY and rest > 0.5:
        yield Segment("free", rest, "" if rest < 20 else "takes nothing new", title=card.health)
    elif card.free_mib > 0 and rest > 0.5:
        free = gib(card.free_mib)
        small = rest < _SMALL
        yield Segment("free", rest, free if small else f"{free} free", title=f"{free} GiB free")


def _slice_id(its: Slice, card: Card) -> str:
    return key("slice", its.uid, card.uuid)


def _who(its: Slice) -> str:
    """A notebook is its user's; any other pod is called by its own name."""
    return its.user or f"{its.namespace}/{its.pod}"


def _row(its: Slice, card: Card, verdict: Verdict | None, now: float) -> SliceRow:
    used = "not measured"
    if its.used_mib is not None:
        used = f"{gib(its.used_mib)} of {gib(its.mib)} GiB"
        if its.sm_percent is not None:
            used += f", busy {its.sm_percent} %"
    idle = "" if its.last_busy is None else duration(now - its.last_busy)
    if its.sm_percent:
        idle = "in use"
    notes = []
    if its.over:
        notes.append("over its limit")
    if its.leaving:
        notes.append("ending")
    if its.reserved:
        notes.append("starting")
    if verdict is not None and verdict.held_until and verdict.held_until > now:
        notes.append(f"kept for {duration(verdict.held_until - now)}")
    if verdict is not None and verdict.action in ("warn", "cull"):
        notes.append(verdict.sentence)
    return SliceRow(
        id=_slice_id(its, card),
        who=_who(its),
        pod=f"{its.namespace}/{its.pod}",
        size=size(its.mib, its.percent),
        used=used,
        idle=idle,
        note="; ".join(notes),
        user=verdict.user if verdict else "",
        server=verdict.server if verdict and not its.leaving else None,
    )


def _waiting(pod: WaitingPod, now: float) -> WaitingView:
    help_ = ""
    if pod.would_end:
        way = pod.would_end[0]
        who = ", ".join(f"{s.user or s.pod} ({gib(s.mib)} GiB)" for s in way.slices)
        help_ = f"would fit on {way.node} without {who}"
    elif pod.reasons:
        help_ = f"{pod.reasons[0].node}: {pod.reasons[0].reason}"
    return WaitingView(
        id=key("waiting", pod.uid),
        who=pod.user or f"{pod.namespace}/{pod.pod}",
        wants=pod.request,
        since=duration(now - pod.since),
        place=f"{pod.place} of {pod.of}",
        help=help_,
    )


_OUTCOMES = {
    "dry-run": "would have ended (dry run)",
    "stopping": "stopping",
    "leaving": "stopped, not free yet",
    "stuck": "not free yet",
    "abandoned": "given up",
}


def _reclaim(reclaim: Reclaim) -> ReclaimView:
    outcome = _OUTCOMES.get(reclaim.state, reclaim.state)
    if reclaim.state == "freed":
        after = duration(reclaim.freed_after)
        outcome = f"free after {after}" if after else "free"
    models = " + ".join(reclaim.models)
    return ReclaimView(
        at=reclaim.decided_at,
        who=reclaim.user or f"{reclaim.namespace}/{reclaim.pod}",
        what=f"{reclaim.gib:g} GiB" + (f" on {models}" if models else ""),
        sentence=reclaim.sentence or reclaim.reason,
        outcome=outcome,
        alarm=reclaim.alarm,
    )


def _given_back(reading: Reading) -> str:
    """'Today 3 slices came back: 4.2 GiB-hours.'"""
    today = next((row for row in reading.given_back if not row[0]), None)
    if today is None or not today[1]:
        return ""
    return f"Today {counted(today[1], 'slice')} came back: {today[2]:.3g} GiB-hours for others."


class Everybody:
    """A reading by user, made once for all pages that are open."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.index = _Index(reading.verdicts)
        self.models = models(reading)
        self.held: dict[str, dict[tuple[str, str], list[tuple[Card, Slice]]]] = {}
        for node in reading.nodes:
            for card in node.cards:
                for its in card.slices:
                    if its.user:
                        pods = self.held.setdefault(its.user, {})
                        pods.setdefault((its.namespace, its.pod), []).append((card, its))


def my_screen(everybody: Everybody, user: str, now: float) -> MyScreen:
    """A user's own screen: their servers, their place in the line, and counts."""
    index, reading = everybody.index, everybody.reading
    held = everybody.held.get(user, {})
    servers = [_server(parts, index.of(parts[0][1]), now) for parts in held.values()]
    shown = {server.server for server in servers}
    servers += [
        _other_server(verdict, now)
        for verdict in reading.verdicts
        if verdict.user == user and verdict.server not in shown
    ]
    queue = tuple(
        f"You are number {pod.place} of {pod.of} in the line for {pod.request}."
        for pod in reading.waiting
        if pod.user == user
    )
    return MyScreen(tuple(servers), queue, everybody.models)


def _server(parts: list[tuple[Card, Slice]], verdict: Verdict | None, now: float) -> ServerView:
    first = parts[0][1]
    mib = sum(its.mib for _, its in parts)
    measured = [its.used_mib for _, its in parts if its.used_mib is not None]
    used = sum(measured) if measured else None
    models = " + ".join(card.model for card, _ in parts)
    server = verdict.server if verdict else None
    return ServerView(
        id=key("server", first.uid),
        server=server,
        name=server or "My server",
        title=f"{size(mib, first.percent)} on {models}",
        used_words="use not measured" if used is None else f"{of_gib(used, mib)} used",
        used_percent=None if used is None else min(100, share(used, mib)),
        over=any(its.over for _, its in parts),
        remaining=_remaining(verdict, now),
    )


def _other_server(verdict: Verdict, now: float) -> ServerView:
    """A server without a card, or whose pod does not hold its card yet."""
    return ServerView(
        id=key("server", verdict.user, verdict.server),
        server=verdict.server,
        name=verdict.server or "My server",
        title=verdict.title or "no GPU",
        used_words="",
        used_percent=None,
        over=False,
        remaining=_remaining(verdict, now),
    )


def _remaining(verdict: Verdict | None, now: float) -> Remaining:
    if verdict is None:
        return Remaining()
    if verdict.held_until and verdict.held_until > now:
        words, soon = f"Kept for {duration(verdict.held_until - now)}.", False
    elif verdict.ends_at is not None:
        words = f"Ends in {duration(verdict.ends_at - now)} unless it is used."
        soon = verdict.action in ("warn", "cull")
    else:
        words, soon = verdict.sentence, False
    return Remaining(words, soon, verdict.hold_minutes, verdict.may_hold, verdict.why_not)


def models(reading: Reading) -> tuple[Model, ...]:
    """What is free, by card model. Counts only: no names, no pods, no nodes."""
    free: dict[str, list[int]] = {}
    total: dict[str, int] = {}
    for node in reading.nodes:
        for card in node.cards:
            usable = card.health == HEALTHY and node.takes_pods and not node.problem
            free.setdefault(card.model, []).append(max(0, card.free_mib) if usable else 0)
            total[card.model] = total.get(card.model, 0) + (card.memory_mib if usable else 0)
    return tuple(
        Model(
            name=name,
            cards=len(pieces),
            free_percent=share(sum(pieces), total[name]),
            free_words=f"{of_gib(sum(pieces), total[name])} free" if sum(pieces) else "full",
            largest=f"largest piece {gib(max(pieces))} GiB" if max(pieces) else "",
            waiting=_line(reading.waiting, name),
        )
        for name, pieces in sorted(free.items())
    )


def _line(pods: Iterable[WaitingPod], model: str) -> str:
    """Those who wait for this model; who takes any model waits for each."""
    wanted = model.lower()
    count = sum(not p.models or any(wanted == m.lower() for m in p.models) for p in pods)
    return f"{count} waiting" if count else ""
