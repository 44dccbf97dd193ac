"""Long work that people asked for, in the background of the ops process: a few at once, its numbers in rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from ops.asking import in_daemon_thread
from storage.errors import Conflict, Invalid, NotFound, StorageUnavailable
from storage.transactions import Store

PLACES = 4
TOLD = (Conflict, Invalid, NotFound)  # who asked has heard of it: nothing began


class Background:
    """Holds what runs until it ends."""

    def __init__(self, url: str) -> None:
        self._store = Store(url, "hookyard ops bulk", connections=PLACES)
        self._running: set[asyncio.Task[Any]] = set()

    def begin(self, work: Callable[[Store], Any]) -> asyncio.Task[Any]:
        """The work as a task that nobody has to wait for. Raises: StorageUnavailable while enough is going on."""
        if len(self._running) >= PLACES:
            raise StorageUnavailable(f"{PLACES} replays, discards or backfills are going on: wait for one to end")
        task = asyncio.create_task(in_daemon_thread(lambda: work(self._store)))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def close(self) -> None:
        """The connections that are not in use are gone."""
        self._store.close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, TOLD):
            structlog.get_logger("ops").warning("bulk.ended", problem=f"{type(problem).__name__}: {problem}")
