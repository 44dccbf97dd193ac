"""What the whole installation looks like from the database: workers, shards with their epochs, sizes of tables."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

WORKERS = sa.text("""
SELECT w.name, w.started_at, extract(epoch FROM w.expires_at - clock_timestamp())::float8 AS lease,
       (SELECT count(*) FROM shards s WHERE s.owner = w.token) AS shards
FROM workers w WHERE NOT w.fenced ORDER BY w.name, w.started_at
""")
SHARDS = sa.text("""
SELECT s.shard, s.epoch, w.name,
       (SELECT count(*) FROM partners p WHERE p.shard = s.shard AND p.removed_at IS NULL) AS partners
FROM shards s LEFT JOIN workers w ON w.token = s.owner AND NOT w.fenced ORDER BY s.shard
""")
# A partitioned table counts with all its partitions; rows are the estimates of the last analysis.
TABLES = sa.text("""
SELECT r.relname, sum(pg_total_relation_size(t.relid))::bigint AS bytes, sum(greatest(c.reltuples, 0))::bigint AS rows,
       count(*) FILTER (WHERE t.relid <> r.oid) AS partitions
FROM pg_class r
JOIN pg_namespace n ON n.oid = r.relnamespace AND n.nspname = current_schema()
CROSS JOIN LATERAL (
    SELECT relid FROM pg_partition_tree(r.oid) WHERE isleaf UNION SELECT r.oid WHERE r.relkind = 'r') t
JOIN pg_class c ON c.oid = t.relid
WHERE r.relkind IN ('r', 'p') AND NOT r.relispartition
GROUP BY r.relname ORDER BY bytes DESC, r.relname
""")
DATABASE = sa.text("""
SELECT current_setting('server_version') AS version, pg_database_size(current_database()) AS bytes,
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections
""")


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that was not taken over. `lease_seconds` until its lease ends; below zero it has ended."""

    name: str
    started_at: datetime
    lease_seconds: float
    shards: int


@dataclass(frozen=True, slots=True)
class Shard:
    """A slice of the partners. `owner` is None where nobody has it."""

    shard: int
    epoch: int
    owner: str | None
    partners: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its indexes and all its partitions; `rows` is the database's estimate."""

    table: str
    bytes: int
    rows: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Database:
    """The server and this database on it."""

    version: str
    bytes: int
    connections: int


@dataclass(frozen=True, slots=True)
class Installation:
    """All of it, at one moment."""

    workers: list[Worker]
    shards: list[Shard]
    tables: list[Table]
    database: Database


def examine(connection: sa.Connection) -> Installation:
    """What is there now."""
    return Installation(
        [Worker(*row) for row in connection.execute(WORKERS)],
        [Shard(*row) for row in connection.execute(SHARDS)],
        [Table(*row) for row in connection.execute(TABLES)],
        Database(*connection.execute(DATABASE).one()),
    )
