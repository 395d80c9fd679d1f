"""The ledger: who held which slice, from when to when, as the cluster told it.

Two tables in any database that SQLAlchemy knows. ``gpushare_slices`` has a row for each stay of a
pod on a card, ``gpushare_grants`` one for each GiB-hour that an admin gave or took. What is counted
is what the extender says is allocated, never what the Hub believes, so a Hub that was away for an
hour charges the hour of a slice that is still there, and nothing for what it never saw.

Times are seconds since 1970, sizes MiB. Everything here blocks; the Hub calls it from a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

_META = sql.MetaData()

SLICES = sql.Table(
    "gpushare_slices",
    _META,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("uid", sql.String(64), nullable=False),
    sql.Column("card", sql.String(80), nullable=False),
    sql.Column("user", sql.String(255), nullable=False),
    sql.Column("namespace", sql.String(63), nullable=False),
    sql.Column("pod", sql.String(253), nullable=False),
    sql.Column("node", sql.String(253), nullable=False),
    sql.Column("model", sql.String(120), nullable=False),
    sql.Column("mib", sql.Integer, nullable=False),
    sql.Column("percent", sql.Integer, nullable=False),
    sql.Column("started", sql.Float(53), nullable=False),
    # Empty as long as the slice is held; it has then been seen last at the last look.
    sql.Column("ended", sql.Float(53), nullable=True),
    sql.Index("gpushare_slices_user", "user", "started"),
    sql.Index("gpushare_slices_ended", "ended"),
)
GRANTS = sql.Table(
    "gpushare_grants",
    _META,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("user", sql.String(255), nullable=False, index=True),
    sql.Column("at", sql.Float(53), nullable=False),
    sql.Column("gib_hours", sql.Float(53), nullable=False),
    sql.Column("by", sql.String(255), nullable=False),
    sql.Column("note", sql.String(400), nullable=False),
)
LOOKS = sql.Table(
    "gpushare_looks",
    _META,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("at", sql.Float(53), nullable=False),
)


class LedgerError(Exception):
    """The database cannot be used. The text names the setting."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds of one card now. ``user`` is '' where it is nobody's notebook."""

    uid: str
    card: str
    user: str
    namespace: str
    pod: str
    node: str
    model: str
    mib: int
    percent: int


@dataclass(frozen=True, slots=True)
class Stay:
    """A holding with its time. ``ended`` is None while it lasts; ``until`` is when it was seen last."""

    holding: Holding
    started: float
    ended: float | None
    until: float

    def gib_hours(self, start: float, end: float) -> float:
        """What it used of the memory between two times."""
        seconds = min(self.until, end) - max(self.started, start)
        return max(0.0, seconds) / 3600 * self.holding.mib / 1024


@dataclass(frozen=True, slots=True)
class Grant:
    """GiB-hours that an admin gave (or, negative, took): they count in the windows of their time."""

    user: str
    at: float
    gib_hours: float
    by: str
    note: str


class Ledger:
    """One database. Raises LedgerError; safe to use from several threads and processes.

    One process alone may call ``look``: the Hub.
    """

    def __init__(self, url: str) -> None:
        try:
            self._engine = _engine(url)
            _META.create_all(self._engine)
        except (SQLAlchemyError, ArgumentError, NoSuchModuleError, ImportError) as error:
            raise LedgerError(
                f"GPUShareSpawner.ledger_url: the database cannot be used: {_first_line(error)}"
            ) from None
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], tuple[int, Holding]] | None = None
        self._looked = 0.0

    def close(self) -> None:
        self._engine.dispose()

    # Writing

    def look(self, holdings: Iterable[Holding], now: float) -> None:
        """Take down what the cluster holds now.

        A slice that is gone ended when it was seen last: nobody is charged for time in which
        nobody looked. A clock that goes backwards is waited for.
        """
        with self._lock, self._begin() as database:
            if self._open is None:
                self._open = _still_open(database)
                self._looked = _last_look(database)
            now = max(now, self._looked)
            current = {(one.uid, one.card): one for one in holdings}
            ended = [k for k, (_, one) in self._open.items() if current.get(k) != one]
            if ended:
                self._end(database, [self._open[key][0] for key in ended])
            gone = {key: self._open.pop(key) for key in ended}
            try:
                for key, one in current.items():
                    if key not in self._open:
                        self._open[key] = (_insert(database, one, now), one)
                _set_look(database, now)
            except SQLAlchemyError:
                self._open = None  # read again what of it is in the database
                gone.clear()
                raise
            self._looked = now

    def grant(self, grant: Grant) -> None:
        with self._begin() as database:
            database.execute(
                GRANTS.insert().values(
                    user=grant.user,
                    at=grant.at,
                    gib_hours=grant.gib_hours,
                    by=grant.by,
                    note=grant.note[:400],
                )
            )

    def forget_before(self, when: float) -> int:
        """Delete stays that ended, and grants that were made, before ``when``; how many."""
        with self._begin() as database:
            stays = database.execute(SLICES.delete().where(SLICES.c.ended < when))
            grants = database.execute(GRANTS.delete().where(GRANTS.c.at < when))
            return int(stays.rowcount + grants.rowcount)

    # Reading

    def looked(self) -> float:
        """When somebody looked last; 0 for never."""
        with self._begin() as database:
            return _last_look(database)

    def stays(
        self,
        start: float,
        end: float,
        users: Iterable[str] | None = None,
        namespaces: Iterable[str] | None = None,
    ) -> list[Stay]:
        """All stays that touch the time between ``start`` and ``end``, the oldest first."""
        table = SLICES.c
        query = (
            sql.select(SLICES)
            .where(table.started < end)
            .where(sql.or_(table.ended.is_(None), table.ended > start))
            .order_by(table.started, table.id)
        )
        if users is not None:
            query = query.where(table.user.in_(list(users)))
        if namespaces is not None:
            query = query.where(table.namespace.in_(list(namespaces)))
        with self._begin() as database:
            last = _last_look(database)
            return [_stay(row, last) for row in database.execute(query).mappings()]

    def gib_hours(
        self,
        start: float,
        end: float,
        users: Iterable[str] | None = None,
        namespaces: Iterable[str] | None = None,
    ) -> dict[str, float]:
        """What each user used of the cards' memory between two times, grants not taken off."""
        used: dict[str, float] = {}
        for stay in self.stays(start, end, users, namespaces):
            user = stay.holding.user
            used[user] = used.get(user, 0.0) + stay.gib_hours(start, end)
        return used

    def grants(self, start: float, end: float, users: Iterable[str] | None = None) -> list[Grant]:
        query = (
            sql.select(GRANTS)
            .where(GRANTS.c.at >= start)
            .where(GRANTS.c.at < end)
            .order_by(GRANTS.c.at, GRANTS.c.id)
        )
        if users is not None:
            query = query.where(GRANTS.c.user.in_(list(users)))
        with self._begin() as database:
            rows = database.execute(query).mappings()
            return [Grant(r["user"], r["at"], r["gib_hours"], r["by"], r["note"]) for r in rows]

    def releases(self, start: float, end: float) -> list[Stay]:
        """Stays that ended between two times: how often slices come back."""
        query = (
            sql.select(SLICES)
            .where(SLICES.c.ended >= start)
            .where(SLICES.c.ended < end)
            .limit(5000)
        )
        with self._begin() as database:
            return [_stay(row, 0.0) for row in database.execute(query).mappings()]

    @staticmethod
    def _end(database: Connection, ids: list[int]) -> None:
        last = _last_look(database)
        for i in range(0, len(ids), 500):
            some = ids[i : i + 500]
            database.execute(SLICES.update().where(SLICES.c.id.in_(some)).values(ended=last))

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as database:
                yield database
        except SQLAlchemyError as error:
            raise LedgerError(f"the ledger's database: {_first_line(error)}") from None


def _engine(url: str) -> Engine:
    parsed = sql.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return sql.create_engine(parsed, pool_pre_ping=True)
    if not parsed.database or parsed.database == ":memory:":
        shared = {"check_same_thread": False}
        return sql.create_engine(parsed, poolclass=StaticPool, connect_args=shared)
    engine = sql.create_engine(parsed, connect_args={"timeout": 10})

    @sql.event.listens_for(engine, "connect")
    def _readers_do_not_block(connection: object, _: object) -> None:
        cursor = connection.cursor()  # type: ignore[attr-defined]
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.close()

    return engine


def _still_open(database: Connection) -> dict[tuple[str, str], tuple[int, Holding]]:
    rows = database.execute(sql.select(SLICES).where(SLICES.c.ended.is_(None))).mappings()
    return {(row["uid"], row["card"]): (row["id"], _holding(row)) for row in rows}


def _insert(database: Connection, one: Holding, now: float) -> int:
    values = {name: getattr(one, name) for name in Holding.__slots__}
    made = database.execute(SLICES.insert().values(**values, started=now))
    key = made.inserted_primary_key
    assert key is not None
    return int(key[0])


def _last_look(database: Connection) -> float:
    found = database.execute(sql.select(LOOKS.c.at).where(LOOKS.c.id == 1)).scalar()
    return float(found or 0.0)


def _set_look(database: Connection, now: float) -> None:
    done = database.execute(LOOKS.update().where(LOOKS.c.id == 1).values(at=now))
    if not done.rowcount:
        database.execute(LOOKS.insert().values(id=1, at=now))


def _stay(row: Mapping[str, object] | sql.RowMapping, last: float) -> Stay:
    ended = row["ended"]
    started = float(row["started"])  # type: ignore[arg-type]
    until = float(ended) if ended is not None else max(last, started)  # type: ignore[arg-type]
    return Stay(_holding(row), started, None if ended is None else until, until)


def _holding(row: Mapping[str, object] | sql.RowMapping) -> Holding:
    return Holding(*(row[name] for name in Holding.__slots__))  # type: ignore[arg-type]


def _first_line(error: BaseException) -> str:
    """Without the statement and the link to SQLAlchemy's pages."""
    return str(getattr(error, "orig", None) or error).splitlines()[0][:300]
