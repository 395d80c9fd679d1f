"""GPU-GiB-hours as tables: by day, user, group, namespace and card model, as rows or CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from hub_integration.accounting.metering import Hours, Key, days
from hub_integration.quota.ledger import Stay

DIMENSIONS = ("day", "user", "group", "namespace", "model")
AMOUNTS = ("given", "used", "busy", "idle", "unknown")
Row = dict[str, str | float]
Groups = Mapping[tuple[str, str], Iterable[str]]


def given_of_stays(stays: Iterable[Stay], start: float, end: float) -> dict[Key, float]:
    """How long the quota ledger says slices were held, by day."""
    given: dict[Key, float] = {}
    for stay in stays:
        held = stay.holding
        since, until = max(start, stay.started), min(end, stay.until)
        for day, hours in days(since, until):
            key = Key(day, held.user, held.namespace, held.model)
            given[key] = given.get(key, 0.0) + hours * held.mib / 1024
    return given


def rows(
    measured: Mapping[Key, Hours],
    given: Mapping[Key, float] | None,
    groups: Groups,
    by: Sequence[str],
    user: str | None = None,
) -> list[Row]:
    """The hours summed up by the dimensions in ``by``; those of one user for ``user``.

    ``given`` is the ledger's; without one, what was looked at counts as given. A user in several
    groups counts in each of them, so the sum over groups may be more than the whole. Raises
    ValueError for a dimension that there is not.
    """
    unknown = [name for name in by if name not in DIMENSIONS]
    if unknown:
        raise ValueError(f"there is no {unknown[0]!r}: use {', '.join(DIMENSIONS)}")
    sums: dict[tuple[str, ...], list[float]] = {}
    for key in {**measured, **(given or {})}:
        if user is not None and key.user != user:
            continue
        hours = measured.get(key, Hours())
        total = hours.given if given is None else max(given.get(key, 0.0), hours.busy + hours.idle)
        amounts = (total, hours.used, hours.busy, hours.idle, total - hours.busy - hours.idle)
        for place in _places(key, groups, by):
            entry = sums.setdefault(place, [0.0] * len(AMOUNTS))
            for i, amount in enumerate(amounts):
                entry[i] += amount
    return [
        {
            **dict(zip(by, place, strict=True)),
            **{name: round(amount, 6) for name, amount in zip(AMOUNTS, entry, strict=True)},
        }
        for place, entry in sorted(sums.items())
    ]


def _places(key: Key, groups: Groups, by: Sequence[str]) -> list[tuple[str, ...]]:
    """Where the hours of ``key`` count: in each of the user's groups, if groups are asked for."""
    names = sorted(groups.get((key.day, key.user), ())) or [""] if "group" in by else [""]
    return [
        tuple(name if part == "group" else str(getattr(key, part)) for part in by) for name in names
    ]


def as_csv(table: Sequence[Row], by: Sequence[str]) -> str:
    """With a header; what a spreadsheet would take for a formula is quoted as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*by, *(f"{name}_gib_hours" for name in AMOUNTS)])
    for row in table:
        names = [_plain(str(row[name])) for name in by]
        writer.writerow([*names, *(row[name] for name in AMOUNTS)])
    return out.getvalue()


def _plain(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def window(first: str, last: str, now: datetime) -> tuple[str, str, float, float]:
    """The days asked for, and their bounds in seconds since 1970. '' means the last 30 days.

    Raises ValueError for what is no day, or an end before its beginning.
    """
    today = now.astimezone(UTC).date()
    end = _day(last, "to") if last else today
    start = _day(first, "from") if first else end - timedelta(days=29)
    if start > end:
        raise ValueError(f"'from' ({start}) is after 'to' ({end})")
    begin = datetime(start.year, start.month, start.day, tzinfo=UTC)
    until = datetime(end.year, end.month, end.day, tzinfo=UTC) + timedelta(days=1)
    return start.isoformat(), end.isoformat(), begin.timestamp(), until.timestamp()


def _day(text: str, what: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise ValueError(f"'{what}' is no day: write it as 2026-03-01") from None
