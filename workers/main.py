"""The worker process: one tenure after the other, until it is told to stop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network

import structlog
from prometheus_client import CollectorRegistry

from delivery.alone import alone
from delivery.client import Client
from storage.configuration import Configuration
from storage.errors import LeaseLost, StorageUnavailable
from storage.hints import Keys, Listener
from storage.loops import Loops
from storage.outage import Outage
from storage.recording import Recorder
from storage.secrets import Vault
from workers.metrics import Metrics
from workers.tenure import Means, Tenure

SHOW_SECONDS = 0.5
AGAIN_SECONDS = 0.5
DRAIN_SECONDS = 25.0  # of the 35 a stop may take; the rest is for the journal and the lease


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker process is told."""

    database_url: str
    redis_url: str
    master_keys: Sequence[bytes]
    allow_networks: tuple[IPv4Network | IPv6Network, ...]
    pool_size: int
    lease: timedelta
    name: str
    drain_seconds: float = DRAIN_SECONDS
    predecessors: str | None = None  # how the names of earlier processes of this slot begin: they are gone


class Worker:
    """Owns shards, walks their logs, delivers. `withheld` names the headers that prove a partner's identity as a bare
    secret; `suspend` suspends a destination (it blocks: it is called in a thread)."""

    def __init__(
        self,
        config: WorkerConfig,
        registry: CollectorRegistry,
        withheld: Callable[[str, dict[str, str]], frozenset[bytes]],
        suspend: Callable[[int, str], None],
    ) -> None:
        self._config = config
        self._log = structlog.get_logger("worker").bind(worker=config.name)
        self.metrics = Metrics(registry)
        self._withheld, self._suspend = withheld, suspend
        self._tenure: Tenure | None = None
        self._loops = Loops(self._log)
        self._outage = Outage(
            lambda text: self._log.warning("worker.trouble", problem=text),
            lambda seconds: self._log.info("worker.trouble_over", seconds=round(seconds, 1)),
        )
        self._configuration = Configuration(
            config.database_url,
            Vault(config.master_keys),
            on_change=lambda snapshot: self._tenure.configuration_changed() if self._tenure else None,
            outage=self._outage,
        )

    @property
    def amiss(self) -> list[str]:
        """Why it cannot deliver; nothing: it can."""
        tenure = self._tenure
        if tenure is None:
            return ["not started"]
        reasons = {"database away": not tenure.is_connected, "owns no shard": not tenure.is_in_force}
        return [reason for reason, holds in reasons.items() if holds]

    @property
    def degraded(self) -> list[str]:
        """What is amiss although it delivers."""
        stale = ["configuration out of date"] if self._configuration.failing else []
        return stale + [f"{name} failing" for name in sorted(self._loops.failing)]

    async def run(self, stop: asyncio.Event) -> None:
        """Delivers until `stop`, then drains."""
        listener: Listener | None = None
        client: Client | None = None
        showing = asyncio.create_task(self._loops.keep("gauges", self._show))
        recorder = Recorder(self._config.database_url, "worker", self._config.name, self.metrics.tally)
        recording = asyncio.create_task(self._loops.keep("history", recorder.run), name="history")
        try:
            if not await self._configured(stop):
                return
            listener = Listener(self._config.redis_url, Keys(self._configuration.snapshot.incarnation))
            client = Client(self._config.allow_networks)
            while not stop.is_set():
                if not await self._loops.run("tenure", lambda: self._serve(stop, listener, client)):
                    await asyncio.sleep(AGAIN_SECONDS)  # a defect ends a tenure, not the process
        finally:
            showing.cancel()
            recording.cancel()
            await asyncio.wait([recording])
            await self._configuration.close()
            if listener is not None:
                await listener.close()
            if client is not None:
                await client.close()

    async def _serve(self, stop: asyncio.Event, listener: Listener, client: Client) -> None:
        """One tenure, from beginning to end."""
        config = self._config
        self._tenure = Tenure(
            Means(
                config.database_url,
                config.name,
                config.predecessors,
                config.lease,
                self._configuration,
                listener,
                client,
                lambda: alone(config.allow_networks),
                config.pool_size,
                self.metrics,
                self._withheld,
                lambda destination_id, why: asyncio.to_thread(self._suspend, destination_id, why),
                self._outage,
                self._log,
            )
        )
        try:
            await self._tenure.run(stop, config.drain_seconds)
        except LeaseLost as problem:
            self._log.warning("owner.lease_lost", problem=str(problem))
        except StorageUnavailable as problem:
            self._outage.met("lease", problem)  # until the next tenure has one

    async def _configured(self, stop: asyncio.Event) -> bool:
        """The configuration is loaded, however long the database takes; False: stopped before."""
        while not stop.is_set():
            try:
                await self._configuration.start()
                self._outage.passed("configuration")
                return True
            except StorageUnavailable as problem:
                self._outage.met("configuration", problem)
                await asyncio.sleep(AGAIN_SECONDS)
        return False

    def show(self) -> None:
        """The gauges tell what is now."""
        if self._tenure is not None:
            self._tenure.show()

    async def _show(self) -> None:
        while True:
            self.show()
            await asyncio.sleep(SHOW_SECONDS)
