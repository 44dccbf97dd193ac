"""One hot connection: set-based statements, reconnected by itself, every wait bounded.

A process keeps one such connection per flow of statements (ingest's commits, the journal, dispatch); a second one for
the same flow gains nothing. The administration of partners and destinations goes through SQLAlchemy instead.
"""

import asyncio
import contextlib
import os
import socket
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from storage.errors import BadData, LeaseLost, StorageUnavailable, first_line, translate

Row = TypeVar("Row")

CONNECT_SECONDS = 3
STATEMENT_MS = 4000  # a batch takes milliseconds; what takes this long waits for a lock or a dying disk
LOCK_MS = 2000
SILENCE_SECONDS = 2.0  # beyond that: a server that vanished without a word says nothing at all


def settings(
    application: str, statement_seconds: float = STATEMENT_MS / 1000, *, durable: bool = True
) -> dict[str, Any]:
    """Connection parameters: UTC, durable commits (or such that a later durable one makes them so), no wait without a
    bound."""
    options = {
        "timezone": "UTC",
        "synchronous_commit": "on" if durable else "off",
        "statement_timeout": int(statement_seconds * 1000),
        "lock_timeout": LOCK_MS,
        "idle_in_transaction_session_timeout": 2000,
    }
    return {
        "application_name": application,
        "connect_timeout": CONNECT_SECONDS,
        "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 8000,
    }


class Connection:
    """An autocommit connection for statements that are a transaction each; used by one task at a time."""

    def __init__(
        self, url: str, application: str, statement_seconds: float = STATEMENT_MS / 1000, *, durable: bool = True
    ) -> None:
        self._url, self._statement_seconds = url, statement_seconds
        self._settings = settings(application, statement_seconds, durable=durable)
        self._connection: psycopg.AsyncConnection[TupleRow] | None = None
        self._lock = asyncio.Lock()
        self.available = False

    async def fetch(self, query: str, parameters: Sequence[Any] = ()) -> list[TupleRow]:
        """The rows of one statement, committed.

        Raises: StorageUnavailable (whether it was done may be unknown), BadData, LeaseLost.
        """

        async def run(connection: psycopg.AsyncConnection[TupleRow]) -> list[TupleRow]:
            cursor = await connection.execute(query, parameters, prepare=True, binary=True)
            return await cursor.fetchall() if cursor.description else []

        return await self._use(run)

    async def close(self) -> None:
        """The connection is gone; the next use would open another."""
        connection, self._connection = self._connection, None
        self.available = False
        if connection is not None:
            await connection.close()

    async def _use(self, work: Callable[[psycopg.AsyncConnection[TupleRow]], Awaitable[Row]]) -> Row:
        async with self._lock:
            try:
                async with asyncio.timeout(self._statement_seconds + SILENCE_SECONDS):
                    connection = await self._open()
                silence = asyncio.get_running_loop().call_later(
                    self._statement_seconds + SILENCE_SECONDS, _cut, connection.pgconn.socket
                )
                try:
                    result = await work(connection)
                finally:
                    silence.cancel()
            except psycopg.Error as problem:
                known = translate(problem)
                if not isinstance(known, BadData | LeaseLost):
                    await self._drop()
                raise known from problem
            except (OSError, TimeoutError) as problem:
                await self._drop()
                raise StorageUnavailable(f"database: {first_line(problem)}") from problem
            except asyncio.CancelledError:
                await self._drop()
                raise
            self.available = True
            return result

    async def _open(self) -> psycopg.AsyncConnection[TupleRow]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **self._settings)
            except BaseException as problem:
                # Else a login cut short stays open, in the server's way, for as long as anybody remembers this.
                traceback.clear_frames(problem.__traceback__)
                raise
        return self._connection

    async def _drop(self) -> None:
        """After trouble the session may be anywhere in a statement: it is not used again."""
        connection, self._connection = self._connection, None
        self.available = False
        if connection is not None:
            # pgconn.finish closes the socket at once; close() of a busy connection could wait for the server
            connection.pgconn.finish()


def _cut(descriptor: int) -> None:
    """The connection has broken, for whoever waits on it. Cancelling the wait instead would have psycopg ask the silent
    server to cancel the statement, and wait for that answer too."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as line:
        line.shutdown(socket.SHUT_RDWR)
