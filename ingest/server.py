"""The ingest process: sockets, what it is made of, and how it stops.

It listens before the database has been seen: a sender is better off with a 503 than with a refused connection. A stop
lets what has begun come to its end while newcomers are told 503, closes the door, then flushes the commits.
"""

import asyncio
import contextlib
import functools
import ipaddress
import os
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from domain.verification import schemes
from ingest.app import Edge
from ingest.health import Health, health_app
from ingest.limits import SIDE, Limits
from ingest.metrics import NOBODY, IngestMetrics
from ingest.public_keys import check_ecdsa, check_ed25519
from ingest.serving import BACKLOG, keep_serving, serve
from storage.configuration import Configuration, Snapshot
from storage.errors import StorageUnavailable
from storage.hints import Announcer, Keys
from storage.log import Log
from storage.loops import Loops
from storage.outage import Outage
from storage.recording import Recorder
from storage.secrets import Vault

PROBE_SECONDS = 1.0
FLUSH_SECONDS = 2.0  # of the drain, for the last commits
SPARE_FILES = 64 + SIDE.connections  # database, Redis, logs, metric files; the door for health


class CannotBind(Exception):
    """The address is taken, or is none of ours; the message says which."""


@dataclass(frozen=True, slots=True)
class IngestConfig:
    """What an ingest process is told. `fd` is an inherited listening socket and then stands for `host` and `port`.

    `/metrics` and `/health/*` are served on `metrics_bind` and on the Unix socket `health_socket`, where given.
    """

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    master_keys: Sequence[bytes] = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8080
    fd: int | None = None
    limits: Limits = field(default_factory=Limits)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    metrics_bind: tuple[str, int] | None = None
    health_socket: Path | None = None


class Ingest:
    """One process's parts, from start to stop."""

    def __init__(self, config: IngestConfig, stop: asyncio.Event) -> None:
        self._config, self._stop = config, stop
        self._logger = structlog.get_logger("ingest")
        self.loops = Loops(self._logger)
        self.metrics = IngestMetrics(config.registry)
        self._outage = Outage(
            lambda text: self._logger.warning("ingest.trouble", problem=text),
            lambda seconds: self._logger.info("ingest.trouble_over", seconds=round(seconds, 1)),
        )
        self.log = Log(
            config.database_url,
            announce=self._announce,
            on_batch=self.metrics.batch_size.observe,
            outage=self._outage,
        )
        self.configuration = Configuration(config.database_url, Vault(config.master_keys), outage=self._outage)
        self.edge = Edge(
            self.log, self.configuration, schemes(check_ed25519, check_ecdsa), self.metrics, health_app(self.health),
            config.limits, lambda: self.configuration.now().timestamp(), stop.is_set,
        )  # fmt: skip
        self._announcer: Announcer | None = None
        self._dropped = 0

    def health(self) -> Health:
        """Whether this process can store events now."""
        reasons = {
            "stopping": self._stop.is_set(),
            "configuration not loaded": self.configuration.snapshot.version == 0,
            "database away": not self.log.available,
        }
        amiss = tuple(reason for reason, holds in reasons.items() if holds)
        beside = {
            "redis away": self._announcer is not None and not self._announcer.available,
            "configuration out of date": self.configuration.failing,
            **{f"{name} failing": True for name in sorted(self.loops.failing)},
        }
        return Health(not amiss, (*amiss, *(reason for reason, holds in beside.items() if holds)))

    async def load(self, address: object) -> None:
        """The configuration is loaded, however long the database takes. Raises: CannotOpen for wrong master keys."""
        while True:
            try:
                await self.configuration.start()
                self._outage.passed("configuration")
                break
            except StorageUnavailable as problem:
                self._outage.met("configuration", problem)
                await asyncio.sleep(PROBE_SECONDS / 2)
        snapshot = self.configuration.snapshot
        self._announcer = Announcer(self._config.redis_url, Keys(snapshot.incarnation))
        self.warn_of_open_doors(address)

    async def watch(self) -> None:
        """Asks the database now and then whether it would store, and shows the queues; until cancelled."""
        while True:
            if not self.log.available or not self.log.depth:
                with contextlib.suppress(StorageUnavailable):
                    await self.log.ping()
            self._show()
            await asyncio.sleep(PROBE_SECONDS)

    async def close(self) -> None:
        """What was accepted is committed, if the database does so in time; the connections are closed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.log.close(), FLUSH_SECONDS)
        await self.configuration.close()
        if self._announcer is not None:
            await self._announcer.close()

    def warn_of_open_doors(self, address: object) -> None:
        """One loud line if anybody beyond this machine may post as somebody."""
        anybody = sorted(p.name for p in self.configuration.snapshot.partners.values() if p.verify == "none")
        if anybody and not is_loopback(address):
            self._logger.warning(
                "ingest.open_door: anybody who can reach this address may post for these partners (--verify none)",
                address=str(address),
                partners=", ".join(anybody[:10]) + (" and more" if len(anybody) > 10 else ""),
            )

    def _announce(self, heads: dict[tuple[int, int], int]) -> None:
        if self._announcer is not None:
            self._announcer.announce(heads)

    def _show(self) -> None:
        snapshot: Snapshot = self.configuration.snapshot
        self.metrics.show_queue("ingest", self.edge.in_flight, self._config.limits.in_flight)
        self.metrics.show_queue("ingest_commit", self.log.depth, self.log.capacity)
        if self._announcer is not None:
            self.metrics.show_queue("stream", self._announcer.depth, len(snapshot.partners_by_id))
            self.metrics.hints_dropped.inc(self._announcer.dropped - self._dropped)
            self._dropped = self._announcer.dropped


async def run(config: IngestConfig, stop: asyncio.Event | None = None) -> None:
    """Serves until SIGTERM, SIGINT or `stop`; then drains within the limits' `drain_seconds`.

    Raises: CannotBind; CannotOpen if the master keys are wrong.
    """
    stop = stop or asyncio.Event()
    done = asyncio.Event()
    door, sides = listening(config), _side_sockets(config)
    ingest = Ingest(config, stop)
    loading = asyncio.create_task(ingest.load(door.getsockname()), name="load")
    loading.add_done_callback(lambda task: stop.set() if not task.cancelled() and task.exception() else None)
    watching = asyncio.create_task(ingest.loops.keep("watch", ingest.watch), name="watch")
    recorder = Recorder(config.database_url, "ingest", f"{socket.gethostname()}:{os.getpid()}", ingest.metrics.tally)
    recording = asyncio.create_task(ingest.loops.keep("history", recorder.run), name="history")
    side_app = health_app(ingest.health, config.registry)
    refused = functools.partial(ingest.metrics.refuse, NOBODY)
    limits = _within_files(replace(config.limits, drain_seconds=max(1.0, config.limits.drain_seconds - FLUSH_SECONDS)))
    beside = asyncio.create_task(keep_serving(side_app, sides, SIDE, done, ingest.loops), name="beside")
    try:
        with _signals(stop):
            await serve(ingest.edge, [door], limits, stop, refused, ingest.loops)
    finally:
        done.set()
        watching.cancel()
        recording.cancel()
        await ingest.close()
        await asyncio.gather(beside, watching, recording, return_exceptions=True)
        if not loading.done():
            loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loading


def listening(config: IngestConfig) -> socket.socket:
    """The public edge's socket. Raises: CannotBind."""
    return socket.socket(fileno=config.fd) if config.fd is not None else _bound(config.host, config.port)


def is_loopback(address: object) -> bool:
    """Whether only this machine reaches a socket of this address."""
    try:
        return ipaddress.ip_address(str(address[0])).is_loopback if isinstance(address, tuple) else True
    except ValueError:
        return False


def _side_sockets(config: IngestConfig) -> list[socket.socket]:
    sockets = [_bound(*config.metrics_bind)] if config.metrics_bind else []
    if config.health_socket is not None:
        config.health_socket.unlink(missing_ok=True)
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.bind(str(config.health_socket))
        local.listen()
        sockets.append(local)
    return sockets


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as problem:
        raise CannotBind(f"cannot listen on {host}:{port}: {problem.strerror or problem}") from problem


def _within_files(limits: Limits) -> Limits:
    """As many connections as this process may open files, after raising that to what it is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return replace(limits, connections=max(1, min(limits.connections, soft - SPARE_FILES)))
    return limits


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
