"""The pipeline by hand: what ingest and workers would do to the database, step by step, for tests about people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from domain.events import event_id, place_of
from storage import destinations, partners, subscriptions
from storage.secrets import Vault
from storage.transactions import Store

ACTOR = "tester"
URL = "https://warehouse.example/hooks"


@dataclass(slots=True)
class Hand:
    """A migrated database of this test's own, and a hand that moves things in it."""

    store: Store
    vault: Vault
    token: str

    def partner(self, name: str = "shop", **options: object) -> partners.Partner:
        with self.store.begin() as connection:
            return partners.add(connection, self.vault, name, options, actor=ACTOR)[0]  # type: ignore[arg-type]

    def destination(self, name: str = "warehouse", **options: object) -> int:
        with self.store.begin() as connection:
            destinations.add(connection, self.vault, name, {"url": URL, **options}, actor=ACTOR)  # type: ignore[typeddict-item]
            return destinations.find(connection, name).id

    def subscribe(self, partner: str = "shop", destination: str = "warehouse", **options: object) -> None:
        with self.store.begin() as connection:
            subscriptions.subscribe(connection, partner, destination, actor=ACTOR, **options)  # type: ignore[arg-type]

    def lane(self, partner: str = "shop", destination: str = "warehouse", **options: object) -> None:
        """A partner joined to a destination."""
        self.partner(partner)
        self.destination(destination, **options)
        self.subscribe(partner, destination)

    def post(self, partner: str = "shop", n: int = 1, kind: str | None = None, body: bytes = b"{}") -> list[str]:
        """The ids of n events that were accepted just now."""
        headers = b"content-type:application/json"
        query = """SELECT seq, received_at FROM accept(
            array_fill(CAST(:partner AS int), ARRAY[:n]), array_fill(NULL::bytea, ARRAY[:n]),
            array_fill(CAST(:type AS text), ARRAY[:n]), array_fill(NULL::bigint, ARRAY[:n]),
            array_fill(CAST(:headers AS bytea), ARRAY[:n]), array_fill(NULL::bytea, ARRAY[:n]),
            array_fill(CAST(:body AS bytea), ARRAY[:n]), interval '1 day') WHERE status = 'stored' ORDER BY seq"""
        with self.store.begin() as connection:
            identity = partners.find(connection, partner).id
            values = {"partner": identity, "n": n, "type": kind, "headers": headers, "body": body}
            return [event_id(identity, row.seq, row.received_at) for row in connection.execute(sa.text(query), values)]

    def dispatch(self) -> None:
        """Everything accepted is in its lanes."""
        self.sql(
            "INSERT INTO workers (token, name, expires_at)"
            " VALUES (:t, 'hand', now() + interval '1 hour') ON CONFLICT DO NOTHING"
        )
        self.sql("UPDATE shards SET owner = CAST(:t AS uuid)")
        self.sql(
            "SELECT count(*) FROM dispatch(CAST(:t AS uuid), ARRAY(SELECT id FROM partners),"
            " ARRAY(SELECT false FROM partners), 10000, 0)"
        )

    def posted(self, n: int = 1, partner: str = "shop", **event: str) -> list[str]:
        """The ids of n events that were accepted and dispatched."""
        ids = self.post(partner, n, **event)  # type: ignore[arg-type]
        self.dispatch()
        return ids

    def deliver(self, *ids: str) -> None:
        """Every delivery of these events was delivered at once."""
        self._end(ids, "state = 'delivered', delivered_at = now(), attempts = attempts + 1")

    def park(self, *ids: str, reason: str = "attempts_exhausted", holding: bool = False) -> None:
        """Every delivery of these events has been parked."""
        self._end(ids, f"state = 'parked', park_reason = '{reason}', attempts = attempts + 1, holding = {holding}")
        if holding:
            self.sql("UPDATE lanes SET holding = holding + :n", n=len(ids))
        for seq in map(_seq, ids):
            self.sql(
                "INSERT INTO parked (partner_id, destination_id, seq, received_at, reason)"
                " SELECT partner_id, destination_id, seq, received_at, park_reason FROM deliveries WHERE seq = :seq",
                seq=seq,
            )

    def claim(self, event: str) -> None:
        """An attempt of the event is in flight."""
        self.sql(
            "UPDATE deliveries SET state = 'delivering', attempts = attempts + 1, token = gen_random_uuid(),"
            " budget_ms = 1000 WHERE seq = :seq AND state = 'queued'",
            seq=_seq(event),
        )
        self.sql("UPDATE lanes SET in_flight = in_flight + 1")

    def age(self, by: timedelta) -> None:
        """Everything stored so far was received earlier by this much (partitions permitting)."""
        for table in ("events", "deliveries", "parked"):
            self.sql(f"UPDATE {table} SET received_at = received_at - CAST(:by AS interval)", by=by)

    def states(self, destination: str = "warehouse") -> list[str]:
        """The states of the deliveries to a destination, in sequence."""
        return [
            str(row[0])
            for row in self.rows(
                "SELECT d.state::text FROM deliveries d JOIN destinations n ON n.id = d.destination_id"
                " WHERE n.name = :name ORDER BY d.partner_id, d.seq",
                name=destination,
            )
        ]

    def lane_row(self) -> tuple[int, int, int, int]:
        """waiting, holding, head_seq, tail_seq of the one lane."""
        ((waiting, holding, head, tail),) = self.rows("SELECT waiting, holding, head_seq, tail_seq FROM lanes")
        return waiting, holding, head, tail

    def nudges(self) -> int:
        """How many nudges there are; they are taken out."""
        return len(self.rows("DELETE FROM nudges RETURNING id"))

    def audit(self) -> list[tuple[str, str]]:
        return [(row.action, row.subject) for row in self.rows("SELECT action, subject FROM audit ORDER BY id")]

    def sql(self, statement: str, **values: object) -> None:
        with self.store.begin() as connection:
            connection.execute(sa.text(statement), {"t": self.token, **values})

    def rows(self, statement: str, **values: object) -> list[Any]:
        with self.store.begin() as connection:
            return list(connection.execute(sa.text(statement), values))

    def now(self) -> datetime:
        with self.store.begin() as connection:
            moment: datetime = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
            return moment

    def _end(self, ids: tuple[str, ...], change: str) -> None:
        for seq in map(_seq, ids):
            self.sql(f"UPDATE deliveries SET {change} WHERE seq = :seq AND state IN ('queued', 'delivering')", seq=seq)
            self.sql("UPDATE lanes SET waiting = waiting - 1")


def somebody_waits_for_a_lock(connection: sa.Connection) -> None:
    """Returns when a session of this database waits for a lock that another holds."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadline = time.monotonic() + 10
    while not connection.execute(sa.text(waiting)).scalar_one():
        assert time.monotonic() < deadline, "nobody waits for a lock"
        connection.execute(sa.text("SELECT pg_stat_clear_snapshot()"))


def _seq(event: str) -> int:
    return place_of(event).sequence


@pytest.fixture
def hand(database_url: str) -> Iterator[Hand]:
    store = Store(database_url, "hookyard test")
    yield Hand(store, Vault([b"k" * 32]), str(uuid4()))
    store.close()
