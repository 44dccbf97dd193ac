"""What the owner of a lane reads and writes: dispatch, the journal, what a lane has open. Set-based, a call per
batch.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from domain.lifecycle import Delivery, ParkReason, State
from storage.database import Connection

DISPATCH = "SELECT * FROM dispatch(%s, %b::int[], %b::boolean[], %s, %s)"
READ_LANES = "SELECT * FROM read_lanes(%b::int[], %b::int[], %b::bigint[], %s)"
READ_FLYING = "SELECT * FROM read_flying(%b::int[], %b::int[])"
READ_KEYS = "SELECT * FROM read_keys(%b::int[], %b::int[], %b::bigint[], %b::bigint[])"
READ_EVENTS = "SELECT * FROM read_events(%b::int[], %b::bigint[], %b::timestamptz[], %s)"
UNDISPATCHED = """
SELECT h.partner_id FROM partner_heads h
JOIN partner_tails t ON t.partner_id = h.partner_id
JOIN partners p ON p.id = h.partner_id
JOIN shards s ON s.shard = p.shard
WHERE h.last_seq > t.cursor AND s.owner = %s
"""
OPEN_LANES = """
SELECT l.partner_id, l.destination_id FROM lanes l
JOIN partners p ON p.id = l.partner_id
WHERE p.shard = ANY (%s) AND (l.waiting > 0 OR l.in_flight > 0 OR l.holding > 0)
"""
TAILS = """
SELECT l.partner_id, l.destination_id, l.tail_seq FROM lanes l
JOIN partners p ON p.id = l.partner_id
JOIN shards s ON s.shard = p.shard
WHERE s.owner = %s AND l.waiting > 0
"""
NUDGED = """
DELETE FROM nudges n USING partners p, shards s
WHERE p.id = n.partner_id AND s.shard = p.shard AND s.owner = %s
RETURNING n.partner_id, n.destination_id
"""
DRAIN_RATES = """
UPDATE partner_tails t SET drain_per_second = r.rate
FROM unnest(%b::int[], %b::float8[]) AS r (partner_id, rate) WHERE t.partner_id = r.partner_id
"""
JOURNAL = """
SELECT * FROM journal(
    %s, %b::int[], %b::int[], %b::bigint[], %b::timestamptz[], %b::uuid[], %b::text[], %b::int[], %b::int[],
    %b::bigint[], %b::text[], %b::boolean[], %b::smallint[], %b::text[], %b::int[], %b::int[], %b::int[], %b::int[],
    %b::text[], %b::text[], %b::bytea[], %b::int[], %b::int[], %b::bigint[], %b::timestamptz[], %b::uuid[], %b::int[])
"""

MAX_AGE_MS = 1 << 30  # twelve days: what a column of the journal's call can carry
BYTES_AT_ONCE = 8 << 20  # of bodies in one answer: it takes tens of milliseconds, and memory is bounded

LaneKey = tuple[int, int]  # (partner id, destination id)
Refusal = Literal["stale", "held", "breaker", "order", "full", "rate"]


class Copy(NamedTuple):
    """An event's content, at hand for its attempts."""

    type: str | None
    headers: bytes
    body: bytes


class Dispatched(NamedTuple):
    """An event handed to lanes: for each destination the sequence before it in that lane, and how it is ordered
    there.
    """

    partner_id: int
    sequence: int
    received_at: datetime
    copy: Copy | None
    lanes: tuple[tuple[int, int, int | None], ...]  # (destination id, previous sequence, lane key)


class Open(NamedTuple):
    """An open (or lane-holding) delivery as the table has it."""

    sequence: int
    received_at: datetime
    delivery: Delivery
    lane_key: int | None
    due_in_ms: int
    budget_ms: int


class LaneRead(NamedTuple):
    """A lane's open deliveries from a position on, and the last sequence dispatched to it at that moment."""

    tail: int
    open: list[Open]


class Claim(NamedTuple):
    """Asks to begin an attempt."""

    partner_id: int
    destination_id: int
    sequence: int
    received_at: datetime
    token: UUID
    budget_ms: int


class Outcome(NamedTuple):
    """An attempt's end: the delivery's next state, and the attempt's record."""

    partner_id: int
    destination_id: int
    sequence: int
    received_at: datetime
    after: Delivery
    evidence: int  # 1: the destination works, -1: it does not, 0: says nothing about it
    outcome: str
    number: int
    duration_ms: int
    ended_at: float  # time.monotonic()
    status: int | None
    error: str | None
    note: str | None
    answer: bytes | None


class Saved(NamedTuple):
    """An outcome's fate: saved, or lost because somebody else moved the delivery. `lag_ms` of a first delivery."""

    saved: bool
    lag_ms: int | None


class Begun(NamedTuple):
    """A claim's fate: the attempt's number, or why not."""

    number: int
    refusal: Refusal | None


async def dispatch(connection: Connection, token: UUID, partners: dict[int, bool], limit: int) -> list[Dispatched]:
    """Up to `limit` events per partner are in their lanes. `partners` says for each whether copies are wanted."""
    rows = await connection.fetch(DISPATCH, (token, list(partners), list(partners.values()), limit, BYTES_AT_ONCE))
    return [
        Dispatched(
            partner_id,
            sequence,
            received_at,
            Copy(type_, headers, body) if body is not None else None,
            tuple(zip(lanes, previous, keys, strict=True)) if lanes else (),
        )
        for partner_id, sequence, received_at, type_, headers, body, lanes, previous, keys in rows
    ]


async def undispatched(connection: Connection, token: UUID) -> list[int]:
    """Partners of this owner whose log goes on beyond the cursor."""
    return [partner_id for (partner_id,) in await connection.fetch(UNDISPATCHED, (token,))]


async def nudged(connection: Connection, token: UUID) -> list[LaneKey]:
    """Lanes of this owner that somebody else changed since the last call."""
    return [(partner_id, destination_id) for partner_id, destination_id in await connection.fetch(NUDGED, (token,))]


async def open_lanes(connection: Connection, shards: Iterable[int]) -> list[LaneKey]:
    """Lanes of these shards that have something open, in flight or holding."""
    rows = await connection.fetch(OPEN_LANES, (list(shards),))
    return [(partner_id, destination_id) for partner_id, destination_id in rows]


async def tails(connection: Connection, token: UUID) -> dict[LaneKey, int]:
    """The last sequence dispatched to each lane of this owner in which something waits."""
    rows = await connection.fetch(TAILS, (token,))
    return {(partner_id, destination_id): tail for partner_id, destination_id, tail in rows}


async def read_lanes(connection: Connection, afters: dict[LaneKey, int], limit: int) -> dict[LaneKey, LaneRead]:
    """What these lanes have open after a sequence (-1: from the head), at most `limit` each."""
    rows = await connection.fetch(
        READ_LANES, ([key[0] for key in afters], [key[1] for key in afters], list(afters.values()), limit)
    )
    found: dict[LaneKey, LaneRead] = {}
    for partner_id, destination_id, tail, *row in rows:
        read = found.setdefault((partner_id, destination_id), LaneRead(tail, []))
        if row[0] is not None:
            read.open.append(_open(row))
    return found


async def read_flying(connection: Connection, keys: Sequence[LaneKey]) -> dict[LaneKey, list[Open]]:
    """Every attempt in flight in these lanes, in order."""
    found: dict[LaneKey, list[Open]] = {}
    parameters = ([key[0] for key in keys], [key[1] for key in keys])
    for partner_id, destination_id, *row in await connection.fetch(READ_FLYING, parameters):
        found.setdefault((partner_id, destination_id), []).append(_open(row))
    return found


async def read_keys(
    connection: Connection, wanted: dict[LaneKey, dict[int, int]]
) -> dict[LaneKey, dict[int, list[Open]]]:
    """The first two open (or holding) deliveries of each key of these lanes, from a sequence on."""
    asked = [(*lane, key, since) for lane, keys in wanted.items() for key, since in keys.items()]
    found: dict[LaneKey, dict[int, list[Open]]] = {}
    columns = [list(column) for column in zip(*asked, strict=True)]
    for partner_id, destination_id, *row in await connection.fetch(READ_KEYS, columns):
        opened = _open(row)
        keys = found.setdefault((partner_id, destination_id), {})
        keys.setdefault(opened.lane_key or 0, []).append(opened)
    return found


def _open(row: Sequence[Any]) -> Open:
    sequence, received_at, state, lane_key, attempts, failures, *rest = row
    due_ms, token, budget_ms, replay_id, holding, crashes = rest
    delivery = Delivery(
        State(state),
        attempts,
        failures,
        token=token,
        replay_id=replay_id,
        holding=holding,
        park_reason=ParkReason.ATTEMPTS_EXHAUSTED if holding else None,
        crashes=crashes,
    )
    return Open(sequence, received_at, delivery, lane_key, due_ms or 0, budget_ms or 0)


async def tell_drain_rates(connection: Connection, rates: dict[int, float]) -> None:
    """Deliveries per second that leave these partners' lanes are on record."""
    await connection.fetch(DRAIN_RATES, (list(rates), list(rates.values())))


async def advance_heads(connection: Connection, token: UUID, keys: Sequence[LaneKey]) -> None:
    """These lanes' heads are where their first open delivery is. Raises: LeaseLost, StorageUnavailable."""
    await connection.fetch(
        "SELECT advance_heads(%s, %b::int[], %b::int[])", (token, [key[0] for key in keys], [key[1] for key in keys])
    )


async def read_events(
    connection: Connection, places: Sequence[tuple[int, int, datetime]]
) -> dict[tuple[int, int], Copy]:
    """The content of events, by (partner id, sequence); large bodies in several calls."""
    found: dict[tuple[int, int], Copy] = {}
    wanted = list(places)
    while wanted:
        columns: list[Any] = [list(column) for column in zip(*wanted, strict=True)]
        rows = await connection.fetch(READ_EVENTS, [*columns, BYTES_AT_ONCE])
        cut = {(partner_id, sequence) for partner_id, sequence, _, _, body in rows if body is None}
        for partner_id, sequence, type_, headers, body in rows:
            if body is not None:
                found[partner_id, sequence] = Copy(type_, headers, body)
        wanted = [place for place in wanted if place[:2] in cut]
    return found


async def save(
    connection: Connection, token: UUID, outcomes: Sequence[Outcome], claims: Sequence[Claim]
) -> tuple[list[Saved], list[Begun]]:
    """Outcomes and then claims are saved in one transaction. Idempotent: after a lost answer the same call may be
    repeated.

    Raises: LeaseLost (nothing was changed), StorageUnavailable (unknown whether it was), BadData.
    """
    after = [o.after for o in outcomes]
    now = time.monotonic()
    rows = await connection.fetch(
        JOURNAL,
        (
            token,
            [o.partner_id for o in outcomes],
            [o.destination_id for o in outcomes],
            [o.sequence for o in outcomes],
            [o.received_at for o in outcomes],
            [d.token for d in after],
            [d.state.value for d in after],
            [d.failures for d in after],
            [d.crashes for d in after],
            [None if d.retry_in is None else int(d.retry_in.total_seconds() * 1000) for d in after],
            [d.park_reason for d in after],
            [d.holding for d in after],
            [o.evidence for o in outcomes],
            [o.outcome for o in outcomes],
            [o.number for o in outcomes],
            [o.duration_ms for o in outcomes],
            [min(MAX_AGE_MS, int((now - o.ended_at) * 1000)) for o in outcomes],
            [o.status for o in outcomes],
            [o.error for o in outcomes],
            [o.note for o in outcomes],
            [o.answer for o in outcomes],
            [c.partner_id for c in claims],
            [c.destination_id for c in claims],
            [c.sequence for c in claims],
            [c.received_at for c in claims],
            [c.token for c in claims],
            [c.budget_ms for c in claims],
        ),
    )
    saved = [Saved(False, None)] * len(outcomes)
    begun = [Begun(0, "stale")] * len(claims)
    for kind, ordinal, result, number in rows:
        if kind == "outcome":
            if result == "saved" or not saved[ordinal - 1].saved:
                saved[ordinal - 1] = Saved(True, number)
        else:
            begun[ordinal - 1] = Begun(number or 0, None if result == "begun" else result)
    return saved, begun
