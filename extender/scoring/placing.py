"""Where an ask fits, and what the node looks like afterwards: shared by all policies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from extender.scoring.ask import Ask
from extender.scoring.nodes import Bools, Ints, Rows


def needs(rows: Rows, ask: Ask) -> Ints:
    """What the ask takes of each card, in MiB."""
    if ask.whole:
        return rows.memory
    if ask.mib is None:
        return rows.memory * ask.percent // 100
    return np.full_like(rows.memory, ask.mib)


def card_fits(rows: Rows, ask: Ask, allowed: Bools) -> Bools:
    """Which cards would take one card's part of the ask; ``allowed`` is by model number."""
    fits = rows.usable & allowed[rows.model]
    if ask.whole:
        return fits & rows.empty
    return fits & (rows.free >= needs(rows, ask)) & (rows.percent >= ask.percent)


def node_fits(rows: Rows, ask: Ask, cards: Bools) -> Bools:
    """Which nodes would take the ask, given the ``cards`` that would."""
    fits: Bools = (cards.sum(axis=1) >= ask.cards) & (rows.cpu >= ask.cpu)
    return fits


def chosen(rows: Rows, ask: Ask, cards: Bools) -> Bools:
    """The cards of an ask that leaves no choice to the policy: the tightest, then the first."""
    if not ask.cards:
        return np.zeros_like(cards)
    order = np.where(cards, rows.free, np.iinfo(np.int64).max).argsort(axis=1, kind="stable")
    picked = np.zeros_like(cards)
    np.put_along_axis(picked, order[:, : ask.cards], True, axis=1)
    return picked & cards


def touched(rows: Rows, ask: Ask) -> Rows:
    """Every card as if the ask were on that very card. CPU as if it were on the node."""
    percent = rows.percent - (100 if ask.whole else ask.percent)
    return replace(
        rows,
        free=rows.free - needs(rows, ask),
        percent=percent,
        empty=np.zeros_like(rows.empty),
        cpu=rows.cpu - ask.cpu,
    )


def after(rows: Rows, ask: Ask, cards: Bools) -> Rows:
    """The nodes with the ask on the named cards."""
    then = touched(rows, ask)
    return replace(
        then,
        free=np.where(cards, then.free, rows.free),
        percent=np.where(cards, then.percent, rows.percent),
        empty=rows.empty & ~cards,
    )
