"""Backfill: stored events for a destination that was not yet subscribed when they were accepted, in order.

What is backfilled is an ordinary delivery, not a replay: it takes its place in the lane by its sequence. An event is
left out where any version of the subscription covers it (dispatch did or will do that one) or where a delivery exists
already, so the same backfill twice delivers nothing twice.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from storage import destinations, partners
from storage.errors import Conflict
from storage.requests import Counts, Request, Tell, advance, begin, nobody, silence
from storage.transactions import Store

CHUNK = 500

CURRENT = sa.text("""
SELECT s.from_seq, s.ordering, s.pattern FROM subscriptions s
WHERE s.partner_id = :partner AND s.destination_id = :destination AND s.until_seq IS NULL
""")
OWED = """
SELECT e.seq, e.received_at, e.order_key FROM events e
WHERE e.partner_id = :partner AND e.seq < :from_seq AND e.seq > :after
  AND (CAST(:since AS timestamptz) IS NULL OR e.received_at >= :since)
  AND (CAST(:until AS timestamptz) IS NULL OR e.received_at < :until)
  AND (CAST(:pattern AS text) IS NULL OR e.type ~ :pattern)
  AND NOT EXISTS (
      SELECT FROM subscriptions s WHERE s.partner_id = :partner AND s.destination_id = :destination
      AND e.seq >= s.from_seq AND e.seq < s.until_seq AND (s.pattern IS NULL OR e.type ~ s.pattern))
  AND NOT EXISTS (
      SELECT FROM deliveries d WHERE d.partner_id = :partner AND d.destination_id = :destination
      AND d.seq = e.seq AND d.received_at = e.received_at)
"""
COUNT = sa.text(f"SELECT count(*) FROM ({OWED}) owed")
LOCK = sa.text("SELECT FROM lanes WHERE partner_id = :partner AND destination_id = :destination FOR NO KEY UPDATE")
FILL = sa.text(f"""
WITH owed AS ({OWED} ORDER BY e.seq LIMIT :chunk), made AS (
    INSERT INTO deliveries (partner_id, destination_id, seq, received_at, state, lane_key)
    SELECT :partner, :destination, seq, received_at, 'queued',
           CASE CAST(:ordering AS text) WHEN 'partner' THEN 0 WHEN 'key' THEN coalesce(order_key, -1) END
    FROM owed ORDER BY seq
    ON CONFLICT DO NOTHING
    RETURNING seq, received_at, lane_key
), lined_up AS ( -- before a lane's head only laggards are open
    INSERT INTO laggards (partner_id, destination_id, seq, received_at, lane_key)
    SELECT :partner, :destination, m.seq, m.received_at, m.lane_key
    FROM made m JOIN lanes l ON l.partner_id = :partner AND l.destination_id = :destination
    WHERE m.seq < l.head_seq
), raised AS (
    UPDATE lanes l SET waiting = l.waiting + m.n, tail_seq = greatest(l.tail_seq, m.tail)
    FROM (SELECT count(*)::int AS n, max(seq) AS tail FROM made) m
    WHERE l.partner_id = :partner AND l.destination_id = :destination AND m.n > 0
), nudged AS (
    INSERT INTO nudges (partner_id, destination_id) SELECT :partner, :destination WHERE EXISTS (SELECT FROM made)
)
SELECT (SELECT count(*) FROM owed), (SELECT max(seq) FROM owed), (SELECT count(*) FROM made)
""")


@dataclass(frozen=True, slots=True)
class Span:
    """Which of the stored events: a half-open range of `received_at`, None for no bound."""

    since: datetime | None = None
    until: datetime | None = None


def count(connection: sa.Connection, partner: str, destination: str, span: Span) -> Counts:
    """How many events a backfill would bring. Raises: NotFound, Conflict where they are not subscribed or suspended."""
    values = _values(connection, partner, destination, span)
    return Counts(selected=connection.execute(COUNT, values).scalar_one(), dry_run=True)


def run(
    store: Store,
    partner: str,
    destination: str,
    span: Span,
    *,
    actor: str,
    rate: float | None = None,
    begun: Callable[[int], None] = nobody,
    tell: Tell = silence,
    sleep: Callable[[float], None] = time.sleep,
) -> Counts:
    """The events wait in the lane, at most `rate` more per second. `begun` hears its id, `tell` the progress.

    Raises: NotFound, Conflict, StorageUnavailable.
    """

    def open_request(connection: sa.Connection) -> tuple[int, dict[str, Any]]:
        values = _values(connection, partner, destination, span)
        told = {"partner": partner, "destination": destination}
        told |= {name: moment.isoformat() for name, moment in (("since", span.since), ("until", span.until)) if moment}
        expected = connection.execute(COUNT, values).scalar_one()
        subjects = [f"{partner} > {destination}"]
        return begin(connection, "backfill", actor, told, subjects, rate=rate, expected=expected), values

    identity, values = store.run(open_request)
    begun(identity)
    values["chunk"] = CHUNK if rate is None else max(1, min(CHUNK, math.ceil(rate)))
    with Request(store, identity) as request:
        while request.goes_on(sleep):
            selected, last, done = store.run(lambda connection: _fill(connection, identity, values))
            if last is None:
                break
            request.count(selected, done, ["changed meanwhile"] * (selected - done))
            tell(request.counts)
            values["after"] = last
            if rate is not None:
                sleep(done / rate)
    return request.counts


def _fill(connection: sa.Connection, identity: int, values: dict[str, Any]) -> tuple[int, int | None, int]:
    connection.execute(LOCK, values)
    selected, last, done = connection.execute(FILL, values).one()
    advance(connection, identity, selected=selected, done=done)
    return selected, last, done


def _values(connection: sa.Connection, partner: str, destination: str, span: Span) -> dict[str, Any]:
    target = destinations.find(connection, destination)
    if target.state == "suspended":
        raise Conflict(f"destination {destination!r} is suspended: resume it first")
    pair = {"partner": partners.find(connection, partner).id, "destination": target.id}
    current = connection.execute(CURRENT, pair).one_or_none()
    if current is None:
        raise Conflict(f"{destination} is not subscribed to {partner}")
    bounds = {"since": span.since, "until": span.until, "after": 0}
    return pair | bounds | {"from_seq": current[0], "ordering": current[1], "pattern": current[2]}
