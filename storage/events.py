"""Events, for people: listing, showing, and the exact bytes. Reads only, page by page, newest first.

An event's state is not stored: it is the least finished of its deliveries', computed beside each row in the same query
(never a query per row), by the rule of `domain.lifecycle.event_state`. Deliveries are found through the partner's lanes
and always with the event's `received_at`, so that one partition is read.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from domain.events import BadEventId, Place, event_id, place_of, unpack_headers
from domain.lifecycle import EVENT_STATES, State, event_state
from domain.values import is_name, shown
from storage.errors import NotFound

STATES = EVENT_STATES
PAGE = 1_000
SEQUENCE = re.compile("[0-9]{1,18}")  # what a bigint holds in any case


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events. None means any; the range of `received_at` is half-open; `pattern` is a regular expression."""

    partner_ids: tuple[int, ...] | None = None
    destination_ids: tuple[int, ...] | None = None
    state: str | None = None
    pattern: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    reason: str | None = None  # parked deliveries only
    digest: bytes | None = None  # of the dedupe value, while it is remembered


@dataclass(frozen=True, slots=True)
class Listed:
    """An event in a listing; of one delivery where a destination was asked for, or it is a listing of deliveries."""

    place: Place
    partner: str
    type: str | None
    state: str
    destination: str | None = None
    park_reason: str | None = None

    @property
    def id(self) -> str:
        return event_id(self.place.partner_id, self.place.sequence, self.place.received_at)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One HTTP request."""

    number: int
    started_at: datetime
    duration_ms: int
    status: int | None
    outcome: str
    error: str | None
    note: str | None
    replay: int | None
    answer: bytes | None  # its first bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """The duty to bring an event to one destination, and what was done about it."""

    destination: str
    state: str
    park_reason: str | None
    next_attempt_at: datetime | None
    holding: bool
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """An event with its whole story."""

    place: Place
    partner: str
    type: str | None
    query: bytes | None
    content_type: str | None
    body_bytes: int
    state: str
    deliveries: tuple[Delivery, ...]

    @property
    def id(self) -> str:
        return event_id(self.place.partner_id, self.place.sequence, self.place.received_at)


@dataclass(frozen=True, slots=True)
class Content:
    """What was received."""

    headers: list[tuple[bytes, bytes]]
    body: bytes


BY_RANK = "(ARRAY['queued', 'delivering', 'parked', 'discarded', 'delivered'])"
RANK = f"array_position({BY_RANK}, d.state::text)"
STATE = f"""
CASE WHEN e.seq > t.cursor THEN 'received' ELSE {BY_RANK}[coalesce((
    SELECT min({RANK}) FROM lanes l JOIN deliveries d ON d.partner_id = l.partner_id
           AND d.destination_id = l.destination_id AND d.seq = e.seq AND d.received_at = e.received_at
    WHERE l.partner_id = e.partner_id), 5)] END
"""
OPEN = """
e.seq >= least((SELECT min(head_seq) FROM lanes l WHERE l.partner_id = h.partner_id AND l.waiting > 0),
               (SELECT min(seq) FROM laggards g WHERE g.partner_id = h.partner_id))
"""
# What an index can tell about a state, before it is computed for a row.
NARROWED = {
    "received": "e.seq > t.cursor",
    "queued": OPEN,
    "delivering": OPEN,
    "parked": "e.seq IN (SELECT k.seq FROM parked k WHERE k.partner_id = h.partner_id)",
}
KNOWN_AS = """
(e.seq, e.received_at) = (SELECT k.seq, k.received_at FROM dedupe k
                          WHERE k.partner_id = {row}.partner_id AND k.digest = :digest)
"""
OLDER = """
(e.received_at, e.partner_id, e.seq) < (:before_at, :before_partner, :before_seq) AND e.received_at <= :before_at
"""
FIND = sa.text("""
SELECT p.name, e.type, e.query, e.headers, length(e.body), e.seq <= t.cursor AS dispatched
FROM events e JOIN partners p ON p.id = e.partner_id JOIN partner_tails t ON t.partner_id = e.partner_id
WHERE e.partner_id = :partner AND e.seq = :seq AND e.received_at = :at
""")
DELIVERIES = sa.text("""
SELECT d.destination_id, n.name, d.state::text, d.park_reason, d.next_attempt_at, d.holding
FROM lanes l
JOIN deliveries d ON d.partner_id = l.partner_id AND d.destination_id = l.destination_id
JOIN destinations n ON n.id = l.destination_id
WHERE l.partner_id = :partner AND d.seq = :seq AND d.received_at = :at
ORDER BY n.name, n.id
""")
ATTEMPTS = sa.text("""
SELECT destination_id, number, started_at, duration_ms, status, outcome, error, note, replay_id, answer
FROM attempts
WHERE partner_id = :partner AND destination_id = ANY (:destinations) AND seq = :seq AND received_at = :at
ORDER BY destination_id, number
""")
# A name may have had several partners: the one that has it now counts, else the last one that had it.
NUMBERED = sa.text("""
SELECT e.partner_id, e.seq, e.received_at FROM events e
WHERE e.seq = :seq AND e.partner_id = (
    SELECT p.id FROM partners p WHERE p.name = :partner ORDER BY p.removed_at IS NULL DESC, p.id DESC LIMIT 1)
""")
CONTENT = sa.text("SELECT headers, body FROM events WHERE partner_id = :partner AND seq = :seq AND received_at = :at")
PARKED = """
SELECT k.partner_id, k.seq, k.received_at, p.name, e.type, n.name, k.reason, k.destination_id
FROM parked k
JOIN partners p ON p.id = k.partner_id
JOIN destinations n ON n.id = k.destination_id
LEFT JOIN events e ON e.partner_id = k.partner_id AND e.seq = k.seq AND e.received_at = k.received_at
WHERE {conditions}
ORDER BY k.partner_id, k.destination_id, k.seq LIMIT :limit
"""


def listed(connection: sa.Connection, wanted: Filter, *, limit: int, before: Place | None = None) -> list[Listed]:
    """The newest events that pass the filter, newest first; those older than `before` where it is given.

    With destinations in the filter each row is one delivery, and `state` is that delivery's.
    """
    values: dict[str, Any] = {"limit": limit, **filter_values(wanted)}
    if before is not None:
        values |= {"before_at": before.received_at, "before_partner": before.partner_id, "before_seq": before.sequence}
    make = _events_query if wanted.destination_ids is None else _deliveries_query
    rows = connection.execute(sa.text(make(wanted, before is not None)), values)
    return [Listed(Place(*row[:3]), *row[3:]) for row in rows]


def find(connection: sa.Connection, text: str) -> Event:
    """The event that is meant (see `locate`), with its deliveries and all attempts. Raises: NotFound."""
    place = locate(connection, text)
    key = {"partner": place.partner_id, "seq": place.sequence, "at": place.received_at}
    row = connection.execute(FIND, key).one_or_none()
    if row is None:
        raise NotFound(f"no event {text}")
    partner, kind, query, headers, size, dispatched = row
    deliveries = _deliveries_of(connection, key)
    state = event_state(dispatched, [State(delivery.state) for delivery in deliveries])
    return Event(place, partner, kind, query, _content_type(headers), size, state, deliveries)


def content(connection: sa.Connection, text: str) -> Content:
    """The bytes of the event that is meant (see `locate`), as received. Raises: NotFound."""
    place = locate(connection, text)
    key = {"partner": place.partner_id, "seq": place.sequence, "at": place.received_at}
    row = connection.execute(CONTENT, key).one_or_none()
    if row is None:
        raise NotFound(f"no event {text}")
    return Content(unpack_headers(row.headers), row.body)


def locate(connection: sa.Connection, text: str) -> Place:
    """Where the event stands that an id (stored or not) or `PARTNER/SEQUENCE` (stored) means. Raises: NotFound."""
    partner, slash, sequence = text.partition("/")
    if slash:
        return _numbered(connection, partner, sequence)
    try:
        return place_of(text)
    except BadEventId as problem:
        raise NotFound(str(problem)) from problem


def parked(
    connection: sa.Connection, wanted: Filter, *, limit: int = PAGE, after: tuple[int, int, int] | None = None
) -> tuple[list[Listed], tuple[int, int, int] | None]:
    """A page of parked deliveries by partner, destination and sequence; where the next page begins, None at the end."""
    conditions = parked_conditions(wanted)
    values: dict[str, Any] = {"limit": limit, **filter_values(wanted)}
    if after is not None:
        conditions.append("(k.partner_id, k.destination_id, k.seq) > (:after_partner, :after_destination, :after_seq)")
        values |= {"after_partner": after[0], "after_destination": after[1], "after_seq": after[2]}
    rows = connection.execute(sa.text(PARKED.format(conditions=" AND ".join(conditions))), values).all()
    last = (rows[-1][0], rows[-1][7], rows[-1][1]) if len(rows) == limit else None
    return [Listed(Place(*row[:3]), row[3], row[4], "parked", row[5], row[6]) for row in rows], last


def parked_conditions(wanted: Filter, reason: str = "reason") -> list[str]:
    """The filter on a row `k` of `parked`, or of `deliveries` where the reason's column has another name."""
    conditions = ["true", *_range("k", wanted)]
    if wanted.partner_ids is not None:
        conditions.append("k.partner_id = ANY (:partner_ids)")
    if wanted.destination_ids is not None:
        conditions.append("k.destination_id = ANY (:destination_ids)")
    if wanted.reason is not None:
        conditions.append(f"k.{reason} = :reason")
    return conditions


def _events_query(wanted: Filter, paged: bool) -> str:
    """Per partner its newest rows by the log's own key, then the newest of all partners."""
    conditions = [f"e.partner_id = h.partner_id AND {_narrowing(wanted)}", *_range("e", wanted)]
    if wanted.pattern is not None:
        conditions.append("e.type ~ :pattern")
    if wanted.digest is not None:
        conditions.append(KNOWN_AS.format(row="h"))
    if wanted.state is not None:
        conditions.append(f"{STATE} = :state")
    if paged:
        conditions.append(OLDER)
    return f"""
    SELECT x.partner_id, x.seq, x.received_at, p.name, x.type, x.state
    FROM ({_partners(wanted, paged)}) h
    JOIN partners p ON p.id = h.partner_id
    JOIN partner_tails t ON t.partner_id = h.partner_id
    CROSS JOIN LATERAL (
        SELECT e.partner_id, e.seq, e.received_at, e.type, {STATE} AS state
        FROM events e WHERE {" AND ".join(conditions)} ORDER BY e.seq DESC LIMIT :limit
    ) x
    ORDER BY x.received_at DESC, x.partner_id DESC, x.seq DESC LIMIT :limit
    """


def _partners(wanted: Filter, paged: bool) -> str:
    """Whose logs have to be looked into."""
    chosen = "SELECT partner_id FROM partner_heads WHERE last_seq > 0"
    if wanted.partner_ids is not None:
        return chosen + " AND partner_id = ANY (:partner_ids)"
    if wanted.since is not None:
        chosen += " AND last_at >= :since"
    if wanted.state is None and wanted.pattern is None and wanted.digest is None and wanted.until is None and not paged:
        # The newest n events belong to the n partners that were heard of last.
        chosen += " ORDER BY last_at DESC, partner_id DESC LIMIT :limit"
    return chosen


def _deliveries_query(wanted: Filter, paged: bool) -> str:
    """Per lane of the destinations its newest deliveries, then the newest of all."""
    conditions = ["e.partner_id = l.partner_id AND e.destination_id = l.destination_id", *_range("e", wanted)]
    if wanted.state == "parked":
        conditions.append("e.seq IN (SELECT k.seq FROM parked k WHERE k.partner_id = l.partner_id)")
    if wanted.state is not None:
        conditions.append("e.state::text = :state")
    if wanted.pattern is not None:
        conditions.append("v.type ~ :pattern")
    if wanted.digest is not None:
        conditions.append(KNOWN_AS.format(row="l"))
    if paged:
        conditions.append(OLDER)
    lanes = "l.destination_id = ANY (:destination_ids)"
    if wanted.partner_ids is not None:
        lanes += " AND l.partner_id = ANY (:partner_ids)"
    same = "v.partner_id = e.partner_id AND v.seq = e.seq AND v.received_at = e.received_at"
    typed = "" if wanted.pattern is None else f"JOIN events v ON {same}"  # else only what is listed is looked up
    return f"""
    SELECT e.partner_id, e.seq, e.received_at, e.partner, v.type, e.state, e.destination, e.park_reason
    FROM (
        SELECT x.partner_id, x.seq, x.received_at, p.name AS partner, x.state, n.name AS destination, x.park_reason
        FROM lanes l
        JOIN partners p ON p.id = l.partner_id
        JOIN destinations n ON n.id = l.destination_id
        CROSS JOIN LATERAL (
            SELECT e.partner_id, e.seq, e.received_at, e.state::text AS state, e.park_reason
            FROM deliveries e {typed}
            WHERE {" AND ".join(conditions)} ORDER BY e.seq DESC LIMIT :limit
        ) x
        WHERE {lanes}
        ORDER BY x.received_at DESC, x.partner_id DESC, x.seq DESC, n.name LIMIT :limit
    ) e
    JOIN events v ON {same}
    ORDER BY e.received_at DESC, e.partner_id DESC, e.seq DESC, e.destination
    """


def _narrowing(wanted: Filter) -> str:
    return NARROWED.get(wanted.state or "", "true")


def _range(row: str, wanted: Filter) -> list[str]:
    conditions = []
    if wanted.since is not None:
        conditions.append(f"{row}.received_at >= :since")
    if wanted.until is not None:
        conditions.append(f"{row}.received_at < :until")
    return conditions


def filter_values(wanted: Filter) -> dict[str, Any]:
    """The parameters of the conditions made from a filter."""
    given = {
        "partner_ids": None if wanted.partner_ids is None else list(wanted.partner_ids),
        "destination_ids": None if wanted.destination_ids is None else list(wanted.destination_ids),
        "state": wanted.state,
        "pattern": wanted.pattern,
        "since": wanted.since,
        "until": wanted.until,
        "reason": wanted.reason,
        "digest": wanted.digest,
    }
    return {name: value for name, value in given.items() if value is not None}


def _numbered(connection: sa.Connection, partner: str, sequence: str) -> Place:
    row = None
    if is_name(partner) and SEQUENCE.fullmatch(sequence):
        row = connection.execute(NUMBERED, {"partner": partner, "seq": int(sequence)}).one_or_none()
    if row is None:
        raise NotFound(f"no event {shown(f'{partner}/{sequence}')}")
    return Place(*row)


def _deliveries_of(connection: sa.Connection, key: dict[str, Any]) -> tuple[Delivery, ...]:
    rows = connection.execute(DELIVERIES, key).all()
    told: dict[int, list[Attempt]] = {row.destination_id: [] for row in rows}
    for destination, *attempt in connection.execute(ATTEMPTS, key | {"destinations": list(told)}):
        told[destination].append(Attempt(*attempt))
    return tuple(
        Delivery(
            row.name,
            row.state,
            row.park_reason,
            row.next_attempt_at if row.state == "queued" else None,
            row.holding,
            tuple(told[row.destination_id]),
        )
        for row in rows
    )


def _content_type(packed: bytes) -> str | None:
    for name, value in unpack_headers(packed):
        if name.lower() == b"content-type":
            return value.decode("latin-1")
    return None
