"""What waits for a destination that takes nothing more is parked: in bulk, in order, without holding anybody up.

A chunk is one transaction: the lane's row is locked first, then its queued deliveries are parked in ascending sequence.
An attempt in flight is left alone: its worker parks it if it fails, because the destination is closed by then. All of
it is idempotent, so a sweep can finish what an interrupted command began.
"""

import sqlalchemy as sa

from domain.lifecycle import ParkReason
from storage.transactions import Store

CHUNK = 5_000  # about 100 ms under the lane's lock

LANES = sa.text(
    "SELECT partner_id FROM lanes WHERE destination_id = :destination AND waiting > in_flight ORDER BY partner_id"
)
LOCK = sa.text("SELECT FROM lanes WHERE partner_id = :partner AND destination_id = :destination FOR NO KEY UPDATE")
PARK = sa.text("""
WITH lane AS MATERIALIZED (
    SELECT l.head_seq, l.head_at FROM lanes l WHERE l.partner_id = :partner AND l.destination_id = :destination
), chosen AS (
    (SELECT d.seq, d.received_at FROM laggards g JOIN deliveries d USING (partner_id, destination_id, seq, received_at)
     WHERE g.partner_id = :partner AND g.destination_id = :destination AND g.seq > :after AND d.state = 'queued'
     ORDER BY g.seq LIMIT :chunk)
    UNION ALL
    (SELECT d.seq, d.received_at FROM deliveries d
     WHERE d.partner_id = :partner AND d.destination_id = :destination AND d.seq > :after
       AND d.seq >= (SELECT head_seq FROM lane) AND d.received_at >= (SELECT head_at FROM lane) AND d.state = 'queued'
     ORDER BY d.seq LIMIT :chunk)
    ORDER BY seq LIMIT :chunk
), moved AS (
    UPDATE deliveries d SET state = 'parked', park_reason = :reason, holding = false, next_attempt_at = NULL
    FROM chosen c
    WHERE d.partner_id = :partner AND d.destination_id = :destination AND d.seq = c.seq
      AND d.received_at = c.received_at AND d.state = 'queued'
    RETURNING d.seq, d.received_at
), caught_up AS (
    DELETE FROM laggards g USING moved m
    WHERE g.partner_id = :partner AND g.destination_id = :destination AND g.seq = m.seq
), listed AS (
    INSERT INTO parked (partner_id, destination_id, seq, received_at, reason)
    SELECT :partner, :destination, seq, received_at, :reason FROM moved ORDER BY seq
), counted AS (
    UPDATE lanes SET waiting = waiting - (SELECT count(*) FROM moved)
    WHERE partner_id = :partner AND destination_id = :destination
), nudged AS (
    INSERT INTO nudges (partner_id, destination_id) SELECT :partner, :destination WHERE EXISTS (SELECT FROM moved)
)
SELECT count(*), max(seq) FROM moved
""")
UNFINISHED = sa.text("""
SELECT d.id, d.removed_at IS NOT NULL FROM destinations d
WHERE (d.removed_at IS NOT NULL OR d.state = 'suspended')
  AND EXISTS (SELECT FROM lanes l WHERE l.destination_id = d.id AND l.waiting > l.in_flight)
ORDER BY d.id
""")


def park_waiting(store: Store, destination_id: int, reason: ParkReason) -> int:
    """Everything queued for this destination is parked. How many that were. Raises: StorageUnavailable."""
    with store.begin() as connection:
        partners = list(connection.scalars(LANES, {"destination": destination_id}))
    return sum(_park_lane(store, partner, destination_id, reason) for partner in partners)


def park_unfinished(store: Store) -> int:
    """What still waits for removed or suspended destinations is parked: the sweep's part. How many that were."""
    with store.begin() as connection:
        closed = [(int(row[0]), bool(row[1])) for row in connection.execute(UNFINISHED)]
    return sum(
        park_waiting(store, found, ParkReason.DESTINATION_REMOVED if gone else ParkReason.DESTINATION_SUSPENDED)
        for found, gone in closed
    )


def _park_lane(store: Store, partner: int, destination: int, reason: ParkReason) -> int:
    done, after = 0, 0
    while True:
        lane = {"partner": partner, "destination": destination, "after": after, "reason": reason.value}

        def chunk(connection: sa.Connection, lane: dict[str, int | str] = lane) -> tuple[int, int | None]:
            connection.execute(LOCK, lane)
            count, last = connection.execute(PARK, lane | {"chunk": CHUNK}).one()
            return count, last

        count, last = store.run(chunk)
        if last is None:
            return done
        done, after = done + count, last
