"""What the culler remembers across restarts: warnings, holds, and every slice that it took back.

Three tables in any database that SQLAlchemy knows, beside those of the quota ledger if that is the
same one. Times are seconds since 1970 UTC. Writes are few and small, so they are done in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

_META = sql.MetaData()
_NAME, _SENTENCE = 255, 1000

_CLOCKS = sql.Table(
    "gpushare_culler_clocks",
    _META,
    sql.Column("user", sql.String(_NAME), primary_key=True),
    sql.Column("server", sql.String(_NAME), primary_key=True),
    sql.Column("started", sql.Float(53), nullable=False),
    sql.Column("warned_at", sql.Float(53)),
    sql.Column("held_until", sql.Float(53)),
    sql.Column("held_seconds", sql.Float(53), nullable=False),
    sql.Column("posted", sql.Float(53)),
    sql.Column("used_before_post", sql.Float(53)),
    sql.Column("gpu_used", sql.Float(53)),
    sql.Column("gpu_seen", sql.Float(53)),
)
_RECLAIMS = sql.Table(
    "gpushare_reclaims",
    _META,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("kind", sql.String(16), nullable=False),
    sql.Column("user", sql.String(_NAME), nullable=False, index=True),
    sql.Column("server", sql.String(_NAME), nullable=False),
    sql.Column("started", sql.Float(53), nullable=False),
    sql.Column("namespace", sql.String(63), nullable=False),
    sql.Column("pod", sql.String(253), nullable=False),
    sql.Column("uid", sql.String(64), nullable=False),
    sql.Column("node", sql.String(253), nullable=False),
    sql.Column("models", sql.String(_SENTENCE), nullable=False),
    sql.Column("mib", sql.Integer, nullable=False),
    sql.Column("reason", sql.String(64), nullable=False),
    sql.Column("sentence", sql.String(_SENTENCE), nullable=False),
    sql.Column("state", sql.String(16), nullable=False, index=True),
    sql.Column("decided_at", sql.Float(53), nullable=False, index=True),
    sql.Column("asked_at", sql.Float(53)),
    sql.Column("stopped_at", sql.Float(53)),
    sql.Column("freed_at", sql.Float(53)),
    sql.Column("confirmed", sql.Boolean, nullable=False),
    sql.Column("returned_at", sql.Float(53)),
    sql.Column("alarm", sql.String(64), nullable=False),
    sql.Column("alarm_text", sql.String(_SENTENCE), nullable=False),
    sql.Column("alarm_since", sql.Float(53)),
)


class MemoryFailed(Exception):
    """The database cannot be used. The text names the setting."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What is known of one server beside what the Hub says. It belongs to one start of it.

    ``posted`` is the activity that the bridge wrote last, ``used_before_post`` the real one before
    that. ``gpu_used``: the last kernel seen; ``gpu_seen``: when the GPU was measured last.
    """

    user: str
    server: str
    started: float
    warned_at: float | None = None
    held_until: float | None = None
    held_seconds: float = 0.0
    posted: float | None = None
    used_before_post: float | None = None
    gpu_used: float | None = None
    gpu_seen: float | None = None


class State(StrEnum):
    """How far a reclaim is. The values are part of the API."""

    DRY_RUN = "dry-run"
    STOPPING = "stopping"
    LEAVING = "leaving"
    STUCK = "stuck"
    FREED = "freed"
    ABANDONED = "abandoned"

    @property
    def open(self) -> bool:
        return self in (State.STOPPING, State.LEAVING, State.STUCK)


@dataclass(frozen=True, slots=True)
class Reclaim:
    """One end that the culler decided, and what became of it.

    ``kind``: 'server', 'kernel' or 'workload'. ``started``: of the server that was ended.
    ``confirmed``: the node measured that nothing of the pod is left on the cards.
    ``returned_at``: when the same server was started again. ``alarm`` is '' while all is well.
    """

    kind: str
    user: str
    server: str
    started: float
    namespace: str
    pod: str
    uid: str
    node: str
    models: tuple[str, ...]
    mib: int
    reason: str
    sentence: str
    state: State
    decided_at: float
    asked_at: float | None = None
    stopped_at: float | None = None
    freed_at: float | None = None
    confirmed: bool = False
    returned_at: float | None = None
    alarm: str = ""
    alarm_text: str = ""
    alarm_since: float | None = None
    id: int = 0

    @property
    def gib(self) -> float:
        return self.mib / 1024

    @property
    def who(self) -> str:
        if not self.user:
            return f"{self.namespace}/{self.pod}"
        return f"{self.user}/{self.server}" if self.server else self.user

    def given_back(self, now: float, most: float) -> float:
        """GiB-hours that the slice has been free for others because of this end.

        Until the same server was started again, and for ``most`` seconds at most: nobody can say
        how much longer it would have stayed.
        """
        if self.kind == "kernel" or self.freed_at is None:
            return 0.0
        until = min(now, self.freed_at + most)
        if self.returned_at is not None:
            until = min(until, self.returned_at)
        return max(0.0, until - self.freed_at) / 3600 * self.gib


class Memory:
    """One database. Raises MemoryFailed when it cannot be opened."""

    def __init__(self, url: str) -> None:
        try:
            self._engine = _engine(url)
            _META.create_all(self._engine)
        except (SQLAlchemyError, ArgumentError, NoSuchModuleError, ImportError) as error:
            text = str(error).partition("\n")[0]
            raise MemoryFailed(
                f"GPUShareCuller.database: {url!r} cannot be used: {text}. Write it as SQLAlchemy "
                "does, for example sqlite:////srv/jupyterhub/gpushare-culler.sqlite, in a folder "
                "that the Hub may write to"
            ) from None
        self._clocks = {(clock.user, clock.server): clock for clock in self._read_clocks()}

    def close(self) -> None:
        self._engine.dispose()

    # Clocks

    def clock(self, user: str, server: str, started: float) -> Clock:
        """The clock of this start of the server; one of an earlier start is forgotten."""
        known = self._clocks.get((user, server))
        if known is None or abs(known.started - started) > 1:
            known = Clock(user, server, started)
        return known

    def keep(self, clocks: Iterable[Clock]) -> None:
        """These are the servers' clocks now; only what differs is written."""
        changed = [c for c in clocks if self._clocks.get((c.user, c.server)) != c]
        if not changed:
            return
        with self._engine.begin() as database:
            for clock in changed:
                _delete_clock(database, clock.user, clock.server)
                database.execute(_CLOCKS.insert().values(**asdict(clock)))
        self._clocks.update({(c.user, c.server): c for c in changed})

    def forget_clocks(self, alive: Iterable[tuple[str, str]]) -> None:
        """Only these servers run."""
        gone = self._clocks.keys() - set(alive)
        if not gone:
            return
        with self._engine.begin() as database:
            for user, server in gone:
                _delete_clock(database, user, server)
        for key in gone:
            del self._clocks[key]

    def _read_clocks(self) -> list[Clock]:
        with self._engine.begin() as database:
            return [Clock(**row) for row in database.execute(sql.select(_CLOCKS)).mappings()]

    # Reclaims

    def add(self, reclaim: Reclaim) -> Reclaim:
        """Write a new one; returned with its id."""
        with self._engine.begin() as database:
            done = database.execute(_RECLAIMS.insert().values(**_row(reclaim)))
            assert done.inserted_primary_key is not None
            return replace(reclaim, id=int(done.inserted_primary_key[0]))

    def change(self, reclaim: Reclaim) -> None:
        with self._engine.begin() as database:
            database.execute(
                _RECLAIMS.update().where(_RECLAIMS.c.id == reclaim.id).values(**_row(reclaim))
            )

    def open(self) -> list[Reclaim]:
        """Those that are not finished, the oldest first."""
        states = [state for state in State if state.open]
        query = sql.select(_RECLAIMS).where(_RECLAIMS.c.state.in_(states))
        return self._reclaims(query.order_by(_RECLAIMS.c.id))

    def recent(self, limit: int, user: str | None = None) -> list[Reclaim]:
        """The newest first."""
        query = sql.select(_RECLAIMS).order_by(_RECLAIMS.c.id.desc()).limit(limit)
        return self._reclaims(query if user is None else query.where(_RECLAIMS.c.user == user))

    def since(self, when: float, user: str | None = None) -> list[Reclaim]:
        """Those decided since then that were carried out, the oldest first."""
        query = sql.select(_RECLAIMS).where(_RECLAIMS.c.decided_at >= when)
        query = query.where(_RECLAIMS.c.state != State.DRY_RUN).order_by(_RECLAIMS.c.id)
        return self._reclaims(query if user is None else query.where(_RECLAIMS.c.user == user))

    def returned(self, user: str, server: str, started: float) -> None:
        """The server was started again: its freed slices are lent out no longer on its account."""
        table = _RECLAIMS.c
        with self._engine.begin() as database:
            database.execute(
                _RECLAIMS.update()
                .where(table.user == user, table.server == server, table.kind == "server")
                .where(table.returned_at.is_(None), table.started < started - 1)
                .values(returned_at=started)
            )

    def forget_before(self, when: float) -> None:
        """Delete finished ones that were decided before."""
        closed = [state for state in State if not state.open]
        with self._engine.begin() as database:
            database.execute(
                _RECLAIMS.delete()
                .where(_RECLAIMS.c.decided_at < when)
                .where(_RECLAIMS.c.state.in_(closed))
            )

    def _reclaims(self, query: Any) -> list[Reclaim]:
        with self._engine.begin() as database:
            return [_reclaim(dict(row)) for row in database.execute(query).mappings()]


def _delete_clock(database: sql.Connection, user: str, server: str) -> None:
    table = _CLOCKS.c
    database.execute(_CLOCKS.delete().where(table.user == user, table.server == server))


def _row(reclaim: Reclaim) -> dict[str, Any]:
    row = {f.name: getattr(reclaim, f.name) for f in fields(reclaim) if f.name != "id"}
    row["models"] = ",".join(reclaim.models)[:_SENTENCE]
    row["sentence"] = reclaim.sentence[:_SENTENCE]
    row["alarm_text"] = reclaim.alarm_text[:_SENTENCE]
    row["state"] = reclaim.state.value
    return row


def _reclaim(row: dict[str, Any]) -> Reclaim:
    row["models"] = tuple(filter(None, row["models"].split(",")))
    row["state"] = State(row["state"])
    return Reclaim(**row)


def _engine(url: str) -> Engine:
    """SQLite in memory is one connection, or each would see a database of its own."""
    if url in ("sqlite://", "sqlite:///:memory:"):
        options: dict[str, Any] = {"poolclass": StaticPool}
        return sql.create_engine(url, connect_args={"check_same_thread": False}, **options)
    return sql.create_engine(url)
