"""What a person asks of many deliveries at once: to replay them, or to discard them.

A selection is worked off in chunks, ascending by partner, destination and sequence. A chunk is one transaction: the
lanes are locked in order, then each delivery moves by compare-and-set on its state, or is skipped. A dry run counts
with the very query that the real run walks. What is parked or delivered after the command began is not selected.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal

import sqlalchemy as sa

from domain.events import EPOCH, Place, event_id
from domain.lifecycle import ParkReason
from storage import events
from storage.errors import Invalid, NotFound
from storage.requests import Counts, Request, Tell, advance, begin, nobody, silence
from storage.transactions import Store

Kind = Literal["replay", "discard"]
Key = tuple[int, int, int]  # partner, destination, sequence

STATES = ("parked", "delivered", "discarded")
REASONS = tuple(reason.value for reason in ParkReason)
CHUNK = 500  # deliveries: some 20 ms under the locks of their lanes
MAX_NAMED = 10_000  # events named one by one
POLL_SECONDS = (0.1, 2.0)  # while waiting for what was re-queued: at first, and at most
BATCH = 2_000  # deliveries asked after at once while waiting
FIRST: Key = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which deliveries. Named events count whatever their state, so that the report can say why one was skipped."""

    places: tuple[Place, ...] = ()
    where: events.Filter = field(default_factory=events.Filter)
    told: dict[str, Any] = field(default_factory=dict)  # as the person wrote it, for the row and the audit

    @property
    def state(self) -> str:
        """The state that is wanted."""
        return self.where.state or "parked"


# The candidates: rows `k` with a verdict, NULL where the delivery may move.
CANDIDATES = """
SELECT k.partner_id, k.destination_id, k.seq, k.received_at, {verdict} AS verdict
FROM {source} JOIN destinations n ON n.id = k.destination_id
WHERE {conditions}
"""
SOURCES = {
    "parked": "parked k",
    "any": "deliveries k",
    "named": """unnest(CAST(:named_partners AS int[]), CAST(:named_seqs AS bigint[]), CAST(:named_ats AS timestamptz[]))
                AS named (partner_id, seq, received_at)
           JOIN lanes l ON l.partner_id = named.partner_id
           JOIN deliveries k ON k.partner_id = l.partner_id AND k.destination_id = l.destination_id
                AND k.seq = named.seq AND k.received_at = named.received_at""",
}
CLOSED = (
    "WHEN n.removed_at IS NOT NULL THEN 'destination removed' WHEN n.state = 'suspended' THEN 'destination suspended'"
)
IN_ORDER = """
SELECT * FROM ({candidates}) c WHERE (c.partner_id, c.destination_id, c.seq) > (:p, :d, :s)
ORDER BY c.partner_id, c.destination_id, c.seq LIMIT :chunk
"""
LOCK = sa.text("""
SELECT FROM lanes l
WHERE (l.partner_id, l.destination_id) IN (SELECT * FROM unnest(CAST(:partners AS int[]), CAST(:destinations AS int[])))
ORDER BY l.partner_id, l.destination_id FOR NO KEY UPDATE
""")
KEYS = """
wanted AS (
    SELECT * FROM unnest(CAST(:partners AS int[]), CAST(:destinations AS int[]), CAST(:seqs AS bigint[]),
                         CAST(:ats AS timestamptz[])) AS w (partner_id, destination_id, seq, received_at)
)
"""
UNPARK = """
unparked AS (
    DELETE FROM parked k USING moved m
    WHERE k.partner_id = m.partner_id AND k.destination_id = m.destination_id AND k.seq = m.seq
)
"""
REPLAY = sa.text(f"""
WITH {KEYS}, moved AS (
    UPDATE deliveries d
    SET state = 'queued', failures = 0, replay_id = :id, next_attempt_at = NULL, park_reason = NULL, holding = false,
        delivered_at = NULL
    FROM destinations n, wanted w JOIN deliveries b USING (partner_id, destination_id, seq, received_at)
    WHERE d.partner_id = w.partner_id AND d.destination_id = w.destination_id AND d.seq = w.seq
      AND d.received_at = w.received_at AND d.received_at BETWEEN :oldest AND :newest
      AND d.state = CAST(:state AS delivery_state)
      AND n.id = w.destination_id AND n.removed_at IS NULL AND n.state <> 'suspended'
    RETURNING d.partner_id, d.destination_id, d.seq, d.received_at, d.lane_key, b.holding AS held
), {UNPARK}, lined_up AS ( -- before a lane's head only laggards are open
    INSERT INTO laggards (partner_id, destination_id, seq, received_at, lane_key)
    SELECT m.partner_id, m.destination_id, m.seq, m.received_at, m.lane_key
    FROM moved m JOIN lanes l USING (partner_id, destination_id) WHERE m.seq < l.head_seq
    ON CONFLICT DO NOTHING
), lanes_of AS (
    SELECT partner_id, destination_id, count(*)::int AS n, (count(*) FILTER (WHERE held))::int AS held
    FROM moved GROUP BY 1, 2
), raised AS (
    UPDATE lanes l SET waiting = l.waiting + o.n, holding = l.holding - o.held
    FROM lanes_of o WHERE l.partner_id = o.partner_id AND l.destination_id = o.destination_id
), nudged AS (
    INSERT INTO nudges (partner_id, destination_id) SELECT partner_id, destination_id FROM lanes_of ORDER BY 1, 2
)
SELECT partner_id, destination_id, seq FROM moved
""")
DISCARD = sa.text(f"""
WITH {KEYS}, moved AS (
    UPDATE deliveries d SET state = 'discarded', park_reason = NULL, holding = false
    FROM wanted w JOIN deliveries b USING (partner_id, destination_id, seq, received_at)
    WHERE d.partner_id = w.partner_id AND d.destination_id = w.destination_id AND d.seq = w.seq
      AND d.received_at = w.received_at AND d.received_at BETWEEN :oldest AND :newest AND d.state = 'parked'
    RETURNING d.partner_id, d.destination_id, d.seq, b.holding AS held
), {UNPARK}, caught_up AS (
    DELETE FROM laggards g USING moved m
    WHERE g.partner_id = m.partner_id AND g.destination_id = m.destination_id AND g.seq = m.seq
), lanes_of AS (
    SELECT partner_id, destination_id, count(*)::int AS held FROM moved WHERE held GROUP BY 1, 2
), freed AS (
    UPDATE lanes l SET holding = l.holding - o.held
    FROM lanes_of o WHERE l.partner_id = o.partner_id AND l.destination_id = o.destination_id
), nudged AS (
    INSERT INTO nudges (partner_id, destination_id) SELECT partner_id, destination_id FROM lanes_of ORDER BY 1, 2
)
SELECT partner_id, destination_id, seq FROM moved
""")
FINISHED = sa.text(f"""
WITH {KEYS}
SELECT d.partner_id, d.destination_id, d.seq, d.state::text
FROM wanted w JOIN deliveries d USING (partner_id, destination_id, seq, received_at)
WHERE d.received_at BETWEEN :oldest AND :newest AND d.state NOT IN ('queued', 'delivering')
""")
STORED = sa.text("""
SELECT w.partner_id, w.seq FROM unnest(CAST(:named_partners AS int[]), CAST(:named_seqs AS bigint[]),
                                       CAST(:named_ats AS timestamptz[])) AS w (partner_id, seq, received_at)
JOIN events e ON e.partner_id = w.partner_id AND e.seq = w.seq AND e.received_at = w.received_at
""")
NOW = sa.text("SELECT now()")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A selected delivery. `verdict` says why it cannot move, None where it can."""

    key: Key
    received_at: datetime
    verdict: str | None


def count(connection: sa.Connection, kind: Kind, selection: Selection) -> Counts:
    """What the real run would select and skip; nothing is changed. Raises: NotFound for a named event, Invalid."""
    check(kind, selection)
    _require_stored(connection, selection)
    values = _values(selection, connection.execute(NOW).scalar_one())
    query = f"SELECT verdict, count(*) FROM ({_candidates(kind, selection)}) c GROUP BY verdict"
    verdicts: Counter[str | None] = Counter({row[0]: row[1] for row in connection.execute(sa.text(query), values)})
    verdicts += Counter(_without_candidates(connection, kind, selection, values))
    why = {reason: number for reason, number in verdicts.items() if reason is not None}
    return Counts(selected=verdicts.total(), skipped=sum(why.values()), dry_run=True, why=why)


def run(
    store: Store,
    kind: Kind,
    selection: Selection,
    *,
    actor: str,
    why: str | None = None,
    rate: float | None = None,
    wait: bool = False,
    begun: Callable[[int], None] = nobody,
    tell: Tell = silence,
    sleep: Callable[[float], None] = time.sleep,
) -> Counts:
    """The selected deliveries are queued again, or discarded; each once. `begun` hears its id, `tell` the progress.

    With `wait` it returns when what was queued is delivered or parked again, and `done` and `failed` count those.
    At most `rate` deliveries per second. Raises: NotFound for a named event (nothing is done), Invalid,
    StorageUnavailable (what was counted in the request's row is done).
    """

    def open_request(connection: sa.Connection) -> tuple[int, dict[str, Any], list[str]]:
        expected = count(connection, kind, selection).selected
        values = _values(selection, connection.execute(NOW).scalar_one())
        told: dict[str, Any] = {"why": why, "rate": rate, "expected": expected}
        identity = begin(connection, kind, actor, selection.told, _subjects(selection), **told)
        return identity, values, _without_candidates(connection, kind, selection, values)

    identity, values, unmatched = store.run(open_request)
    begun(identity)
    moved: list[tuple[Key, datetime]] = []
    with Request(store, identity) as request:
        request.count(len(unmatched), 0, unmatched)
        chunk = CHUNK if rate is None else max(1, min(CHUNK, math.ceil(rate)))
        for found in _chunks(store, kind, selection, values, chunk):
            if not request.goes_on(sleep):
                return request.counts
            done = store.run(partial(_move, kind=kind, identity=identity, state=selection.state, found=found))
            request.count(len(found), len(done), _why_not(found, done))
            tell(request.counts)
            if wait:
                moved += [(c.key, c.received_at) for c in found if c.key in done]
            if rate is not None and done:
                sleep(len(done) / rate)
        if wait and kind == "replay":
            _wait(store, request, moved, tell, sleep)
    return request.counts


def check(kind: Kind, selection: Selection) -> None:
    """Returns if the selection makes sense for this. Raises: Invalid."""
    if kind == "discard" and selection.state != "parked":
        raise Invalid(f"only what is parked can be discarded, not what is {selection.state}")
    if selection.state not in STATES:
        raise Invalid(f"state {selection.state!r}: {', '.join(STATES)} are allowed")
    if selection.where.reason is not None and (selection.state != "parked" or selection.where.reason not in REASONS):
        raise Invalid(f"a reason is of what is parked, one of {', '.join(REASONS)}")
    if len(selection.places) > MAX_NAMED:
        raise Invalid(f"{len(selection.places)} events are named: at most {MAX_NAMED}, select the others by filters")


def _candidates(kind: Kind, selection: Selection) -> str:
    source = "named" if selection.places else "parked" if selection.state == "parked" else "any"
    conditions = events.parked_conditions(selection.where, "reason" if source == "parked" else "park_reason")
    if source == "parked":
        conditions.append("k.parked_at <= :started")
    elif source == "any":
        conditions.append("k.state = CAST(:state AS delivery_state)")
        conditions.append("coalesce(k.delivered_at, '-infinity') <= :started")
    cases = "WHEN k.state::text <> :state THEN 'is ' || k.state::text " if source == "named" else ""
    cases += CLOSED if kind == "replay" else ""
    verdict = f"CASE {cases} END" if cases else "CAST(NULL AS text)"
    return CANDIDATES.format(verdict=verdict, source=SOURCES[source], conditions=" AND ".join(conditions))


def _values(selection: Selection, started: datetime) -> dict[str, Any]:
    named = {
        "named_partners": [place.partner_id for place in selection.places],
        "named_seqs": [place.sequence for place in selection.places],
        "named_ats": [place.received_at for place in selection.places],
    }
    return events.filter_values(selection.where) | named | {"state": selection.state, "started": started}


def _require_stored(connection: sa.Connection, selection: Selection) -> None:
    """Returns if every named event exists. Raises: NotFound."""
    if not selection.places:
        return
    values = _values(selection, EPOCH)
    stored = {(row[0], row[1]) for row in connection.execute(STORED, values)}
    for place in selection.places:
        if (place.partner_id, place.sequence) not in stored:
            raise NotFound(f"no event {event_id(place.partner_id, place.sequence, place.received_at)}")


def _without_candidates(
    connection: sa.Connection, kind: Kind, selection: Selection, values: dict[str, Any]
) -> list[str]:
    """A reason for each named event that has no delivery at all among the selected."""
    if not selection.places:
        return []
    query = f"SELECT DISTINCT c.partner_id, c.seq FROM ({_candidates(kind, selection)}) c"
    met = {(row[0], row[1]) for row in connection.execute(sa.text(query), values)}
    named = {(place.partner_id, place.sequence) for place in selection.places}
    return ["has no such delivery"] * len(named - met)


def _subjects(selection: Selection) -> list[str]:
    """Of whom the audit speaks: every named event, else the selection in words."""
    if selection.places:
        return [event_id(place.partner_id, place.sequence, place.received_at) for place in selection.places]
    return [" ".join(f"{name}={value}" for name, value in selection.told.items()) or selection.state]


def _chunks(
    store: Store, kind: Kind, selection: Selection, values: dict[str, Any], size: int
) -> Iterator[list[Candidate]]:
    """The candidates in order, each page read in a transaction of its own."""
    query = sa.text(IN_ORDER.format(candidates=_candidates(kind, selection)))
    after = FIRST
    while True:
        place = {"p": after[0], "d": after[1], "s": after[2], "chunk": size}
        with store.begin() as connection:
            rows = connection.execute(query, values | place).all()
        if not rows:
            return
        yield [Candidate((row[0], row[1], row[2]), row[3], row[4]) for row in rows]
        after = (rows[-1][0], rows[-1][1], rows[-1][2])


def _move(connection: sa.Connection, kind: Kind, identity: int, state: str, found: Sequence[Candidate]) -> set[Key]:
    """Those of the candidates that were moved: all that still stand as they were found."""
    movable = [(candidate.key, candidate.received_at) for candidate in found if candidate.verdict is None]
    moved: set[Key] = set()
    if movable:
        keys = _keys(movable)
        connection.execute(LOCK, keys)
        statement = REPLAY if kind == "replay" else DISCARD
        rows = connection.execute(statement, keys | {"id": identity, "state": state})
        moved = {(row[0], row[1], row[2]) for row in rows}
    advance(connection, identity, selected=len(found), done=len(moved))
    return moved


def _keys(of: Sequence[tuple[Key, datetime]]) -> dict[str, Any]:
    moments = [moment for _, moment in of]
    return {
        "partners": [key[0] for key, _ in of],
        "destinations": [key[1] for key, _ in of],
        "seqs": [key[2] for key, _ in of],
        "ats": moments,
        "oldest": min(moments),
        "newest": max(moments),
    }


def _why_not(found: Sequence[Candidate], moved: set[Key]) -> list[str]:
    return [candidate.verdict or "changed meanwhile" for candidate in found if candidate.key not in moved]


def _wait(
    store: Store, request: Request, moved: Sequence[tuple[Key, datetime]], tell: Tell, sleep: Callable[[float], None]
) -> None:
    """Everything that was re-queued is delivered, or parked (or discarded) again, and counted so."""
    pending = dict(moved)
    ends: Counter[str] = Counter()
    pause, longest = POLL_SECONDS
    request.settle(0, 0)
    while pending:
        for batch in _batches(list(pending.items())):
            with store.begin() as connection:
                rows = connection.execute(FINISHED, _keys(batch)).all()
            for *key, state in rows:
                ends[state] += 1
                del pending[(key[0], key[1], key[2])]
        request.settle(ends["delivered"], ends["parked"] + ends["discarded"])
        request.beat()
        tell(request.counts)
        if pending:
            sleep(pause)
            pause = min(longest, pause * 1.3)


def _batches(items: list[tuple[Key, datetime]]) -> Iterator[list[tuple[Key, datetime]]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
