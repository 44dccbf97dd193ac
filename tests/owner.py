"""An owner by hand, and transactions held open: what workers and ingest do to the database, one step at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from domain.lifecycle import Delivery
from storage import lanes, leases
from storage.database import Connection
from storage.lanes import Begun, Claim, Dispatched, Outcome, Saved

SPAN = timedelta(minutes=1)


@dataclass(slots=True)
class Owner:
    """A worker's lease and one connection."""

    connection: Connection
    token: UUID = field(default_factory=uuid4)

    async def tend(self, span: timedelta = SPAN) -> leases.Lease:
        return await leases.tend(self.connection, self.token, "by hand", span)

    async def dispatch(self, *partners: int, limit: int = 1000) -> list[Dispatched]:
        return await lanes.dispatch(self.connection, self.token, dict.fromkeys(partners, True), limit)

    async def claim(self, *claims: Claim) -> list[Begun]:
        return (await lanes.save(self.connection, self.token, [], claims))[1]

    async def end(self, *outcomes: Outcome) -> list[Saved]:
        return (await lanes.save(self.connection, self.token, outcomes, []))[0]


def a_claim(event: Dispatched, destination: int, token: UUID | None = None, budget_ms: int = 1000) -> Claim:
    """Asks to begin an attempt of this event."""
    return Claim(event.partner_id, destination, event.sequence, event.received_at, token or uuid4(), budget_ms)


def an_outcome(claim: Claim, after: Delivery, **told: Any) -> Outcome:
    """The end of a claimed attempt."""
    values = {
        "evidence": 1,
        "outcome": "success",
        "number": 1,
        "duration_ms": 5,
        "ended_at": time.monotonic(),
        "status": 200,
        "error": None,
        "note": None,
        "answer": None,
    }
    place = (claim.partner_id, claim.destination_id, claim.sequence, claim.received_at)
    return Outcome(*place, after, **(values | told))  # type: ignore[arg-type]


@dataclass(slots=True)
class Elsewhere:
    """Somebody else at the same database, with transactions that stay open as long as the test wants."""

    url: str
    open: contextlib.AsyncExitStack

    async def transaction(self, statement: str = "SELECT 1", *values: Any) -> psycopg.AsyncConnection[Any]:
        """An open transaction in which the statement was run; whoever holds it commits or rolls back."""
        connection = await psycopg.AsyncConnection.connect(self.url)
        self.open.push_async_callback(connection.close)
        await connection.execute(statement.encode(), values)
        return connection

    async def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What is committed, as seen from outside."""
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def until(self, query: str, *values: Any, seconds: float = 10) -> list[tuple[Any, ...]]:
        """The first rows that the query answers."""
        async with asyncio.timeout(seconds):
            while not (rows := await self.rows(query, *values)):
                await asyncio.sleep(0.01)
        return rows

    async def until_blocked(self, application: str, n: int = 1) -> list[int]:
        """The backends of this application that wait for a lock, once there are n."""
        query = """SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'
                   AND datname = current_database() HAVING count(*) >= %s"""
        ((pids,),) = await self.until(query, application, n)
        return list(pids)

    async def commits_wait(self, table: str) -> psycopg.AsyncConnection[Any]:
        """From now on a COMMIT that updated this table waits until this connection is closed or rolled back."""
        await self.rows("""CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS
                           $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$""")
        await self.rows(f"""CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED
                            FOR EACH ROW EXECUTE FUNCTION wait_at_commit()""")
        return await self.transaction("SELECT pg_advisory_xact_lock(1)")


def loses_answer(connection: Connection, to: str, error: Exception) -> Callable[[], int]:
    """The next statement that contains `to` is committed, and its answer lost. How many statements did since."""
    real, seen = connection.fetch, 0

    async def fetch(query: str, parameters: Any = ()) -> list[Any]:
        nonlocal seen
        rows = await real(query, parameters)
        if to in query:
            seen += 1
            if seen == 1:
                raise error
        return rows

    connection.fetch = fetch  # type: ignore[method-assign]
    return lambda: seen


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)


@pytest.fixture
async def elsewhere(database_url: str) -> AsyncIterator[Elsewhere]:
    """Closes all that was left open."""
    async with contextlib.AsyncExitStack() as stack:
        yield Elsewhere(database_url, stack)


@pytest.fixture
async def make_owner(database_url: str) -> AsyncIterator[Callable[[], Owner]]:
    """Makes owners."""
    owners: list[Owner] = []

    def make() -> Owner:
        owners.append(Owner(Connection(database_url, "hookyard owner")))
        return owners[-1]

    yield make
    for owner in owners:
        await owner.connection.close()


@pytest.fixture
async def owner(make_owner: Callable[[], Owner]) -> Owner:
    """The owner of every shard."""
    made = make_owner()
    await made.tend()
    return made
