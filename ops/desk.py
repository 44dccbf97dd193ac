"""Where the ops role asks the database for people: so many questions at once; others wait, but not for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from ops.asking import in_daemon_thread
from storage.errors import StorageUnavailable
from storage.transactions import Store

Answer = TypeVar("Answer")

PLACES = 8  # connections at most, each used by one question at a time
PATIENCE_SECONDS = 3.0  # for a place: then the database is too slow for what is asked of it


class Desk:
    """Blocking work on the database, for a loop that must not block."""

    def __init__(self, url: str, application: str, statement_seconds: float) -> None:
        self.store = Store(url, application, statement_seconds, connections=PLACES)
        self._places = asyncio.Semaphore(PLACES)

    async def run(self, work: Callable[[sa.Connection], Answer]) -> Answer:
        """What `work` returns, committed. Raises what it raises, and StorageUnavailable."""
        return await self.do(lambda store: store.run(work))

    async def do(self, work: Callable[[Store], Answer]) -> Answer:
        """The same for work in several transactions, of which one is open at a time."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._places.acquire()
        except TimeoutError as problem:
            raise StorageUnavailable("the database has too much to answer") from problem
        try:
            return await in_daemon_thread(lambda: work(self.store))
        finally:
            self._places.release()

    def close(self) -> None:
        """The connections that are not in use are gone."""
        self.store.close()
