"""The pipeline's scenario for what people write instead, on the same servers: see `bench/baselines/`."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg

from bench import cpu
from bench.baselines import TABLE
from bench.helper import Helper
from bench.measure import counted, milliseconds
from bench.stage import SECRET, Stage, stage
from bench.traffic import Sender, Traffic
from tests.acceptance.product import free_port, until

EVENTS = 300
WORKERS = 2  # one for each core


def play() -> dict[str, Any]:
    """50 partners, 64 connections; delivered to the last event."""
    with stage(10_000) as place:
        port = free_port()
        helpers = _start(place, port)
        senders = [Sender(f"p{n}", SECRET) for n in range(50)]
        place.await_arrivals(place.load(Traffic(port, senders, 0, 50, 8, 10)).start().finish())
        load = place.load(Traffic(port, senders, 0, EVENTS, 64, 30))
        before = _used(place, helpers)
        run = load.start().finish()
        place.await_arrivals(run)
        used = _used(place, helpers) - before
        return {
            "delivered_per_second": round(run.delivered_per_second(), 1),
            "accepted_per_second": round(run.accepted_per_second()),
            **milliseconds("lag_", run.lag_ms()),
            "cpu_us_per_event": round(used / EVENTS * 1e6),
            **counted(run),
        }


def _start(place: Stage, port: int) -> list[Helper]:
    """The endpoint answers, the workers wait."""
    database = place.database_url.removesuffix("hookyard") + "baseline"
    with psycopg.connect(place.database_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE baseline")
    with psycopg.connect(database) as connection:
        connection.execute(TABLE.encode())
    environment = {
        "BASELINE_DATABASE_URL": database,
        "BASELINE_REDIS_URL": place.redis_url.removesuffix("/0") + "/1",
        "BASELINE_SECRET": SECRET,
        "BASELINE_DESTINATION": f"http://127.0.0.1:{place.sink_port}/ok",
    }
    server = place.helper("bench.baselines.server", str(port), environment=environment)
    workers = [place.helper("bench.baselines.worker", environment=environment) for _ in range(WORKERS)]
    until(lambda: _answers(port), 30, lambda: "the baseline does not start")
    return [server, *workers]


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/docs", trust_env=False).is_success
    except httpx.TransportError:
        return False


def _used(place: Stage, helpers: list[Helper]) -> float:
    """CPU seconds of the baseline and of the servers, so far."""
    servers = place.cpu()
    return sum(cpu.server_seconds(helper.pid) for helper in helpers) + servers["postgres"] + servers["valkey"]
