"""The gate of a destination: its breaker, as a row that holds for the whole system (promise P9).

Every change is a compare-and-set on the row's version; whoever loses learns of it by the poll.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from storage.database import Connection

GateRow = tuple[int, str, datetime | None, UUID | None, datetime | None, datetime | None, int]

READ = """
SELECT destination_id, breaker, opened_at, probe_token, probe_expires_at, closed_at, version
FROM gates g JOIN destinations d ON d.id = g.destination_id
WHERE (g.breaker <> 'closed' AND d.removed_at IS NULL) OR g.destination_id = ANY (%s::int[])
"""
CHANGE = """
UPDATE gates SET breaker = %s, opened_at = %s, probe_token = %s, probe_expires_at = %s, closed_at = %s, version = %s
WHERE destination_id = %s AND version = %s RETURNING 1
"""
LATE = """
SELECT d.id FROM gates g JOIN destinations d ON d.id = g.destination_id
WHERE g.failed_at - g.failing_since >= d.suspend_after_ms * interval '1 ms'
    AND d.state = 'active' AND d.removed_at IS NULL
"""
SHARED = """
SELECT l.destination_id, count(DISTINCT s.owner) FROM lanes l
JOIN partners p ON p.id = l.partner_id JOIN shards s ON s.shard = p.shard
WHERE s.owner IS NOT NULL AND (l.active OR l.waiting > 0)
GROUP BY l.destination_id HAVING count(DISTINCT s.owner) > 1
"""


async def read(connection: Connection, also: Collection[int]) -> list[GateRow]:
    """The breakers of living destinations that are not closed, and those of the ones named, whatever they are."""
    rows = await connection.fetch(READ, (list(also),))
    return [
        (d, breaker, opened, token, expires, closed, version)
        for d, breaker, opened, token, expires, closed, version in rows
    ]


async def change(connection: Connection, row: GateRow) -> bool:
    """The row is as given, whose version is one more than the one it was derived from; False: it had moved on."""
    destination_id, breaker, opened, token, expires, closed, version = row
    parameters = (breaker, opened, token, expires, closed, version, destination_id, version - 1)
    return bool(await connection.fetch(CHANGE, parameters))


async def failing_too_long(connection: Connection) -> list[int]:
    """Destinations whose every attempt failed for longer than their `suspend_after`."""
    return [destination_id for (destination_id,) in await connection.fetch(LATE)]


async def shared(connection: Connection) -> dict[int, int]:
    """How many workers own lanes to a destination, where it is more than one."""
    return dict(await connection.fetch(SHARED))
