"""Raw group inserts of rows like the log's: one connection, one INSERT … SELECT unnest(…) and COMMIT per batch."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import psycopg

from bench.traffic import small_body

TABLE = """
CREATE TABLE bench_rows (
    partner_id int, seq bigint, received_at timestamptz, type text, order_key bigint, headers bytea, body bytea,
    PRIMARY KEY (partner_id, seq, received_at)
)
"""
INSERT = """
INSERT INTO bench_rows
SELECT * FROM unnest(%b::int[], %b::bigint[], %b::timestamptz[], %b::text[], %b::bigint[], %b::bytea[], %b::bytea[])
"""
HEADERS = (
    b"content-type: application/json\nwebhook-id: msg_1\nwebhook-timestamp: 1700000000\nwebhook-signature: v1,x\n" * 2
)


def insert(database_url: str, batch: int, seconds: float) -> float:
    """Rows per second; the table is gone afterwards."""
    body = small_body()
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLE)
        rows, began_at = 0, time.monotonic()
        while time.monotonic() - began_at < seconds:
            connection.execute(
                INSERT,
                (
                    [n % 50 for n in range(batch)],
                    [rows + n for n in range(batch)],
                    [datetime.now(UTC)] * batch,
                    ["order.created"] * batch,
                    [None] * batch,
                    [HEADERS] * batch,
                    [body] * batch,
                ),
                prepare=True,
            )
            rows += batch
        took = time.monotonic() - began_at
        connection.execute("DROP TABLE bench_rows")
    return rows / took
