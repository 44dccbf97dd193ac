"""Transactions for what people do: one connection at a time, every wait bounded, foreign errors translated.

The nouns beside this module (partners, destinations, subscriptions, events, replays) are functions on a `sa.Connection`
inside one of these transactions. The hot statements of ingest and workers do not come this way.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
import sqlalchemy as sa

from storage.database import settings
from storage.errors import StorageUnavailable, first_line, translate

Result = TypeVar("Result")

READ_SECONDS = 60  # a listing over a long log may scan; a person waits for it, nobody's webhook does
TRIES = 5
# deadlock, serialization failure, lock not available: the work of another transaction, not a defect of this one
PASSING = frozenset({"40P01", "40001", "55P03"})
OLD_SCHEMA = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction)


class Store:
    """The database as people's commands use it: one connection unless more are asked for, opened when first needed."""

    __slots__ = ("_engine",)

    def __init__(
        self,
        url: str,
        application: str = "hookyard cli",
        statement_seconds: float = READ_SECONDS,
        connections: int = 1,
    ) -> None:
        arguments = settings(application)
        arguments["options"] += f" -c statement_timeout={int(statement_seconds * 1000)}"
        self._engine = sa.create_engine(
            sqlalchemy_url(url), connect_args=arguments, pool_size=connections, max_overflow=0, pool_pre_ping=True
        )

    @contextlib.contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """One transaction: committed at the end, rolled back by an exception.

        Raises: StorageUnavailable (whether it was done may be unknown), BadData.
        """
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.DBAPIError as problem:
            raise _named(problem) from problem

    def run(self, work: Callable[[sa.Connection], Result]) -> Result:
        """What `work` returns, committed. It is run again where another transaction was in its way."""
        import tenacity

        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_passing),
            stop=tenacity.stop_after_attempt(TRIES),
            wait=tenacity.wait_random(0.02, 0.3),
            reraise=True,
        )
        try:
            result: Result = tries(self._once, work)
            return result
        except sa.exc.DBAPIError as problem:
            raise _named(problem) from problem

    def close(self) -> None:
        """The connection is gone."""
        self._engine.dispose()

    def _once(self, work: Callable[[sa.Connection], Result]) -> Result:
        with self._engine.begin() as connection:
            return work(connection)


def sqlalchemy_url(url: str) -> sa.URL:
    """The same database for SQLAlchemy: `postgresql://` by psycopg 3."""
    return sa.make_url(url).set(drivername="postgresql+psycopg")


def _is_passing(problem: BaseException) -> bool:
    return isinstance(problem, sa.exc.DBAPIError) and getattr(problem.orig, "sqlstate", None) in PASSING


def _named(problem: sa.exc.DBAPIError) -> Exception:
    if isinstance(problem.orig, OLD_SCHEMA):
        return StorageUnavailable("the database does not have the schema of this version: run `hookyard migrate`")
    if isinstance(problem.orig, psycopg.Error):
        return translate(problem.orig)
    return StorageUnavailable(f"database: {first_line(problem.orig or problem)}")
