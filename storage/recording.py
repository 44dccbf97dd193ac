"""What a process counted goes into the history, once a minute: see `storage.history`. Nothing waits for it."""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from domain.tallies import Subject, Tally
from storage.database import Connection
from storage.errors import BadData, StorageUnavailable

PENDING_MINUTES = 60  # kept while the database is away
LAST_WORD_SECONDS = 1.0

WRITE = """
INSERT INTO history (minute, kind, name, role, source, figures)
SELECT %s, kind, name, %s, %s, figures FROM unnest(%s::text[], %s::text[], %s::jsonb[]) AS t (kind, name, figures)
ON CONFLICT DO NOTHING
"""


class Recorder:
    """Writes what a process of this role counts, once a minute. `source` is the process's name, unlike any other's."""

    def __init__(self, url: str, role: str, source: str, tally: Tally, clock: Callable[[], float] = time.time) -> None:
        self._connection = Connection(url, f"hookyard history {role}")
        self._role, self._source, self._tally, self._clock = role, source, tally, clock
        self._pending: deque[tuple[datetime, dict[Subject, dict[str, int]]]] = deque(maxlen=PENDING_MINUTES)

    async def run(self) -> None:
        """Until cancelled; then what was counted since is written too, if the database takes it at once."""
        try:
            while True:
                now = self._clock()
                await asyncio.sleep(60 - now % 60 + 0.05)
                await self.write(datetime.fromtimestamp(now // 60 * 60, UTC))
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_SECONDS):
                    await self.write(datetime.fromtimestamp(self._clock() // 60 * 60, UTC))

    async def write(self, minute: datetime) -> None:
        """What was counted since the last time is in the history, as of this minute; or waits for the database."""
        self._pending.append((minute, self._tally.take()))
        with contextlib.suppress(StorageUnavailable, BadData):
            while self._pending:
                minute, taken = self._pending[0]
                rows = columns(taken)
                await self._connection.fetch(WRITE, (minute, self._role, self._source, *rows))
                self._pending.popleft()
        await self._connection.close()


def columns(taken: Mapping[Subject, Mapping[str, Any]]) -> tuple[list[str], list[str], list[str]]:
    """The rows of a minute, column by column."""
    subjects: Iterable[Subject] = taken
    return [kind for kind, _ in subjects], [name for _, name in subjects], [json.dumps(f) for f in taken.values()]
