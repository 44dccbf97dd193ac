"""The pipeline in one process: the log, workers, a sink; real servers, no HTTP edge."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from domain.events import event_id
from storage import destinations, partners, subscriptions
from storage.hints import Announcer, Keys
from storage.log import Answer, Arrival, Log
from storage.secrets import Vault
from storage.transactions import Store
from tests.sink import Sink, listening_sink
from workers.main import Worker, WorkerConfig

ACTOR = "tester"
QUICK: dict[str, Any] = {
    "timeout": timedelta(seconds=2),
    "retry_base": timedelta(milliseconds=20),
    "retry_cap": timedelta(milliseconds=100),
    "breaker_failures": 1000,
}


@dataclass(slots=True)
class Running:
    """A worker that runs, and how to stop it."""

    worker: Worker
    stop: asyncio.Event
    task: asyncio.Task[None]
    registry: CollectorRegistry

    async def finish(self) -> None:
        self.stop.set()
        await self.task


@dataclass(slots=True)
class Pipeline:
    """What a test of the pipeline needs at hand."""

    database_url: str
    redis_url: str
    sink: Sink
    store: Store
    vault: Vault
    key: bytes
    log: Log
    workers: list[Running] = field(default_factory=list)
    lease: timedelta = timedelta(seconds=2)

    def start_worker(self, name: str = "w1", **options: Any) -> Running:
        config = WorkerConfig(
            options.pop("database_url", self.database_url),
            self.redis_url,
            [self.key],
            (ip_network("127.0.0.0/8"),),
            options.pop("pool_size", 50),
            options.pop("lease", self.lease),
            name,
            **options,
        )
        registry = CollectorRegistry()
        worker = Worker(
            config,
            registry,
            lambda verify, given: frozenset(),
            self._suspend,
        )
        stop = asyncio.Event()
        running = Running(worker, stop, asyncio.create_task(worker.run(stop)), registry)
        self.workers.append(running)
        return running

    def _suspend(self, destination_id: int, why: str) -> None:
        destinations.suspend(self.store, destination_id, why)

    def partner(self, name: str = "shop", **options: Any) -> partners.Partner:
        with self.store.begin() as connection:
            return partners.add(connection, self.vault, name, options, actor=ACTOR)[0]  # type: ignore[arg-type]

    def destination(self, name: str = "warehouse", path: str = "/", **options: Any) -> int:
        values: Any = QUICK | {"url": self.sink.url(path)} | options
        with self.store.begin() as connection:
            destinations.add(connection, self.vault, name, values, actor=ACTOR)
            return destinations.find(connection, name).id

    def subscribe(self, partner: str = "shop", destination: str = "warehouse", **options: Any) -> None:
        with self.store.begin() as connection:
            subscriptions.subscribe(connection, partner, destination, actor=ACTOR, **options)

    def lane(self, partner: str = "shop", destination: str = "warehouse", **options: Any) -> partners.Partner:
        """A partner joined to a destination."""
        made = self.partner(partner)
        ordering = options.pop("ordering", "partner")
        self.destination(destination, **options)
        self.subscribe(partner, destination, ordering=ordering)
        return made

    async def post(self, partner: partners.Partner, n: int = 1, **values: Any) -> list[Answer]:
        """n events of a partner, at once."""
        arrival = Arrival(partner.id, partner.shard, None, None, None, b"content-type:application/json", None, b"{}")
        fields = {name: values.get(name, getattr(arrival, name)) for name in Arrival._fields}
        return list(await asyncio.gather(*(self.log.accept(Arrival(**fields)) for _ in range(n))))

    def id_of(self, partner: partners.Partner, answer: Answer) -> str:
        assert answer.received_at is not None
        return event_id(partner.id, answer.sequence, answer.received_at)

    def sql(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.store.begin() as connection:
            result = connection.execute(sa.text(query), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    async def until_sql(
        self, query: str, rows: list[tuple[Any, ...]], seconds: float = 10, steady_seconds: float = 0
    ) -> None:
        """The query answers these rows, for so long without a break."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        async with asyncio.timeout(seconds):
            while True:
                if self.sql(query) != rows:
                    since = loop.time()
                elif loop.time() - since >= steady_seconds:
                    return
                await asyncio.sleep(0.02)

    async def settled(self, seconds: float = 15) -> None:
        """Everything accepted is dispatched, and nothing is queued or delivering."""
        query = """SELECT (SELECT coalesce(sum(h.last_seq - t.cursor), 0)
                           FROM partner_heads h JOIN partner_tails t USING (partner_id))
                        + (SELECT coalesce(sum(waiting), 0) FROM lanes)"""
        async with asyncio.timeout(seconds):
            while self.sql(query) != [(0,)]:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running_pipeline(database_url: str, redis_url: str) -> AsyncIterator[Pipeline]:
    """The parts without a worker; workers started on it are stopped at the end."""
    key = os.urandom(32)
    async with listening_sink() as sink:
        store, vault = Store(database_url), Vault([key])
        announcer = Announcer(redis_url, Keys(_incarnation(store)))
        pipeline = Pipeline(
            database_url, redis_url, sink, store, vault, key, Log(database_url, announce=announcer.announce)
        )
        try:
            yield pipeline
        finally:
            for running in pipeline.workers:
                if not running.task.done():
                    await running.finish()
            await pipeline.log.close()
            await announcer.close()
            store.close()


def _incarnation(store: Store) -> str:
    with store.begin() as connection:
        return str(connection.execute(sa.text("SELECT incarnation FROM installation")).scalar_one())


@pytest.fixture
async def pipeline(database_url: str, redis_url: str) -> AsyncIterator[Pipeline]:
    """See `running_pipeline`."""
    async with running_pipeline(database_url, redis_url) as running:
        yield running
