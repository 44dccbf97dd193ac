"""The log: accepts arrivals in group commits and answers each after its COMMIT."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, NamedTuple

from storage.database import Connection
from storage.errors import StorageUnavailable
from storage.groupcommit import GroupCommit
from storage.outage import Outage

Status = Literal["stored", "repeat", "backlog_full", "rate_limited", "unknown_partner"]

DEDUPE_WINDOW = timedelta(days=30)
MAX_BATCH = 256  # beyond it a batch gains little and a commit's latency grows
MAX_BATCH_BYTES = 4 << 20
LARGE_BYTES = 256 << 10  # from here on an arrival goes by a flight of its own: nobody's small event waits for its bytes
LARGE_SECONDS = 20.0  # of one statement there; 100 MiB take about 4
CAPACITY = 10_000
CAPACITY_BYTES = 128 << 20
DOUBT_SECONDS = 3.0  # after a failure to store: that the database answers does not mean that it has room

ACCEPT = (
    "SELECT * FROM accept(%b::int[], %b::bytea[], %b::text[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %s)"
)


class Arrival(NamedTuple):
    """One verified POST, ready to be stored. `digest` is None where nothing makes it the same as another."""

    partner_id: int
    shard: int
    digest: bytes | None
    type: str | None
    order_key: int | None
    headers: bytes
    query: bytes | None
    body: bytes


class Answer(NamedTuple):
    """What came of an arrival. `sequence` and `received_at` are the event's (the first one's for a repeat)."""

    status: Status
    sequence: int
    received_at: datetime | None
    conflict: bool
    retry_after: int | None  # seconds


def size_of(arrival: Arrival) -> int:
    """Its bytes."""
    return len(arrival.body) + len(arrival.headers)


class Log:
    """One per process. `announce` is called after each commit with the highest new sequence per (shard, partner),
    `outage` is told of commits that fail."""

    def __init__(
        self,
        database_url: str,
        *,
        announce: Callable[[dict[tuple[int, int], int]], None] = lambda heads: None,
        on_batch: Callable[[int], None] = lambda n: None,
        capacity: int = CAPACITY,
        capacity_bytes: int = CAPACITY_BYTES,
        outage: Outage | None = None,
    ) -> None:
        self._announce, self._outage = announce, outage or Outage()
        self._failed_at = -math.inf  # time.monotonic; since then nothing was stored
        self._connection = Connection(database_url, "hookyard ingest")
        self._large_connection = Connection(database_url, "hookyard ingest large", LARGE_SECONDS)
        self._small, self._large = (
            GroupCommit(
                partial(self._commit, connection),
                max_batch=MAX_BATCH,
                max_batch_bytes=MAX_BATCH_BYTES,
                capacity=capacity,
                capacity_bytes=capacity_bytes,
                size=size_of,
                on_batch=on_batch,
            )
            for connection in (self._connection, self._large_connection)
        )

    def accept(self, arrival: Arrival) -> Awaitable[Answer]:
        """The answer after COMMIT. Raises: QueueFull at once; StorageUnavailable if it is not known to be durable."""
        return (self._large if size_of(arrival) >= LARGE_BYTES else self._small).submit(arrival)

    async def ping(self) -> None:
        """Asks the database whether a new event could be stored. Raises: StorageUnavailable."""
        ((read_only,),) = await self._connection.fetch("SELECT current_setting('transaction_read_only') = 'on'")
        if read_only:
            await self._connection.close()  # a standby, or a server about to go: `available` must not say otherwise
            raise StorageUnavailable("database: it is read-only")
        if not self._is_in_doubt:
            self._outage.passed("log")

    async def close(self) -> None:
        """What was submitted is answered, the connection closed."""
        await asyncio.gather(self._small.close(), self._large.close())
        await asyncio.gather(self._connection.close(), self._large_connection.close())

    @property
    def available(self) -> bool:
        """The last use of the database succeeded, and it did not fail to store just now."""
        return self._connection.available and not self._is_in_doubt

    @property
    def depth(self) -> int:
        """Arrivals before their COMMIT."""
        return self._small.depth + self._large.depth

    @property
    def capacity(self) -> int:
        """The most arrivals that may wait for their COMMIT."""
        return self._small.capacity + self._large.capacity

    @property
    def _is_in_doubt(self) -> bool:
        return time.monotonic() - self._failed_at <= DOUBT_SECONDS

    async def _commit(self, connection: Connection, batch: Sequence[Arrival]) -> list[Answer]:
        try:
            answers = await self._accept(connection, batch)
        except StorageUnavailable as problem:
            self._failed_at = time.monotonic()
            self._outage.met("log", problem)
            raise
        self._failed_at = -math.inf
        self._outage.passed("log")
        return answers

    async def _accept(self, connection: Connection, batch: Sequence[Arrival]) -> list[Answer]:
        rows = await connection.fetch(
            ACCEPT,
            (
                [a.partner_id for a in batch],
                [a.digest for a in batch],
                [a.type for a in batch],
                [a.order_key for a in batch],
                [a.headers for a in batch],
                [a.query for a in batch],
                [a.body for a in batch],
                DEDUPE_WINDOW,
            ),
        )
        answers: list[Answer | None] = [None] * len(batch)
        heads: dict[tuple[int, int], int] = {}
        for ordinal, status, sequence, received_at, conflict, retry_after in rows:
            answers[ordinal - 1] = Answer(status, sequence or 0, received_at, conflict, retry_after)
            if status == "stored":
                arrival = batch[ordinal - 1]
                key = (arrival.shard, arrival.partner_id)
                heads[key] = max(heads.get(key, 0), sequence)
        if heads:
            self._announce(heads)
        if None in answers:
            raise RuntimeError("accept() answered fewer arrivals than it was given")
        return [answer for answer in answers if answer is not None]
