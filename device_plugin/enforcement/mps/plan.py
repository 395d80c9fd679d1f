"""Which cards run under MPS, with which limits, and for whom it cannot be. Pure.

A server has one memory limit and one share of the SMs for all its clients; a client's environment
can only tighten them. So where all slices of a card are equal the server's limit is each slice's
own, and no process can pass it. Where they differ, the server has the largest, and a smaller slice
is held by its environment, and by the watchdog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from device_plugin.enforcement.slices import Slice

# Clients of one server on Volta and later; older cards have no limits per client at all.
MOST_CLIENTS = 48
_VOLTA = 7


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server gives each client at most: MiB and per cent of the SMs."""

    mib: int
    percent: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one slice is to have: MiB (with what it may borrow) and per cent of the SMs."""

    mib: int
    percent: int


def shares_card(its: Slice, card: str) -> bool:
    """Whether the slice is one that MPS is for: a part of this one card."""
    return card in its.footprint and its.percent(card) < 100


def wanted(its: Slice, card: str, most_mib: int) -> Wanted:
    """What ``its`` is to have of ``card``; compute that nobody bounded is all of it."""
    return Wanted(max(its.mib(card), most_mib), its.percent(card) or 100)


def limits(slices: Iterable[Wanted]) -> Limits | None:
    """The server's limits for these slices; None: no slice, no server."""
    all_of_them = list(slices)
    if not all_of_them:
        return None
    return Limits(max(w.mib for w in all_of_them), max(w.percent for w in all_of_them))


def held_by(one: Wanted, server: Limits | None) -> tuple[str, str]:
    """By what a slice's memory and compute are limited, in the words of usage.SliceUse."""
    if server is None:
        return "watchdog", "best-effort"
    memory = "mps-server" if one.mib == server.mib else "mps-client"
    if one.percent >= 100:
        return memory, "best-effort"
    return memory, "mps-server" if one.percent == server.percent else "mps-client"


def card_refusal(capability: str, model: str) -> str:
    """Why a card cannot run under MPS with limits; '': it can."""
    major = capability.partition(".")[0]
    if major.isdigit() and int(major) < _VOLTA:
        return (
            f"{model} (compute capability {capability}) has no limits per MPS client, which came "
            "with 7.0 (Volta): set Enforcement.level to 'watchdog' on this node"
        )
    return ""


def slice_refusal(
    its: Slice,
    cards: Iterable[str],
    others: Mapping[str, Slice],
    only_user: int | None,
) -> str:
    """Why a slice cannot start under MPS; '': it can.

    ``cards`` are its container's. ``others`` are the other slices that share its card.
    ``only_user`` is the one uid that the node's MPS servers run for; None: any.
    """
    if len(list(cards)) > 1:
        return (
            "MPS on this node has one daemon for each card, and a program can use only one: ask for "
            "one card, or for whole cards (gpu-percent 100, 200, …), which run without MPS"
        )
    if len(others) + 1 > MOST_CLIENTS:
        return f"an MPS server has room for {MOST_CLIENTS} clients, and the card has as many slices"
    if only_user is not None and its.user != only_user:
        runs = "as an unknown user" if its.user is None else f"as user {its.user}"
        return (
            f"MPS on this node serves user {only_user} alone, and the pod runs {runs}: set "
            f"securityContext.runAsUser: {only_user}, or Enforcement.mps_users to 'many' where the "
            "driver has the multi-user server"
        )
    return ""
