"""``gpushare why``: why a pod waits, in one sentence and what would help."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from gpushare.cli import show
from gpushare.cli.cluster import NoState, Target
from gpushare.cli.options import cluster_options, output_option
from gpushare.cli.words import amount, ordinal, since
from gpushare.units import human_mib
from gpushare.waiting import Obstacle, PlacedPod, RefusedPod, WaitingPod, WayOut, Why, decode_why

# In one sentence; the rest comes line by line with -o wide.
_SHORT = 4
_NAMED = 3
_WHOLE = 100
# How gpushare.reasons begins what is a matter of room.
_LACKS_ROOM = "wants "


@click.command()
@click.argument("pod")
@output_option(
    "text", "wide", "json", "yaml", text="wide names every card; json is the API's answer."
)
@cluster_options
def why(pod: str, output: str, target: Target) -> None:
    """Say why POD waits, what it waits behind, and who would have to leave.

    POD is a name, pod/NAME or NAMESPACE/NAME. Without a namespace, the pods that wait for or hold a
    slice are looked through, then the namespace of the kubeconfig's context.

    \b
    gpushare why pod/jupyter-erin
    gpushare why jupyter/jupyter-erin -o wide
    """
    namespace, name = _which(pod, target)
    answer = target.read(f"/v1/pods/{quote(namespace)}/{quote(name)}/why")
    if output in show.DATA:
        show.data(answer, output)
        return
    try:
        told = decode_why(show.compact(answer))
    except ValueError as error:
        raise NoState(f"the extender's answer cannot be read: {error}") from None
    holders = _holders(target.read("/v1/nodes")) if isinstance(told, WaitingPod) else {}
    click.echo("\n".join(lines(told, time.time(), holders, wide=output == "wide")))


Holders = Mapping[str, tuple[str, ...]]


def lines(
    told: Why, now: float, holders: Holders | None = None, *, wide: bool = False
) -> list[str]:
    """The answer for people. ``holders``: by card, who has slices of it."""
    match told:
        case PlacedPod():
            cards = ", ".join(
                f"{told.node}/{card.index} ({card.model}) {amount(card.mib, card.percent)}"
                for card in told.cards
            )
            return [f"has its slice: {cards or told.node}"]
        case RefusedPod():
            return [f"cannot be placed: {told.sentence}"]
        case WaitingPod():
            return _waiting(told, now, holders or {}, wide)


def _waiting(pod: WaitingPod, now: float, holders: Holders, wide: bool) -> list[str]:
    head = f"waiting {since(now - pod.since)} for {pod.request}"
    if pod.of > 1:
        head += f" ({ordinal(pod.place)} in line)"
    shown = pod.reasons if wide else pod.reasons[:_SHORT]
    more = pod.more + len(pod.reasons) - len(shown)
    texts = [_obstacle(one, pod, holders) for one in shown]
    if wide:
        said = [f"{head}:", *(f"  {text}" for text in texts)]
        said += [f"  and {more} more"] if more else []
    else:
        texts += [f"and {more} more (-o wide)"] if more else []
        said = [f"{head}: {', '.join(texts)}" if texts else head]
    return [*said, *(_way_out(way) for way in pod.would_end)]


def _obstacle(one: Obstacle, pod: WaitingPod, holders: Holders) -> str:
    """'t4-1/0 has 2 GiB'; where it is not room that lacks, the extender's own words."""
    where = f"{one.node}/{one.index}" if one.card else one.node
    if not one.reason.startswith(_LACKS_ROOM):
        return f"{where}: {one.reason}"
    who = holders.get(one.card, ())
    if one.free_mib <= 0 and who:
        return (
            f"{where} is held by {_few(who)}"
            if len(who) > 1
            else f"{where} is held whole by {who[0]}"
        )
    percent = f" and {one.free_percent} %" if pod.percent else ""
    held = f", the rest is {_few(who)}'s" if who and pod.percent >= _WHOLE else ""
    return f"{where} has {human_mib(max(0, one.free_mib))}{percent}{held}"


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def _holders(state: Any) -> Holders:
    return {
        card["uuid"]: tuple(
            one["user"] or f"{one['namespace']}/{one['pod']}" for one in card["slices"]
        )
        for node in state["nodes"]
        for card in node["cards"]
    }


def _way_out(way: WayOut) -> str:
    names = ", ".join(
        f"{slice_.user or f'{slice_.namespace}/{slice_.pod}'} ({human_mib(slice_.mib)})"
        for slice_ in way.slices
    )
    return f"it would fit on {way.node} if these ended: {names}"


def _which(pod: str, target: Target) -> tuple[str, str]:
    """Namespace and name of the pod that is meant. Raises NoState where several are."""
    first, slash, name = pod.removeprefix("pod/").removeprefix("pods/").rpartition("/")
    if slash:
        return first, name
    known = {(n, p) for n, p in _known(target) if p == name}
    if len(known) > 1:
        raise NoState(
            f"there are several pods {name!r}; say which: "
            + ", ".join(f"{n}/{p}" for n, p in sorted(known))
        )
    return known.pop() if known else (target.default_namespace(), name)


def _known(target: Target) -> set[tuple[str, str]]:
    """The pods that the state API tells of."""
    state: Any = target.read("/v1/nodes")
    held = {
        (one["namespace"], one["pod"])
        for node in state["nodes"]
        for card in node["cards"]
        for one in card["slices"]
    }
    return held | {(one["namespace"], one["pod"]) for one in state["waiting"]}
