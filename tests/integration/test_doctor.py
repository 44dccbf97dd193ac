"""`hookyard doctor` at the bedside: real servers are made ill, one thing at a time, and it has to say which."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from psycopg import pq

from ops.doctor import Finding, examine
from storage.schema import migrate
from storage.secrets import Vault
from storage.transactions import Store
from tests.by_hand import Hand
from tests.servers import Servers, execute, running_servers

KEY = b"k" * 32
RELOAD = "SELECT pg_reload_conf()"
POLICY: dict[str, Any] = {"max_attempts": 2, "retry_base": timedelta(seconds=1), "timeout": timedelta(seconds=1)}


@dataclass(slots=True)
class Patient:
    """An installation that is well: servers of its own, a worker with all shards, an event in its lane."""

    servers: Servers
    hand: Hand

    def sql(self, *statements: str) -> None:
        """As the super-user, each outside any transaction."""
        for statement in statements:
            execute(self.servers.url_of("hookyard"), statement)

    def config(self, **settings: str | int) -> None:
        with redis.Redis.from_url(self.servers.redis_url) as client:
            for name, value in settings.items():
                client.config_set(name.replace("_", "-"), value)


@pytest.fixture(scope="module")
def patient() -> Iterator[Patient]:
    with running_servers() as servers:
        url = servers.url_of("hookyard")
        for statement in ("ALTER SYSTEM SET fsync = on", RELOAD):  # the tests' servers run without
            execute(url, statement)
        migrate(url)
        store = Store(url, "hookyard test")
        hand = Hand(store, Vault([KEY]), str(uuid4()))
        hand.lane(**POLICY)
        hand.posted()
        yield Patient(servers, hand)
        store.close()


@pytest.fixture
def findings(patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Finding]]:
    """What the doctor says now, by check."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "DATABASE_URL": patient.servers.url_of("hookyard"),
        "REDIS_URL": patient.servers.redis_url,
        "MASTER_KEY": base64.b64encode(KEY).decode(),
        "DATA_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(f"HOOKYARD_{name}", value)
    return lambda: {finding.check: finding for finding in examine()}


def ill(found: dict[str, Finding]) -> set[str]:
    return {check for check, finding in found.items() if not finding.ok}


OLD = "interval '10 minutes'"
SICKNESSES: dict[str, tuple[list[str], list[str], set[str], str]] = {
    "fsync": (
        ["ALTER SYSTEM SET fsync = off", RELOAD],
        ["ALTER SYSTEM SET fsync = on", RELOAD],
        {"durability"},
        "ALTER SYSTEM SET fsync = on",
    ),
    "torn pages": (
        ["ALTER SYSTEM SET full_page_writes = off", RELOAD],
        ["ALTER SYSTEM RESET full_page_writes", RELOAD],
        {"durability"},
        "full_page_writes is off",
    ),
    "commits, of the server": (
        ["ALTER SYSTEM SET synchronous_commit = off", RELOAD],
        ["ALTER SYSTEM RESET synchronous_commit", RELOAD],
        {"commits"},
        "SET synchronous_commit = on",
    ),
    "commits, of the role": (
        ["ALTER ROLE hookyard SET synchronous_commit = off"],
        ["ALTER ROLE hookyard RESET synchronous_commit"],
        {"commits"},
        "SET synchronous_commit = on",
    ),
    "read-only": (
        ["ALTER SYSTEM SET default_transaction_read_only = on", RELOAD],
        ["ALTER SYSTEM RESET default_transaction_read_only", RELOAD],
        {"database"},
        "read-only",
    ),
    "old schema": (
        ["UPDATE alembic_version SET version_num = '0000'"],
        ["UPDATE alembic_version SET version_num = '0001'"],
        {"schema"},
        "run `hookyard migrate`",
    ),
    "a shard without an owner": (
        ["UPDATE shards SET owner = NULL WHERE shard = 3"],
        ["UPDATE shards SET owner = (SELECT token FROM workers)"],
        {"leases"},
        "63 of 64 shards have an owner",
    ),
    "a dead worker, an attempt in flight": (
        [
            "UPDATE deliveries SET state = 'delivering', attempts = 1, token = gen_random_uuid(), budget_ms = 1000",
            "UPDATE lanes SET in_flight = 1",
            "UPDATE workers SET expires_at = now() - interval '1 second'",
        ],
        [
            "UPDATE workers SET expires_at = now() + interval '1 hour'",
            "UPDATE lanes SET in_flight = 0",
            "UPDATE deliveries SET state = 'queued'",
        ],
        {"workers", "leases", "in flight"},
        "1 lane has something in delivering without an owner",
    ),
    "a lane that is too old": (
        ["UPDATE lanes SET head_at = '-infinity'", f"UPDATE deliveries SET received_at = received_at - {OLD}"],
        [f"UPDATE deliveries SET received_at = received_at + {OLD}"],
        {"lanes"},
        "from shop to warehouse something waits for 0:10:",
    ),
    "an event that nobody hands on": (
        [
            "UPDATE partner_tails SET cursor = 0, cursor_at = '-infinity'",
            f"UPDATE events SET received_at = received_at - {OLD}",
        ],
        ["UPDATE partner_tails SET cursor = 1", f"UPDATE events SET received_at = received_at + {OLD}"],
        {"dispatch"},
        "workers hand events to their lanes within seconds",
    ),
    "a closed destination with something queued": (
        ["UPDATE destinations SET state = 'suspended'"],
        ["UPDATE destinations SET state = 'active'"],
        {"parking"},
        "`hookyard jobs`",
    ),
}


@pytest.mark.parametrize("sickness", SICKNESSES)
def test_each_sickness_is_found_with_what_to_do_and_gone_when_it_is_cured(
    patient: Patient, findings: Callable[[], dict[str, Finding]], sickness: str
) -> None:
    cause, cure, checks, told = SICKNESSES[sickness]
    assert ill(findings()) == set()
    patient.sql(*cause)
    try:
        found = findings()
    finally:
        patient.sql(*cure)

    assert ill(found) == checks
    assert told in " / ".join(found[check].message for check in checks)


CHOICES = {
    "a paused partner": ("UPDATE partners SET state = 'paused'", "UPDATE partners SET state = 'active'"),
    "a paused destination": ("UPDATE destinations SET state = 'paused'", "UPDATE destinations SET state = 'active'"),
    "a replay of old events": (
        (
            "WITH asked AS (INSERT INTO replays (kind, actor, selection) VALUES ('replay', 'ada', '{}') RETURNING id)"
            " UPDATE deliveries SET replay_id = asked.id FROM asked"
        ),
        "UPDATE deliveries SET replay_id = NULL",
    ),
    "a backfill": ("UPDATE subscriptions SET from_seq = 2", "UPDATE subscriptions SET from_seq = 1"),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_old_by_somebodys_choice_is_no_sickness(
    patient: Patient, findings: Callable[[], dict[str, Finding]], choice: str
) -> None:
    chosen, undone = CHOICES[choice]
    cause, cure, _, _ = SICKNESSES["a lane that is too old"]
    patient.sql(*cause)
    try:
        assert not findings()["lanes"].ok
        patient.sql(chosen)
        assert findings()["lanes"].ok
    finally:
        patient.sql(undone, *cure)


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"maxmemory_policy": "allkeys-lru"}, "Set noeviction"), ({"maxmemory": 1}, "Raise maxmemory")],
)
def test_a_redis_that_evicts_or_is_full_is_found(
    patient: Patient, findings: Callable[[], dict[str, Finding]], settings: dict[str, str | int], told: str
) -> None:
    patient.config(**settings)
    try:
        found = findings()
    finally:
        patient.config(maxmemory_policy="noeviction", maxmemory=0)

    assert ill(found) == {"redis"}
    assert told in found["redis"].message
    assert findings()["redis"].ok


def test_an_asynchronous_standby_is_said_to_be_one(
    patient: Patient, findings: Callable[[], dict[str, Finding]]
) -> None:
    assert findings()["standby"].message.startswith("none")
    with standby(patient.servers):
        found = findings()["standby"]
    assert found.ok  # as was chosen
    assert "1 standby, and it is asynchronous: a fail-over may lose" in found.message


@contextmanager
def standby(servers: Servers) -> Iterator[None]:
    """Somebody follows the primary's log."""
    line = pq.PGconn.connect(f"{servers.url_of('hookyard')}?replication=true".encode())
    try:
        position = line.exec_(b"IDENTIFY_SYSTEM").get_value(0, 2) or b""
        assert line.exec_(b"START_REPLICATION PHYSICAL " + position).status == pq.ExecStatus.COPY_BOTH
        yield
    finally:
        line.finish()
