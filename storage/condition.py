"""The condition of an installation: facts about the database, its settings and stuck work. Judged elsewhere."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
import sqlalchemy as sa

from storage import schema
from storage.database import CONNECT_SECONDS
from storage.errors import translate


@dataclass(frozen=True, slots=True)
class Condition:
    """What the database says of itself and of the pipeline, at one moment."""

    version: str
    now: datetime
    read_only: bool
    unsafe_settings: tuple[str, ...]  # of fsync, full_page_writes and our own synchronous_commit: those that are off
    standbys: int
    synchronous_standbys: int
    shards: int
    unowned_shards: int
    workers: int  # with a living lease
    orphaned_lanes: int  # something in flight, nobody owns them
    unfinished_closings: int  # lanes of removed or suspended destinations where something is still queued
    undispatched_seconds: float | None  # age of the oldest event that is not in its lanes
    days_ahead: int  # partitions that are ready beyond today
    in_default_partition: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """The oldest open delivery of a lane that nobody has paused, and the policy it is tried by."""

    partner: str
    destination: str
    age: timedelta  # since it was accepted, or last replayed
    attempts: int
    retry_base: timedelta
    retry_factor: float
    retry_cap: timedelta
    timeout: timedelta


FACTS = sa.text("""
SELECT current_setting('server_version') AS version, clock_timestamp() AS now,
       pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS read_only,
       ARRAY(SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
               AND setting = 'off' ORDER BY 1) AS unsafe_settings,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous_standbys,
       (SELECT count(*) FROM shards) AS shards,
       (SELECT count(*) FROM shards s WHERE NOT EXISTS (
           SELECT FROM workers w WHERE w.token = s.owner AND NOT w.fenced AND w.expires_at > clock_timestamp()))
           AS unowned_shards,
       (SELECT count(*) FROM workers w WHERE NOT w.fenced AND w.expires_at > clock_timestamp()) AS workers,
       (SELECT count(*) FROM lanes l JOIN partners p ON p.id = l.partner_id JOIN shards s ON s.shard = p.shard
        WHERE l.in_flight > 0 AND NOT EXISTS (
            SELECT FROM workers w WHERE w.token = s.owner AND NOT w.fenced AND w.expires_at > clock_timestamp()))
           AS orphaned_lanes,
       (SELECT count(*) FROM lanes l JOIN destinations d ON d.id = l.destination_id
        WHERE (d.removed_at IS NOT NULL OR d.state = 'suspended') AND l.waiting > l.in_flight) AS unfinished_closings,
       (SELECT max(extract(epoch FROM clock_timestamp() - e.received_at))::float8
        FROM partner_heads h JOIN partner_tails t USING (partner_id)
        JOIN events e ON e.partner_id = h.partner_id AND e.seq = t.cursor + 1 AND e.received_at >= t.cursor_at
        WHERE h.last_seq > t.cursor) AS undispatched_seconds,
       (SELECT count(*) FROM generate_series(1, 30) AS n
        WHERE to_regclass('events_' || to_char((now() AT TIME ZONE 'UTC')::date + n::int, 'YYYYMMDD')) IS NOT NULL)
           AS days_ahead,
       EXISTS (SELECT FROM events_default) AS in_default_partition
""")
WAITING = sa.text("""
SELECT p.name, n.name, clock_timestamp() - greatest(o.received_at, r.created_at), n.max_attempts,
       n.retry_base_ms, n.retry_factor, n.retry_cap_ms, n.timeout_ms
FROM lanes l
JOIN partners p ON p.id = l.partner_id AND p.state = 'active'
JOIN destinations n ON n.id = l.destination_id AND n.state = 'active' AND n.removed_at IS NULL
CROSS JOIN LATERAL first_open(l.partner_id, l.destination_id, false) o
LEFT JOIN replays r ON r.id = o.replay_id
WHERE l.waiting > 0 AND o.seq >= ( -- what is older came by a backfill
    SELECT min(s.from_seq) FROM subscriptions s WHERE s.partner_id = p.id AND s.destination_id = n.id)
""")


def is_current(connection: sa.Connection) -> bool:
    """Whether the schema is this version's."""
    return not schema.pending(connection)


def examine(connection: sa.Connection) -> Condition:
    """The facts. The schema must be current."""
    row = connection.execute(FACTS).one()
    return Condition(row.version, row.now, row.read_only, tuple(row.unsafe_settings), *row[4:])


def waiting(connection: sa.Connection) -> list[Waiting]:
    """The lanes in which something waits, one each. The schema must be current."""
    return [
        Waiting(partner, destination, age, attempts, _ms(base), factor, _ms(cap), _ms(timeout))
        for partner, destination, age, attempts, base, factor, cap, timeout in connection.execute(WAITING)
    ]


def commits_by_default(url: str) -> str:
    """`synchronous_commit` of a session that asks for nothing: by the server, the database and the role.

    Raises: StorageUnavailable.
    """
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS, autocommit=True) as connection:
            row = connection.execute("SHOW synchronous_commit").fetchone()
    except psycopg.Error as problem:
        raise translate(problem) from problem
    return str(row[0]) if row else ""


def _ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)
