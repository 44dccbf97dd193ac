"""Real servers for tests: one PostgreSQL and one Valkey per test run (per pytest-xdist worker), from the same wheels.

A test that asks for `database_url` gets a migrated database of its own, cloned from a template; `redis_url` gives it an
emptied Valkey database. A test that wants to break a server asks for `own_servers` and gets a pair to itself.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import redis

from ops.embedded import Postgres, Valkey, free_port, new_password, start_and_wait
from ops.place import choose_place
from ops.processes import stop

# Tests kill servers' processes, not the machine: what the kernel has is as good as what the disk has, and faster.
FAST = {"fsync": "off", "shared_buffers": "32MB", "max_wal_size": "256MB"}
_numbers = itertools.count(1)


@dataclass(slots=True)
class Servers:
    """A running pair. `stop_*`, `start_*` and `kill` are for tests that own it."""

    postgres: Postgres
    valkey: Valkey
    postgres_process: subprocess.Popen[bytes]
    valkey_process: subprocess.Popen[bytes]

    @property
    def admin_url(self) -> str:
        """The maintenance database, as a super-user."""
        return self.postgres.url.removesuffix("hookyard") + "postgres"

    @property
    def redis_url(self) -> str:
        return self.valkey.url

    def url_of(self, database: str) -> str:
        return self.postgres.url.removesuffix("hookyard") + database

    def start_postgres(self) -> None:
        self.postgres_process = start_and_wait(self.postgres)

    def start_valkey(self) -> None:
        self.valkey_process = start_and_wait(self.valkey)

    def stop_postgres(self) -> None:
        stop(self.postgres_process, *self.postgres.stop_signals)

    def stop_valkey(self) -> None:
        stop(self.valkey_process, *self.valkey.stop_signals)


@contextmanager
def running_servers() -> Iterator[Servers]:
    """A new pair in a temporary folder that the servers' unprivileged user can reach; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="hookyard-test-"))
    folder.chmod(0o711)
    place = choose_place(folder)
    postgres = Postgres(place, free_port(), new_password(), settings=FAST)
    valkey = Valkey(place, free_port(), new_password())
    try:
        servers = Servers(postgres, valkey, start_and_wait(postgres), start_and_wait(valkey))
        try:
            yield servers
        finally:
            servers.stop_valkey()
            servers.stop_postgres()
    finally:
        for path in {folder, place.root}:
            shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The run's own pair. Do not stop it: others use it."""
    with running_servers() as pair:
        yield pair


@pytest.fixture
def own_servers() -> Iterator[Servers]:
    """A pair that this test may stop, kill and fill; its database `hookyard` is empty."""
    with running_servers() as pair:
        yield pair


@pytest.fixture(scope="session")
def template_database(servers: Servers) -> str:
    """The name of a database that is migrated once and cloned for every test."""
    from storage.schema import migrate

    execute(servers.admin_url, "CREATE DATABASE migrated")
    migrate(servers.url_of("migrated"))
    return "migrated"


@pytest.fixture
def database_url(servers: Servers, template_database: str) -> Iterator[str]:
    """A migrated, empty database of this test's own."""
    with _database(servers, template_database) as url:
        yield url


@pytest.fixture
def empty_database_url(servers: Servers) -> Iterator[str]:
    """A database of this test's own in which nothing has been migrated."""
    with _database(servers, "template1") as url:
        yield url


@pytest.fixture
def redis_url(servers: Servers) -> str:
    """An emptied Valkey database (there are 16, used in turn, so that a straggler of an earlier test meets nobody)."""
    url = f"{servers.redis_url.removesuffix('/0')}/{next(_numbers) % 16}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


def execute(url: str, statement: str) -> None:
    """Runs one statement outside any transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@contextmanager
def _database(servers: Servers, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    execute(servers.admin_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield servers.url_of(name)
    finally:
        execute(servers.admin_url, f"DROP DATABASE {name} WITH (FORCE)")
