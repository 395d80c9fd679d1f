"""``gpushare drain``: empty a card, so that it can be reset, replaced or given to somebody else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import click

from gpushare.cli import cards, show
from gpushare.cli.cards import Chosen
from gpushare.cli.cluster import Connection, NoState, Refused, Target, message
from gpushare.cli.options import cluster_options, prefix_option
from gpushare.cli.words import amount

COLUMNS = ("POD", "USER", "SLICE", "COMES BACK")
# A disruption budget gives way, or the slices are gone, when something else happens in the cluster:
# how often we look.
_LOOK_SECONDS = 3.0
_GONE = 404
_BUDGET = 429


@dataclass(frozen=True)
class Guest:
    """A pod with a slice of the card."""

    namespace: str
    pod: str
    uid: str
    user: str
    slice_: str
    owner: str = ""

    def row(self) -> tuple[str, ...]:
        back = f"by its {self.owner}" if self.owner else "no"
        return (str(self), self.user or "-", self.slice_, back)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}"


@click.command()
@click.argument("card")
@click.option(
    "--dry-run", is_flag=True, help="Ask the API server whether it would, and do nothing."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask first.")
@click.option(
    "--grace",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Instead of each pod's own time to end in.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try where a disruption budget says no, and to wait for the pods' end.",
)
@prefix_option
@cluster_options
def drain(
    card: str,
    dry_run: bool,
    yes: bool,
    grace: int | None,
    timeout: float,
    prefix: str | None,
    target: Target,
) -> None:
    """Cordon CARD and evict the pods that have slices of it; others on the node go on.

    Evictions respect disruption budgets. It ends when the slices are free, that is when no container
    of the pods runs any more. `gpushare uncordon` gives the card back to service.

    \b
    gpushare drain t4-1/0 --dry-run
    gpushare drain t4-1/0 --yes --grace 30
    """
    connection = target.connection
    chosen = cards.choose(connection.read("/v1/nodes"), card)
    guests = _guests(connection, chosen)
    if guests:
        show.table(COLUMNS, [guest.row() for guest in guests])
    if dry_run:
        refused = _evict(connection, guests, grace, dry_run=True)
        for guest, why in refused:
            click.echo(f"{guest} would not be evicted now: {why}")
        count = len(guests) - len(refused)
        click.echo(f"card {chosen}: would be cordoned, {count} of {len(guests)} pods evicted")
        return
    if guests and not yes:
        if not show.is_terminal():
            raise NoState("say --yes to evict them, or --dry-run to see what would happen")
        click.confirm(f"Evict these {len(guests)} from card {chosen}?", abort=True)
    cards.cordon(connection, cards.names(connection, prefix), chosen)
    deadline = time.monotonic() + timeout
    left = _evict(connection, guests, grace)
    while left and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        left = _evict(connection, [guest for guest, _ in left], grace)
    if left:
        why = "; ".join(f"{guest}: {text}" for guest, text in left)
        raise NoState(f"not evicted: {why}\nThe card stays cordoned.")
    held = _still_there(connection, chosen)
    while held and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        held = _still_there(connection, chosen)
    if held:
        raise NoState(
            f"evicted, but still there after {timeout:.0f} s: {', '.join(held)}\n"
            "Their containers may hold the card yet; the card stays cordoned."
        )
    click.echo(f"card {chosen} is empty and takes nothing new; gpushare uncordon {card}")


def _guests(connection: Connection, chosen: Chosen) -> list[Guest]:
    guests = []
    for held in chosen.slices:
        namespace, pod = held["namespace"], held["pod"]
        size = amount(held["mib"], held["percent"])
        guests.append(
            Guest(
                namespace, pod, held["uid"], held["user"], size, _owner(connection, namespace, pod)
            )
        )
    return guests


def _owner(connection: Connection, namespace: str, pod: str) -> str:
    """What will start such a pod again, as 'ReplicaSet web-5d4'; '' for nothing, or not known."""
    try:
        found = connection.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    except Refused:
        return ""
    owners = found["metadata"].get("ownerReferences") or []
    return next((f"{o['kind']} {o['name']}" for o in owners if o.get("controller")), "")


Left = list[tuple[Guest, str]]


def _evict(
    connection: Connection, guests: Iterable[Guest], grace: int | None, *, dry_run: bool = False
) -> Left:
    """Who was not evicted, and why not. Raises NoState for whoever never will be."""
    left = []
    for guest in guests:
        options: dict[str, object] = {"preconditions": {"uid": guest.uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if dry_run:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": guest.pod, "namespace": guest.namespace},
            "deleteOptions": options,
        }
        try:
            connection.post(f"/api/v1/namespaces/{guest.namespace}/pods/{guest.pod}/eviction", body)
        except Refused as refused:
            if refused.status == _BUDGET:
                left.append((guest, message(refused.message)))
            # Gone meanwhile, or another pod by now: either way it holds nothing of this card.
            elif refused.status not in (_GONE, 409):
                raise NoState(
                    f"{guest} cannot be evicted: {message(refused.message)}\n"
                    "It needs the right to create pods/eviction."
                ) from None
    return left


def _still_there(connection: Connection, chosen: Chosen) -> list[str]:
    """The pods of before that hold the card yet."""
    before = {held["uid"] for held in chosen.slices}
    now = cards.choose(connection.read("/v1/nodes"), chosen.uuid)
    return [f"{s['namespace']}/{s['pod']}" for s in now.slices if s["uid"] in before]
