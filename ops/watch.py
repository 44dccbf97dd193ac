"""How the whole system stands, as one ops process sees it: kept fresh for whoever asks, however many ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from prometheus_client.metrics_core import Metric

from ops import jobs
from ops.asking import Asked, in_daemon_thread
from ops.cli.backlog import Slopes, document
from ops.health import RoleHealth, ask_all, verdict
from ops.jobs import Jobs
from ops.metrics import Standing, of_database, of_processes, read_standing
from ops.slotfiles import collect
from storage.figures import Parkings
from storage.transactions import Store

PING_SECONDS = 1.5  # a database that takes longer for nothing is as good as away
STANDING_SECONDS = 5.0  # at 10,000 partners and 2,000,000 parked deliveries it takes 2
STATEMENT_SECONDS = 20.0
REDIS_SECONDS = 1.0
DEPTH, CAPACITY = "hookyard_queue_depth", "hookyard_queue_capacity"


@dataclass(frozen=True, slots=True)
class Redis:
    """The server of the hints, as it is now."""

    up: bool
    version: str | None = None
    used_bytes: int | None = None


class Watch:
    """Asks the database, the roles and Redis. Under a supervisor `metrics_dir` holds the metric files of all roles."""

    def __init__(
        self, database_url: str, redis_url: str | None, metrics_dir: Path | None, health_sockets: Mapping[str, Path]
    ) -> None:
        self._redis_url, self._metrics_dir, self._sockets = redis_url, metrics_dir, health_sockets
        self._pings = Store(database_url, "hookyard ops health", STATEMENT_SECONDS)
        self._reads = Store(database_url, "hookyard ops", STATEMENT_SECONDS)
        self._database = Asked(self._ping, PING_SECONDS)
        self._standing = Asked(self._read, STANDING_SECONDS)
        self._parkings: list[Parkings] = []
        self._counting = asyncio.Lock()
        self._slopes = Slopes()
        self._measured: dict[str, float] = {}

    async def ready(self) -> dict[str, Any]:
        """The document of `/health/ready`."""
        up, roles = await asyncio.gather(self._database.answer(), self.roles())
        return verdict(up is not None, roles)

    async def roles(self) -> dict[str, RoleHealth]:
        """What every other process under the supervisor says of itself, by slot."""
        return await ask_all(self._sockets)

    async def standing(self) -> Standing | None:
        """Backlogs, gates and parkings, at most a second old (or ten times as old as asking took); None: no answer."""
        return await self._standing.answer()

    async def backlogs(self) -> list[dict[str, Any]] | None:
        """What `hookyard backlog --json` prints, with the slope; None: the database does not answer."""
        standing = await self.standing()
        if standing is None:
            return None
        return [document(partner, self._measured.get(partner.partner)) for partner in standing.backlogs]

    async def metrics(self) -> str:
        """Everything there is to scrape, with or without the database."""
        standing, counted = await asyncio.gather(self.standing(), self._counted())
        if standing is not None:
            self._parkings = standing.parkings
        return counted + of_database(standing, self._parkings)

    async def figures(self) -> list[Metric]:
        """The metrics of the roles under the same supervisor, added up; read by one thread at a time."""
        folder = self._metrics_dir
        if folder is None:
            return []
        async with self._counting:
            return await in_daemon_thread(lambda: list(collect(folder)))

    async def queues(self) -> list[dict[str, Any]]:
        """Every bounded queue inside the roles under the same supervisor, with its depth and capacity."""
        told: dict[str, dict[str, float]] = {DEPTH: {}, CAPACITY: {}}
        for metric in await self.figures():
            for sample in metric.samples:
                if sample.name in told:
                    told[sample.name][sample.labels["queue"]] = sample.value
        return [{"queue": q, "depth": depth, "capacity": told[CAPACITY].get(q)} for q, depth in told[DEPTH].items()]

    async def redis(self) -> Redis:
        """Whether Redis answers, and what it says of itself."""
        return await in_daemon_thread(self._look_at_redis)

    async def jobs(self) -> Jobs | None:
        """What rq has to do and has done lately; None: Redis does not answer."""
        url = self._redis_url
        if not url:
            return None
        try:
            return await asyncio.wait_for(in_daemon_thread(lambda: jobs.look(url)), REDIS_SECONDS)
        except TimeoutError:
            return None

    def close(self) -> None:
        """The connections that are not in use are gone."""
        self._pings.close()
        self._reads.close()

    async def _counted(self) -> str:
        async with self._counting:
            return await in_daemon_thread(lambda: of_processes(self._metrics_dir))

    def _ping(self) -> bool:
        with self._pings.begin() as connection:
            connection.exec_driver_sql("SELECT 1")
        return True

    def _read(self) -> Standing:
        with self._reads.begin() as connection:
            found = read_standing(connection)
        waiting = {partner.partner: partner.waiting for partner in found.backlogs}
        self._measured = self._slopes.measure(time.monotonic(), waiting)
        return found

    def _look_at_redis(self) -> Redis:
        if not self._redis_url:
            return Redis(False)
        limits: dict[str, Any] = {"socket_timeout": REDIS_SECONDS, "socket_connect_timeout": REDIS_SECONDS}
        try:
            with redis.Redis.from_url(self._redis_url, retry=None, **limits) as client:
                told = client.info()
        except (redis.RedisError, OSError, ValueError):
            return Redis(False)
        return Redis(True, str(told.get("valkey_version") or told.get("redis_version")), int(told["used_memory"]))
