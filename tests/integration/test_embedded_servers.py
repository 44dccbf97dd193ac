"""The embedded servers on a real machine: durable, private, and back after any death."""

from __future__ import annotations

import os
import signal
import stat

import psycopg
import pytest
import redis

from ops.embedded import StillRunning, free_port
from tests.servers import Servers, execute


def test_a_test_gets_an_empty_database_and_an_empty_valkey(empty_database_url: str, redis_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert tables == (0,)
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
