"""The jobs role as a process, on real servers."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import redis
from prometheus_client.parser import text_string_to_metric_families

from ops.embedded import free_port
from ops.processes import stop
from storage.schema import migrate
from tests.by_hand import Hand
from tests.servers import Servers
from workers.jobs import rq_on

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 40


@dataclass(slots=True)
class JobsProcess:
    """A jobs process and its side door."""

    process: subprocess.Popen[bytes]
    url: str
    seen: list[int] = field(default_factory=list)

    def ready(self) -> tuple[int, list[str]]:
        answer = httpx.get(f"{self.url}/health/ready", timeout=3)
        return answer.status_code, answer.json()["amiss"]

    def done(self, job: str, outcome: str = "done") -> float:
        """How often it has done this job."""
        families = text_string_to_metric_families(httpx.get(f"{self.url}/metrics", timeout=3).text)
        wanted = {"job": job, "outcome": outcome}
        return sum(
            s.value
            for family in families
            for s in family.samples
            if s.name == "hookyard_jobs_total" and s.labels == wanted
        )


@contextlib.contextmanager
def jobs(database_url: str, redis_url: str, folder: Path) -> Iterator[JobsProcess]:
    """A jobs process that answers; killed afterwards if need be."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOOKYARD_")} | {
        "HOOKYARD_DATABASE_URL": database_url,
        "HOOKYARD_REDIS_URL": redis_url,
        "HOOKYARD_MASTER_KEY": base64.b64encode(b"k" * 32).decode(),
        "HOOKYARD_JOBS_BIND": f"127.0.0.1:{port}",
        "HOOKYARD_DATA_DIR": str(folder / "none"),
    }
    with (folder / f"jobs-{port}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "ops.cli", "jobs"], cwd=ROOT, env=environment, stderr=log)
    running = JobsProcess(process, f"http://127.0.0.1:{port}")
    try:
        until(lambda: running.ready()[0] == 200)
        yield running
    finally:
        stop(process, (signal.SIGTERM, 5))


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if condition():
                return
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def enqueue(redis_url: str, job: str, slot: int) -> None:
    with rq_on(redis_url) as (queue, _):
        queue.enqueue_call("workers.jobs.do", (job, slot))


def test_what_is_over_is_cleared_away_and_what_comes_is_prepared(
    hand: Hand, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    hand.lane()
    last = (datetime.now(UTC) + timedelta(days=14)).strftime("%Y%m%d")
    hand.sql(f"DROP TABLE events_{last}")
    hand.sql("INSERT INTO dedupe SELECT 1, int4send(n), n, now() - interval '31 days' FROM generate_series(1, 2500) n")
    hand.sql("INSERT INTO dedupe SELECT 1, int4send(-n), n, now() - interval '29 days' FROM generate_series(1, 50) n")
    hand.sql("UPDATE destination_secrets SET expires_at = now() + interval '1 day'")
    hand.sql(
        "INSERT INTO destination_secrets (destination_id, sealed, expires_at)"
        " SELECT id, '', now() - interval '2 days' FROM destinations"
    )
    hand.posted(3)
    hand.sql("UPDATE destinations SET state = 'suspended'")  # and its command was interrupted before it parked them

    with jobs(database_url, redis_url, tmp_path) as running:
        for part in range(24):
            enqueue(redis_url, "dedupe", part)
        until(lambda: running.done("dedupe") >= 24)
        until(lambda: running.done("partitions") == running.done("secrets") == running.done("closed-lanes") == 1)

    assert hand.rows(f"SELECT to_regclass('events_{last}') IS NOT NULL")[0][0]
    assert hand.rows("SELECT count(*) FROM dedupe")[0][0] == 50
    assert hand.rows("SELECT count(*) FROM destination_secrets")[0][0] == 1
    assert hand.states() == ["parked"] * 3


def test_of_two_processes_one_does_each_slot(database_url: str, redis_url: str, tmp_path: Path) -> None:
    with jobs(database_url, redis_url, tmp_path) as one, jobs(database_url, redis_url, tmp_path) as other:
        until(lambda: one.done("partitions") + other.done("partitions") >= 1)
        with rq_on(redis_url) as (queue, _):
            until(lambda: queue.is_empty())
        until(lambda: one.done("closed-lanes") + other.done("closed-lanes") >= 1)

        assert [one.done(job) + other.done(job) for job in ("partitions", "dedupe", "secrets")] == [1, 1, 1]


def test_it_waits_for_redis_and_goes_on_when_it_is_back(own_servers: Servers, tmp_path: Path) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    with jobs(url, own_servers.redis_url, tmp_path) as running:
        until(lambda: running.done("partitions") == 1)

        own_servers.valkey_process.kill()
        own_servers.valkey_process.wait()
        until(lambda: running.ready() == (200, ["redis away"]))
        own_servers.start_valkey()
        until(lambda: running.ready() == (200, []))
        with redis.Redis.from_url(own_servers.redis_url) as client:
            client.flushall()
        enqueue(own_servers.redis_url, "partitions", 1)

        until(lambda: running.done("partitions") == 2)


def test_a_chore_waits_for_the_database(own_servers: Servers, tmp_path: Path) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    with jobs(url, own_servers.redis_url, tmp_path) as running:
        until(lambda: running.done("closed-lanes") >= 1)

        own_servers.stop_postgres()
        enqueue(own_servers.redis_url, "secrets", 1)
        until(lambda: running.ready() == (200, ["database away"]))
        before = running.done("secrets")
        own_servers.start_postgres()

        until(lambda: running.done("secrets") == before + 1)
        assert running.ready() == (200, [])


def test_it_ends_in_time_although_redis_and_the_database_hang(own_servers: Servers, tmp_path: Path) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    with jobs(url, own_servers.redis_url, tmp_path) as running:
        until(lambda: running.done("partitions") == 1)
        frozen = (own_servers.postgres_process, own_servers.valkey_process)
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            running.process.send_signal(signal.SIGTERM)

            assert running.process.wait(10) == 0
            assert time.monotonic() - began < 5
        finally:
            for process in frozen:
                process.send_signal(signal.SIGCONT)


def test_it_keeps_its_keys_under_its_own_name(database_url: str, redis_url: str, tmp_path: Path) -> None:
    with jobs(database_url, redis_url, tmp_path) as running:
        until(lambda: running.done("partitions") == 1)
    with redis.Redis.from_url(redis_url) as client:
        assert {key.split(b":")[0] for key in client.scan_iter()} == {b"hookyard"}
