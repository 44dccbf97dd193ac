"""What waits, why, and for how long: per partner and per lane, from the rows that the pipeline keeps anyway.

Nothing is counted over the log: a lane's row says how much waits and below which sequence nothing is open, so its
oldest delivery is one look into an index away.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from domain.events import event_id


@dataclass(frozen=True, slots=True)
class Lane:
    """One partner's line to one destination. `head` is the first delivery that is open or holds the lane.

    A removed destination has one as long as something of it waits or is parked; its name may be another's by now.
    """

    destination: str
    waiting: int
    in_flight: int
    breaker: str
    parked: int
    oldest_seconds: float | None
    head: str | None
    head_sequence: int | None
    blocked_by: str | None
    drain_seconds: float | None
    state: str = "active"  # of the destination: active, paused, suspended or removed
    removed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """One partner. `waiting` is what counts against its limit: what is not dispatched yet, and its longest lane."""

    partner: str
    waiting: int
    undispatched: int
    drain_per_second: float | None
    oldest_seconds: float | None
    lanes: tuple[Lane, ...]
    removed_at: datetime | None = None


PARTNERS = sa.text("""
SELECT p.id, p.name, p.state, p.removed_at, h.last_seq - t.cursor AS undispatched, t.drain_per_second,
       (SELECT extract(epoch FROM now() - e.received_at)::float8 FROM events e
        WHERE h.last_seq > t.cursor AND e.partner_id = p.id AND e.seq = t.cursor + 1 AND e.received_at >= t.cursor_at
       ) AS oldest
FROM partners p
JOIN partner_heads h ON h.partner_id = p.id
JOIN partner_tails t ON t.partner_id = p.id
WHERE p.removed_at IS NULL OR h.last_seq > t.cursor
      OR EXISTS (SELECT FROM lanes l WHERE l.partner_id = p.id AND l.waiting > 0)
ORDER BY p.name, p.id DESC
""")
LANES = sa.text("""
WITH parked_in AS (SELECT partner_id, destination_id, count(*) AS n FROM parked GROUP BY 1, 2)
SELECT l.partner_id, n.name, l.waiting, l.in_flight, g.breaker, coalesce(k.n, 0) AS parked, n.state, n.removed_at,
       n.concurrency, g.in_flight AS busy, g.opened_at, n.breaker_reset_ms, n.rate,
       least(greatest(n.rate, 1), g.tokens + n.rate * extract(epoch FROM now() - g.refilled_at)::float8) AS tokens,
       head.seq AS head_seq, head.received_at AS head_at, head.holding, head.next_attempt_at, now() AS now,
       extract(epoch FROM now() - oldest.received_at)::float8 AS oldest
FROM lanes l
JOIN destinations n ON n.id = l.destination_id
JOIN gates g ON g.destination_id = l.destination_id
LEFT JOIN parked_in k ON k.partner_id = l.partner_id AND k.destination_id = l.destination_id
LEFT JOIN LATERAL first_open(l.partner_id, l.destination_id, true) head ON l.waiting > 0 OR l.holding > 0
LEFT JOIN LATERAL first_open(l.partner_id, l.destination_id, false) oldest ON l.waiting > 0
WHERE l.active OR l.waiting > 0 OR k.n > 0
ORDER BY l.partner_id, n.name, n.id DESC
""")


def backlog(connection: sa.Connection) -> list[Backlog]:
    """Every partner that is there or has something waiting, by name, with its lanes."""
    lanes: dict[int, list[sa.Row[Any]]] = {}
    for row in connection.execute(LANES):
        lanes.setdefault(row.partner_id, []).append(row)
    return [_backlog(row, lanes.get(row.id, [])) for row in connection.execute(PARTNERS)]


def _backlog(row: sa.Row[Any], lanes: list[sa.Row[Any]]) -> Backlog:
    ages = [age for age in (row.oldest, *(lane.oldest for lane in lanes)) if age is not None]
    return Backlog(
        partner=row.name,
        removed_at=row.removed_at,
        waiting=row.undispatched + max((lane.waiting for lane in lanes), default=0),
        undispatched=row.undispatched,
        drain_per_second=row.drain_per_second,
        oldest_seconds=max(ages, default=None),
        lanes=tuple(_lane(lane, row.state, row.drain_per_second) for lane in lanes),
    )


def _lane(row: sa.Row[Any], partner_state: str, drain: float | None) -> Lane:
    blocked = _blocked_by(row, partner_state)
    head = None if row.head_seq is None else event_id(row.partner_id, row.head_seq, row.head_at)
    flows = row.waiting and drain and (blocked is None or blocked.startswith(("rate", "concurrency")))
    return Lane(
        destination=row.name,
        state=row.state if row.removed_at is None else "removed",
        removed_at=row.removed_at,
        waiting=row.waiting,
        in_flight=row.in_flight,
        breaker=row.breaker,
        parked=row.parked,
        oldest_seconds=row.oldest,
        head=head,
        head_sequence=row.head_seq,
        blocked_by=blocked,
        drain_seconds=row.waiting / drain if drain and flows else 0.0 if not row.waiting else None,
    )


def _blocked_by(row: sa.Row[Any], partner_state: str) -> str | None:
    """Why the first delivery of a lane does not go out now; None where nothing keeps it, or nothing waits."""
    if not row.waiting:
        return None
    if row.removed_at is not None or row.state != "active":
        return "destination removed" if row.removed_at is not None else f"destination {row.state}"
    if partner_state == "paused":
        return "partner paused"
    if row.holding:
        return "a parked event holds the lane"
    if row.breaker == "open":
        left = row.opened_at + timedelta(milliseconds=row.breaker_reset_ms) - row.now
        return f"breaker open, {_soon('probe', left)}"
    if row.breaker == "half_open":
        return "breaker half open, a probe is out"
    return _not_yet(row)


def _not_yet(row: sa.Row[Any]) -> str | None:
    """What passes by itself."""
    due: datetime | None = row.next_attempt_at
    if row.in_flight:
        return None
    if due is not None and due > row.now:
        return _soon("retry", due - row.now)
    if row.busy >= row.concurrency:
        return "concurrency of the destination"
    if row.tokens is not None and row.tokens < 1:
        return "rate of the destination"
    return None


def _soon(what: str, left: timedelta) -> str:
    return f"{what} due in {max(0.0, left.total_seconds()):.0f} s" if left > timedelta(0) else f"{what} due"
