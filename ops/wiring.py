"""From settings to running processes: each role's configuration, its signals, its logs. What a role does is its own."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from ops import logs
from ops.datadir import complete
from ops.settings import Settings, WrongSetting, load, unknown_names


def own_settings() -> Settings:
    """The settings as given; a name that means nothing is pointed out. Raises: WrongSetting."""
    for name in unknown_names(os.environ):
        print(f"hookyard: {name} is no setting and is ignored", file=sys.stderr)
    return load()


def settings() -> Settings:
    """The settings with what a running `up` knows, the database at least. Raises: WrongSetting."""
    return complete(own_settings())


def known_settings() -> Settings:
    """The settings with what a running `up` knows, if one runs. Raises: WrongSetting."""
    given = own_settings()
    try:
        return complete(given)
    except WrongSetting:
        return given


def role_settings() -> Settings:
    """The settings of a role: database, Redis and master key are there. Raises: WrongSetting."""
    found = settings()
    if not found.redis_url:
        raise WrongSetting("HOOKYARD_REDIS_URL is not set")
    if not found.master_keys:
        raise WrongSetting("HOOKYARD_MASTER_KEY is not set: base64 of 32 bytes, the same for every process")
    return found


def migrate(settings: Settings) -> None:
    """The database has this version's schema. Raises: StorageUnavailable."""
    from storage.schema import migrate

    migrate(settings.database_url or "", settings.shards)


def run_ingest(settings: Settings) -> None:
    """Ingest, until SIGTERM."""
    from ingest.limits import Limits
    from ingest.server import IngestConfig, run

    _log(settings, "ingest")
    side = settings.ingest_metrics_bind
    config = IngestConfig(
        database_url=settings.database_url or "",
        redis_url=settings.redis_url or "",
        master_keys=settings.master_keys,
        host=settings.ingest_bind.host,
        port=settings.ingest_bind.port,
        fd=settings.ingest_fd,
        limits=Limits(drain_seconds=round(settings.drain_seconds)),
        metrics_bind=None if settings.under_supervisor else (side.host, side.port),
        health_socket=settings.health_socket,
    )
    _loop(lambda stop: run(config, stop))


def run_worker(settings: Settings) -> None:
    """A worker, until SIGTERM."""
    from prometheus_client import CollectorRegistry

    from domain.verification import find_scheme
    from storage import destinations
    from storage.transactions import Store
    from workers.main import Worker, WorkerConfig

    _log(settings, "worker")
    store = Store(settings.database_url or "", "hookyard suspend")
    config = WorkerConfig(
        database_url=settings.database_url or "",
        redis_url=settings.redis_url or "",
        master_keys=settings.master_keys,
        allow_networks=settings.networks,
        pool_size=settings.pool_size,
        lease=timedelta(seconds=settings.lease_seconds),
        name=name(settings, "worker"),
        drain_seconds=settings.drain_seconds,
    )
    worker = Worker(
        config,
        CollectorRegistry(),
        lambda verify, options: find_scheme(verify).bare_secret_headers(options),
        lambda destination_id, why: _ignore(destinations.suspend(store, destination_id, why)),
    )
    _loop(worker.run)


def run_jobs(settings: Settings) -> None:
    """The background jobs, until SIGTERM."""
    from workers.jobs import run

    _log(settings, "jobs")
    run(settings.database_url or "", settings.redis_url or "", settings.master_keys)


def run_ops(settings: Settings) -> None:
    """Dashboard, admin API and metrics, until SIGTERM."""
    from ops.server import run

    _log(settings, "ops")
    run(settings)


def name(settings: Settings, role: str) -> str:
    """What this process is called in leases and logs."""
    return f"{socket.gethostname()}:{settings.slot or role}:{os.getpid()}"


def _log(settings: Settings, role: str) -> None:
    logs.configure(settings.log_level, settings.log_format, role=settings.slot or role)


def _loop(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """The work on a loop of its own, told to stop by SIGTERM or SIGINT."""
    import uvloop

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await work(stop)

    uvloop.run(main())


def _ignore(_: int) -> None:
    return None
