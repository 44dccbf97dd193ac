"""From settings to running processes: each role's configuration, its signals, its logs. What a role does is its own."""

import asyncio
import gc
import hashlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from ops import logs
from ops.datadir import complete
from ops.processes import CannotStart
from ops.settings import Bind, Settings, WrongSetting, load, unknown_names

GARBAGE = (50_000, 20, 20)  # batches make thousands of objects that all stay for a moment: looking among them was 20 %
SETTLE_SECONDS = 5.0  # of a worker's drain: for the outcomes of what was interrupted, and for giving its shards back


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


def role_settings(role: str) -> Settings:
    """The settings of a role: the database is there, and what else this role uses. Raises: WrongSetting."""
    found = settings()
    if role != "ops" and not found.redis_url:
        raise WrongSetting("HOOKYARD_REDIS_URL is not set: redis://[:PASSWORD@]HOST:PORT/NUMBER")
    if role in ("ingest", "worker") and not found.master_keys:
        raise WrongSetting("HOOKYARD_MASTER_KEY is not set: base64 of 32 bytes, the same for every process")
    return found


def migrate(settings: Settings) -> None:
    """The database has this version's schema. Raises: StorageUnavailable."""
    from storage.schema import migrate

    migrate(settings.database_url or "", settings.shards)


def run_ingest(settings: Settings) -> None:
    """Ingest, until SIGTERM. Raises: CannotStart."""
    from ingest.limits import Limits
    from ingest.server import CannotBind, IngestConfig, run

    _log(settings, "ingest")
    _count(settings)
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
    try:
        _loop(lambda stop: run(config, stop))
    except CannotBind as problem:
        raise CannotStart(f"HOOKYARD_INGEST_BIND or HOOKYARD_INGEST_METRICS_BIND: {problem}") from problem


def run_worker(settings: Settings) -> None:
    """A worker, until SIGTERM. Raises: CannotStart."""
    from prometheus_client import CollectorRegistry

    from domain.verification import find_scheme
    from ingest.health import Health, health_app
    from ops.side import serve_beside
    from storage import destinations
    from storage.transactions import Store
    from workers.main import Worker, WorkerConfig

    _log(settings, "worker")
    _count(settings)
    store = Store(settings.database_url or "", "hookyard suspend")
    config = WorkerConfig(
        database_url=settings.database_url or "",
        redis_url=settings.redis_url or "",
        master_keys=settings.master_keys,
        allow_networks=settings.networks,
        pool_size=settings.pool_size,
        lease=timedelta(seconds=settings.lease_seconds),
        name=name(settings, "worker"),
        drain_seconds=max(1.0, settings.drain_seconds - SETTLE_SECONDS),
        predecessors=f"{_place(settings, 'worker')}:" if settings.slot else None,
    )
    registry = CollectorRegistry()
    worker = Worker(
        config,
        registry,
        lambda verify, options: find_scheme(verify).bare_secret_headers(options),
        lambda destination_id, why: _ignore(destinations.suspend(store, destination_id, why)),
    )
    side = _side(settings, "HOOKYARD_WORKER_BIND", settings.worker_bind)
    app = health_app(lambda: Health(not worker.amiss, (*worker.amiss, *worker.degraded)), registry)

    async def run(stop: asyncio.Event) -> None:
        done = asyncio.Event()
        beside = asyncio.create_task(serve_beside(app, [side], done))
        try:
            await worker.run(stop)
        finally:
            done.set()
            await beside
            store.close()

    _loop(run)


def run_jobs(settings: Settings) -> None:
    """The background jobs, until SIGTERM. Raises: CannotStart."""
    from ingest.health import Health, health_app
    from ops.side import in_thread
    from workers.jobs import Jobs, JobsConfig

    _log(settings, "jobs")
    _count(settings)
    config = JobsConfig(settings.database_url or "", settings.redis_url or "")
    jobs = Jobs(config)
    side = _side(settings, "HOOKYARD_JOBS_BIND", settings.jobs_bind)
    with in_thread(health_app(lambda: Health(jobs.is_alive, tuple(jobs.amiss)), config.registry), [side]):
        jobs.run()


def run_ops(settings: Settings) -> None:
    """Overview, API, health and metrics of the whole system, until SIGTERM. Raises: CannotStart."""
    from ops.server import OpsConfig, run

    _log(settings, "ops")
    folder = settings.health_dir
    others = [slot for slot in settings.slots.split(",") if slot and slot != settings.slot]
    config = OpsConfig(
        database_url=settings.database_url or "",
        admin_token=settings.admin_token,
        metrics_token=settings.metrics_token,
        host=settings.ops_bind.host,
        port=settings.ops_bind.port,
        fd=settings.ops_fd,
        metrics_dir=settings.metrics_dir,
        health_sockets={slot: folder / f"{slot}.sock" for slot in others} if folder else {},
        drain_seconds=settings.drain_seconds,
        settings=settings,
    )
    _loop(lambda stop: run(config, stop))


def name(settings: Settings, role: str) -> str:
    """What this process is called in leases and logs."""
    return f"{_place(settings, role)}:{os.getpid()}"


def _place(settings: Settings, role: str) -> str:
    """Where the process runs; under `up`, that its slot is filled by one process at a time."""
    if not settings.slot:
        return f"{socket.gethostname()}:{role}"
    data = hashlib.sha256(str(settings.data_dir.resolve()).encode()).hexdigest()[:6]
    return f"{socket.gethostname()}:{settings.slot}@{data}"


def _log(settings: Settings, role: str) -> None:
    logs.configure(settings.log_level, settings.log_format, role=settings.slot or role)
    threading.excepthook = logs.thread_defect


def _count(settings: Settings) -> None:
    """Metrics created from now on outlive this process, where a supervisor keeps its slot."""
    from prometheus_client import disable_created_metrics

    disable_created_metrics()  # type: ignore[no-untyped-call]
    if settings.metrics_dir and settings.slot:
        from ops.slotfiles import use_slot

        use_slot(settings.metrics_dir, settings.slot)


def _side(settings: Settings, variable: str, bind: Bind) -> socket.socket:
    """Where this process tells its health: its supervisor by a Unix socket, everybody by its own address.

    The default address is the first one's who comes: a second worker on this machine takes a free port and says so.
    Raises: CannotStart if an address that was chosen is taken.
    """
    import structlog

    from ops.processes import CannotStart
    from ops.side import tcp_socket, unix_socket

    if settings.health_socket:
        return unix_socket(settings.health_socket)
    try:
        return tcp_socket(variable, *bind)
    except CannotStart as problem:
        if variable.removeprefix("HOOKYARD_").lower() in settings.model_fields_set:
            raise
        free = tcp_socket(variable, bind.host, 0)
        structlog.get_logger("ops").warning("health.elsewhere", problem=str(problem), port=free.getsockname()[1])
        return free


def _loop(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """The work on a loop of its own, told to stop by SIGTERM or SIGINT."""
    import uvloop

    async def main() -> None:
        stop = asyncio.Event()
        gc.freeze()  # what a role has loaded by now stays, and need not be gone over
        gc.set_threshold(*GARBAGE)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await work(stop)

    uvloop.run(main())


def _ignore(_: int) -> None:
    return None
