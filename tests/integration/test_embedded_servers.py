"""The embedded servers on a real machine: durable, private, and back after any death."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
import redis

from ops.embedded import ONCE, StillRunning, free_port, new_password, start_and_wait
from tests.servers import Servers, execute


def test_a_test_gets_an_empty_database_and_an_empty_valkey(empty_database_url: str, redis_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert tables == (0,)
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0


def test_a_commit_is_on_disk_before_it_is_answered(own_servers: Servers) -> None:
    own_servers.stop_postgres()
    own_servers.postgres = replace(own_servers.postgres, settings={})  # as shipped, not as other tests are sped up
    own_servers.start_postgres()
    with psycopg.connect(own_servers.postgres.url) as connection:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            assert connection.execute(f"SHOW {name}".encode()).fetchone() == ("on",)
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)


def test_committed_data_survives_the_sudden_death_of_postgres(own_servers: Servers) -> None:
    execute(own_servers.postgres.url, "CREATE TABLE kept AS SELECT 1 AS n")
    own_servers.postgres_process.kill()  # the postmaster alone: its children have to notice
    own_servers.postgres_process.wait()

    own_servers.start_postgres()

    with psycopg.connect(own_servers.postgres.url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


def test_what_valkey_stored_survives_its_sudden_death(own_servers: Servers) -> None:
    with redis.Redis.from_url(own_servers.redis_url) as client:
        client.set("kept", "1")
        client.waitaof(1, 0, 5000)
    own_servers.valkey_process.kill()
    own_servers.valkey_process.wait()

    own_servers.start_valkey()

    with redis.Redis.from_url(own_servers.redis_url) as client:
        assert client.get("kept") == b"1"


def test_valkey_starts_empty_when_it_cannot_read_what_it_stored(own_servers: Servers) -> None:
    own_servers.stop_valkey()
    stored = own_servers.valkey.place.root / "valkey" / "appendonlydir"
    for path in stored.glob("*.incr.aof"):
        path.write_bytes(b"*1\r\nnonsense\r\n" * 10)
    first = own_servers.valkey.start()
    assert first.wait(10) != 0

    own_servers.start_valkey()

    assert stored.with_name("appendonlydir.unreadable").exists()


def test_two_servers_never_write_to_the_same_data(own_servers: Servers) -> None:
    for server in (own_servers.postgres, own_servers.valkey):
        with pytest.raises(StillRunning):
            replace(server, port=free_port()).start()


def test_a_stale_pid_file_that_names_another_process_does_not_keep_postgres_down(own_servers: Servers) -> None:
    own_servers.stop_postgres()
    data = own_servers.postgres.place.root / "postgres"
    somebody = own_servers.valkey_process.pid  # alive, and of the same user: PostgreSQL itself would refuse for ever
    (data / "postmaster.pid").write_text(f"{somebody}\n{data}\n0\n1\n\n127.0.0.1\n0 0\nready\n")

    own_servers.start_postgres()

    assert own_servers.postgres.is_ready()


def test_a_lost_password_is_replaced(own_servers: Servers) -> None:
    own_servers.stop_postgres()
    own_servers.postgres = replace(own_servers.postgres, password=new_password(), password_is_new=True)

    own_servers.postgres_process = start_and_wait(own_servers.postgres, 20)

    with psycopg.connect(own_servers.postgres.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_nobody_gets_in_without_the_password(servers: Servers) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(replace(servers.postgres, password="guessed").url)
    with pytest.raises(redis.AuthenticationError), redis.Redis(port=servers.valkey.port, retry=ONCE) as client:
        client.ping()


def test_data_and_passwords_are_closed_to_other_users(servers: Servers) -> None:
    root = servers.postgres.place.root
    for name in ("postgres", "valkey"):
        assert (root / name).stat().st_mode & 0o077 == 0
    for name in ("postgres.log", "valkey.log", "valkey/valkey.conf"):
        assert (root / name).stat().st_mode & 0o077 == 0
    assert not (root / "postgres.password").exists()
