"""The jobs process: what must happen now and then, whoever happens to do it, as rq jobs.

A job carries the name of a chore and a slot of Redis's clock, nothing else; its id is made of both, so that of several
jobs processes one does each slot. Chores run in this process, one after the other, and wait for an absent database. An
absent Redis is waited for too: what its absence skips, a later slot does. All chores are idempotent and made of short
transactions.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import CollectorRegistry, Counter
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_when_event_set, wait_exponential

from storage import answers, history, sessions, upkeep
from storage.errors import Locked, StorageUnavailable
from storage.parking import park_unfinished
from storage.transactions import Store

if TYPE_CHECKING:
    from rq import Queue
    from rq.worker import SimpleWorker

QUEUE = "hookyard-maintenance"
KEYS = "hookyard:{rq}"  # one hash tag: a cluster keeps everything of rq in one place
HOUR, TEN_MINUTES, MINUTE, HALF_MINUTE = 3600, 600, 60, 30
IDLE_SECONDS = 1  # a blocking look into the queue; then the clock and the stop are looked at
CONNECT_SECONDS = 2.0
WORKER_TTL_SECONDS = 20  # rq waits 5 s less than this, and 10 more, for an answer of Redis
PAUSE_SECONDS = 1.0  # before an absent Redis is asked again
CHORE_SECONDS = 900  # then rq interrupts it
STALLED_SECONDS = CHORE_SECONDS + 60
STORE_SECONDS = 30.0
EXIT_SECONDS = 3.0  # of the 5 that a stop may take


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """What a jobs process is told."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to do once in each slot of so many seconds. `work` is told the slot's number since the epoch."""

    every_seconds: int
    work: Callable[[Store, int], int]

    def slot(self, now: float) -> int:
        """The number of the slot that this moment (Unix seconds) lies in."""
        return int(now // self.every_seconds)


def chores() -> Mapping[str, Chore]:
    """Every chore by name."""
    return {
        "partitions": Chore(TEN_MINUTES, lambda store, _: upkeep.make_partitions(store)),
        "history": Chore(MINUTE, lambda store, slot: _sample(store, slot)),
        "history-end": Chore(HOUR, lambda store, _: store.run(history.drop_old)),
        "dedupe": Chore(HOUR, lambda store, slot: upkeep.purge_dedupe(store, slot % 24, 24)),  # all of it once a day
        "secrets": Chore(HOUR, lambda store, _: upkeep.purge_secrets(store)),
        "sessions": Chore(HOUR, lambda store, _: store.run(sessions.purge)),
        "answers": Chore(HOUR, lambda store, _: store.run(answers.purge)),
        "closed-lanes": Chore(HALF_MINUTE, lambda store, _: park_unfinished(store)),
    }


def _sample(store: Store, slot: int) -> int:
    """Counts as nothing done, or there would be a line in the log every minute."""
    minute = datetime.fromtimestamp(slot * MINUTE, UTC)
    store.run(lambda connection: history.sample(connection, minute))
    return 0


class Jobs:
    """One jobs process. `amiss` may be read from any thread."""

    def __init__(self, config: JobsConfig) -> None:
        self._config = config
        self._log = structlog.get_logger("jobs")
        self._store = Store(config.database_url, "hookyard jobs", STORE_SECONDS)
        self._chores = chores()
        self._enqueued: dict[str, int] = {}
        self._stop = threading.Event()
        self._trouble: dict[str, str] = {}
        self._beat = time.monotonic()
        self._done = Counter("hookyard_jobs", "Jobs that have ended.", ["job", "outcome"], registry=config.registry)

    @property
    def is_alive(self) -> bool:
        """Whether its loop goes round."""
        return time.monotonic() - self._beat < STALLED_SECONDS and not self._stop.is_set()

    @property
    def amiss(self) -> list[str]:
        """What is away."""
        return list(self._trouble)

    def stop(self) -> None:
        """It ends after the chore that runs, or in the middle of it when that takes too long: it is rolled back."""
        if not self._stop.is_set():
            self._stop.set()
            guillotine = threading.Timer(EXIT_SECONDS, os._exit, (0,))
            guillotine.daemon = True
            guillotine.start()

    def run(self) -> None:
        """Until `stop`, SIGTERM or SIGINT. Must be called in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        _RUNNING.set(self)
        try:
            while not self._stop.is_set():
                self._beat = time.monotonic()
                self._watch_redis(self._work)
        finally:
            self._store.close()

    def do(self, name: str, slot: int) -> int:
        """A chore, once the database is there; how much it did. Where others are in its way a later slot does it."""
        chore = self._chores[name]
        try:
            count = self._retrying()(chore.work, self._store, slot)
        except Locked as problem:
            self._settle("database away")
            self._done.labels(name, "put_off").inc()
            self._log.info("job.put_off", job=name, slot=slot, problem=str(problem))
            return 0
        except BaseException:  # rq logs and records it
            self._done.labels(name, "failed").inc()
            raise
        self._settle("database away")
        self._done.labels(name, "done").inc()
        self._log.log(20 if count else 10, "job.done", job=name, slot=slot, count=count)
        return count

    # --- rq -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Round after round: what is due is enqueued, what is enqueued is done. Raises: RedisError when it is away."""
        with rq_on(self._config.redis_url) as (queue, worker):
            worker.register_birth()
            seen_at = time.monotonic()
            while not self._stop.is_set():
                self._beat = time.monotonic()
                self._enqueue_due(queue, queue.connection.time()[0])
                self._do_next(queue, worker)
                self._settle("redis away")
                self._settle("failing")
                if time.monotonic() - seen_at > WORKER_TTL_SECONDS:
                    seen_at = time.monotonic()
                    worker.heartbeat()
                    if worker.should_run_maintenance_tasks:
                        worker.run_maintenance_tasks()
            worker.register_death()

    def _enqueue_due(self, queue: Queue, now: float) -> None:
        from rq.exceptions import DuplicateJobError

        for name, chore in self._chores.items():
            slot = chore.slot(now)
            if self._enqueued.get(name) == slot:
                continue
            with contextlib.suppress(DuplicateJobError):
                queue.enqueue_call(
                    "workers.jobs.do",
                    (name, slot),
                    job_id=f"{name}-{slot}",
                    unique=True,
                    timeout=CHORE_SECONDS,
                    result_ttl=2 * chore.every_seconds,  # so long it keeps others from doing it again
                    failure_ttl=2 * chore.every_seconds,
                )
            self._enqueued[name] = slot

    def _do_next(self, queue: Queue, worker: SimpleWorker) -> None:
        from rq.exceptions import DequeueTimeout

        try:
            found = queue.dequeue_any([queue], IDLE_SECONDS, connection=queue.connection, serializer=queue.serializer)
        except DequeueTimeout:
            return
        if found is not None:
            worker.execute_job(*found)

    def _watch_redis(self, work: Callable[[], None]) -> None:
        """Works until Redis fails; then a pause. One line per outage."""
        from redis.exceptions import RedisError

        try:
            work()
        except (RedisError, OSError) as problem:
            self._notice("redis away", str(problem))
            self._stop.wait(PAUSE_SECONDS)
        except Exception as problem:  # noqa: BLE001 - rq's defects must not end what others rely on
            if "failing" not in self._trouble:
                self._log.exception("jobs.defect")
            self._trouble["failing"] = str(problem)
            self._stop.wait(PAUSE_SECONDS)

    # --- trouble --------------------------------------------------------------------------------------

    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception(_passes),
            wait=wait_exponential(multiplier=0.5, max=5),
            stop=stop_when_event_set(self._stop),
            sleep=self._pause,
            before_sleep=self._say,
            reraise=True,
        )

    def _pause(self, seconds: float) -> None:
        self._beat = time.monotonic()
        self._stop.wait(seconds)

    def _say(self, state: RetryCallState) -> None:
        if state.outcome is not None:
            self._notice("database away", str(state.outcome.exception()))

    def _notice(self, what: str, problem: str) -> None:
        if what not in self._trouble:
            self._log.warning("jobs.trouble", what=what, problem=problem)
        self._trouble[what] = problem

    def _settle(self, what: str) -> None:
        if self._trouble.pop(what, None) is not None:
            self._log.info("jobs.trouble_over", what=what)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()


def _passes(problem: BaseException) -> bool:
    """Whether the database is worth waiting for."""
    return isinstance(problem, StorageUnavailable) and not isinstance(problem, Locked)


_RUNNING: ContextVar[Jobs] = ContextVar("running")
"""The process's own jobs: rq hands a job nothing but the ids it was enqueued with."""


def do(name: str, slot: int) -> int:
    """What rq calls: a chore of the jobs process it runs in."""
    return _RUNNING.get().do(name, slot)


@contextlib.contextmanager
def rq_on(redis_url: str) -> Iterator[tuple[Queue, Any]]:
    """The queue and a worker of it, on one connection. Raises: RedisError."""
    os.environ.setdefault("RQ_KEY_PREFIX", KEYS)  # rq reads it when it is imported, and nowhere else
    from redis import Redis
    from rq import Queue
    from rq.defaults import RQ_KEY_PREFIX
    from rq.serializers import JSONSerializer
    from rq.worker import SimpleWorker

    if os.environ["RQ_KEY_PREFIX"] != RQ_KEY_PREFIX:
        raise RuntimeError(f"rq was imported before its keys were named: it uses {RQ_KEY_PREFIX!r}")
    with Redis.from_url(redis_url, socket_connect_timeout=CONNECT_SECONDS, retry=None) as connection:
        queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)
        yield (
            queue,
            SimpleWorker([queue], connection=connection, serializer=JSONSerializer, worker_ttl=WORKER_TTL_SECONDS),
        )
