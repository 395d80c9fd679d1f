"""The measured hours in a database: one row a day for each user, namespace and card model.

How long slices were given is in the quota ledger, which is exact to its own looks; what stands
here is how they were used. Everything blocks; call it from a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sql
from sqlalchemy.pool import StaticPool

from hub_integration.accounting.metering import Hours, Key

_META = sql.MetaData()
_DAYS = sql.Table(
    "gpushare_use_days",
    _META,
    sql.Column("day", sql.String(10), primary_key=True),
    sql.Column("user", sql.String(255), primary_key=True),
    sql.Column("namespace", sql.String(63), primary_key=True),
    sql.Column("model", sql.String(120), primary_key=True),
    sql.Column("used", sql.Float(53), nullable=False),
    sql.Column("busy", sql.Float(53), nullable=False),
    sql.Column("idle", sql.Float(53), nullable=False),
    sql.Column("unknown", sql.Float(53), nullable=False),
)
_GROUPS = sql.Table(
    "gpushare_group_days",
    _META,
    sql.Column("day", sql.String(10), primary_key=True),
    sql.Column("user", sql.String(255), primary_key=True),
    sql.Column("name", sql.String(255), primary_key=True),
)


class Book:
    """One database, which the culler's other tables may be in as well."""

    def __init__(self, url: str) -> None:
        options: dict[str, Any] = {}
        if url in ("sqlite://", "sqlite:///:memory:"):
            options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
        self._engine = sql.create_engine(url, **options)
        _META.create_all(self._engine)
        self._groups: set[tuple[str, str, str]] = set()

    def close(self) -> None:
        self._engine.dispose()

    def add(self, hours: Mapping[Key, Hours], groups: Mapping[str, frozenset[str]]) -> None:
        """Add hours; ``groups`` are those that users are in today."""
        if not hours:
            return
        with self._engine.begin() as database:
            for key, more in hours.items():
                _add(database, key, more)
            for day, user in {(key.day, key.user) for key in hours}:
                for name in groups.get(user, ()):
                    self._add_group(database, day, user, name)

    def read(self, first: str, last: str) -> dict[Key, Hours]:
        """The hours of the days from ``first`` to ``last``, both included."""
        query = sql.select(_DAYS).where(_DAYS.c.day.between(first, last))
        with self._engine.begin() as database:
            return {
                Key(row["day"], row["user"], row["namespace"], row["model"]): Hours(
                    row["used"], row["busy"], row["idle"], row["unknown"]
                )
                for row in database.execute(query).mappings()
            }

    def groups(self, first: str, last: str) -> dict[tuple[str, str], set[str]]:
        """Which groups a user was in on a day."""
        query = sql.select(_GROUPS).where(_GROUPS.c.day.between(first, last))
        found: dict[tuple[str, str], set[str]] = {}
        with self._engine.begin() as database:
            for row in database.execute(query).mappings():
                found.setdefault((row["day"], row["user"]), set()).add(row["name"])
        return found

    def forget_before(self, day: str) -> None:
        with self._engine.begin() as database:
            database.execute(_DAYS.delete().where(_DAYS.c.day < day))
            database.execute(_GROUPS.delete().where(_GROUPS.c.day < day))

    def _add_group(self, database: sql.Connection, day: str, user: str, name: str) -> None:
        if (day, user, name) in self._groups:
            return
        where = (_GROUPS.c.day == day, _GROUPS.c.user == user, _GROUPS.c.name == name)
        if database.execute(sql.select(_GROUPS).where(*where)).first() is None:
            database.execute(_GROUPS.insert().values(day=day, user=user, name=name))
        self._groups = {entry for entry in self._groups if entry[0] == day} | {(day, user, name)}


def _add(database: sql.Connection, key: Key, more: Hours) -> None:
    table = _DAYS.c
    done = database.execute(
        _DAYS.update()
        .where(table.day == key.day, table.user == key.user)
        .where(table.namespace == key.namespace, table.model == key.model)
        .values(
            used=table.used + more.used,
            busy=table.busy + more.busy,
            idle=table.idle + more.idle,
            unknown=table.unknown + more.unknown,
        )
    )
    if done.rowcount == 0:
        database.execute(
            _DAYS.insert().values(
                day=key.day,
                user=key.user,
                namespace=key.namespace,
                model=key.model,
                used=more.used,
                busy=more.busy,
                idle=more.idle,
                unknown=more.unknown,
            )
        )
