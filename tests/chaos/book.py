"""What the database says in the end, and what `/metrics` says of it: read past everything, judged in checker.py."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

SETTLED = """
SELECT (SELECT count(*) FROM partner_heads h JOIN partner_tails t USING (partner_id) WHERE last_seq > cursor) AS behind,
       (SELECT count(*) FROM deliveries WHERE state IN ('queued', 'delivering')) AS open,
       (SELECT coalesce(sum(in_flight), 0) FROM gates) AS gates,
       (SELECT coalesce(sum(holding), 0) FROM lanes) AS holding
"""
EVENTS = """
SELECT p.name AS partner, e.seq, e.type, e.body FROM events e JOIN partners p ON p.id = e.partner_id ORDER BY 1, 2
"""
HEADS = """
SELECT p.name AS partner, h.last_seq, t.cursor
FROM partners p JOIN partner_heads h ON h.partner_id = p.id JOIN partner_tails t ON t.partner_id = p.id
"""
DELIVERIES = """
SELECT p.name AS partner, c.name AS destination, d.seq, d.state::text, d.park_reason, d.attempts, d.failures, d.holding
FROM deliveries d JOIN partners p ON p.id = d.partner_id JOIN destinations c ON c.id = d.destination_id
"""
ATTEMPTS = """
SELECT p.name AS partner, c.name AS destination, a.seq, a.number, a.outcome, a.status, a.replay_id
FROM attempts a JOIN partners p ON p.id = a.partner_id JOIN destinations c ON c.id = a.destination_id
ORDER BY 1, 2, 3, 4
"""
COUNTERS = """
SELECT * FROM (
    SELECT p.name || ' to ' || c.name AS name, l.waiting, l.in_flight, l.holding, l.head_seq,
           d.waiting AS true_waiting, d.in_flight AS true_in_flight, d.holding AS true_holding, d.first_open, d.last,
           l.tail_seq
    FROM lanes l JOIN partners p ON p.id = l.partner_id JOIN destinations c ON c.id = l.destination_id
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE state IN ('queued', 'delivering')) AS waiting,
               count(*) FILTER (WHERE state = 'delivering') AS in_flight, count(*) FILTER (WHERE holding) AS holding,
               min(seq) FILTER (WHERE state IN ('queued', 'delivering') OR holding) AS first_open,
               coalesce(max(seq), 0) AS last
        FROM deliveries d WHERE d.partner_id = l.partner_id AND d.destination_id = l.destination_id
    ) d
) l
"""
GATES = """
SELECT c.name, g.in_flight,
       (SELECT count(*) FROM deliveries d WHERE d.destination_id = g.destination_id AND d.state = 'delivering') AS truth
FROM gates g JOIN destinations c ON c.id = g.destination_id
"""
PARKED = """
SELECT p.name AS partner, c.name AS destination, k.seq, k.reason
FROM parked k JOIN partners p ON p.id = k.partner_id JOIN destinations c ON c.id = k.destination_id
"""
PARKINGS = "SELECT c.name AS destination, k.reason, k.n FROM parkings k JOIN destinations c ON c.id = k.destination_id"
SUBSCRIPTIONS = """
SELECT p.name AS partner, c.name AS destination, s.ordering, s.types, s.from_seq, s.until_seq
FROM subscriptions s JOIN partners p ON p.id = s.partner_id JOIN destinations c ON c.id = s.destination_id
ORDER BY 1, 2, s.from_seq, s.id
"""
IDLE = "SELECT application_name FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
TABLES = {
    "events": EVENTS,
    "heads": HEADS,
    "deliveries": DELIVERIES,
    "attempts": ATTEMPTS,
    "lanes": COUNTERS,
    "gates": GATES,
    "parked": PARKED,
    "parkings": PARKINGS,
    "subscriptions": SUBSCRIPTIONS,
    "idle_in_transaction": IDLE,
}
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Book:
    """Rows by table, in the words of the queries above, and the samples of `/metrics` by name and labels."""

    events: list[Any]
    heads: list[Any]
    deliveries: list[Any]
    attempts: list[Any]
    lanes: list[Any]
    gates: list[Any]
    parked: list[Any]
    parkings: list[Any]
    subscriptions: list[Any]
    idle_in_transaction: list[Any]
    metrics: dict[tuple[str, frozenset[tuple[str, str]]], float]
    before: Book | None = None  # as it was when the run began, which may not have been the first on this stage

    def first(self, partner: str) -> int:
        """The sequence at which this run's events of the partner begin."""
        heads = self.before.heads if self.before else []
        return next((head.last_seq for head in heads if head.partner == partner), 0) + 1

    def since(self, before: Book) -> Book:
        """Only the events of this run, and what became of them; all else as it is."""
        of_this_run = replace(self, before=before)
        rows: dict[str, Any] = {
            name: [row for row in getattr(self, name) if row.seq >= of_this_run.first(row.partner)]
            for name in ("events", "deliveries", "attempts", "parked")
        }
        return replace(of_this_run, **rows)

    def gained(self, name: str) -> dict[tuple[str, ...], float]:
        """By how much the samples of a total have grown in this run."""
        old = self.before.samples(name) if self.before else {}
        return {labels: number - old.get(labels, 0) for labels, number in self.samples(name).items()}

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """The samples of a metric by the values of their labels, in the order of the labels' names."""
        return {
            tuple(value for _, value in sorted(labels)): number
            for (metric, labels), number in self.metrics.items()
            if metric == name
        }


def read_book(url: str, metrics: str) -> Book:
    """All of it, in one snapshot of the database."""
    with psycopg.connect(url, row_factory=namedtuple_row) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        rows: dict[str, Any] = {name: connection.execute(query.encode()).fetchall() for name, query in TABLES.items()}
    return Book(**rows, metrics=parse(metrics))


def parse(metrics: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of a text of `/metrics`; the labels' values are names, without escapes."""
    return {
        (name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))): float(value)
        for name, labels, value in SAMPLE.findall(metrics)
    }


def wait_until_settled(url: str, seconds: float, goes_on: Callable[[], bool]) -> str:
    """Nothing waits, holds or is in flight; or what still does, where that takes too long."""
    deadline = time.monotonic() + seconds
    with psycopg.connect(url, autocommit=True, row_factory=namedtuple_row) as connection:
        while True:
            left: Any = connection.execute(SETTLED.encode()).fetchone()
            assert left
            if not any(left):
                return ""
            if time.monotonic() > deadline or not goes_on():
                return ", ".join(f"{name}: {n}" for name, n in left._asdict().items() if n)
            time.sleep(0.25)
