"""The faults: what each does to the stage, and whom it touches. Each is over, and undone, when its function returns."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import redis

from tests.acceptance.product import until
from tests.chaos.line import Line
from tests.chaos.plan import Plan
from tests.chaos.stage import LEASE_SECONDS, Happened, Stage, copy_as_it_is

Fault = Callable[[Stage, random.Random], Awaitable[None]]

FREEZE_SECONDS = 12.0  # of Valkey: longer than any client waits for it
LOCKED_SECONDS = 28.0  # a table
FEW_CONNECTIONS = 28  # `up` with two of each wants about 30
TABLES = (
    "events", "dedupe", "deliveries", "attempts", "lanes", "gates", "workers", "shards", "partner_heads",
    "partner_tails", "installation", "destinations", "nudges",
)  # fmt: skip


# --- processes -------------------------------------------------------------------------------------------------------


def killed(role: str) -> Fault:
    """One of the role's processes (now and then both), by SIGKILL; the supervisor starts another."""

    async def strike(stage: Stage, dice: random.Random) -> None:
        for pid in await _some(stage, role, dice):
            stage.send(pid, signal.SIGKILL)

    return strike


def told_to_end(role: str) -> Fault:
    async def strike(stage: Stage, dice: random.Random) -> None:
        for pid in await _some(stage, role, dice):
            stage.send(pid, signal.SIGTERM)

    return strike


def frozen(role: str) -> Fault:
    """Stopped beyond the lease, and let go on."""

    async def strike(stage: Stage, dice: random.Random) -> None:
        chosen = await _some(stage, role, dice)
        for pid in chosen:
            stage.send(pid, signal.SIGSTOP)
        await stage.lasting(LEASE_SECONDS * dice.uniform(1.3, 3))
        for pid in chosen:
            stage.send(pid, signal.SIGCONT)

    return strike


async def _some(stage: Stage, role: str, dice: random.Random) -> list[int]:
    """One process of the role, or one time in four all of them."""
    pids, index, all_of_them = await stage.processes(role), dice.randrange(2), dice.random() < 0.25
    return pids if all_of_them else [pids[index % len(pids)]]


async def all_killed(stage: Stage, dice: random.Random) -> None:
    """The supervisor, and so everything, by SIGKILL; started again."""
    async with stage.locks["product"], stage.locks["postgres"]:
        await asyncio.to_thread(stage.product.stop, signal.SIGKILL)
        await asyncio.to_thread(
            until, lambda: not stage.product.survivors(), 5, lambda: f"alive: {stage.product.survivors()}"
        )
        await stage.lasting(dice.uniform(0, 3))
        await asyncio.to_thread(stage.product.start)


# --- Valkey ----------------------------------------------------------------------------------------------------------


async def valkey_killed(stage: Stage, dice: random.Random) -> None:
    await stage.restart_valkey(dice.uniform(0, 5))


async def valkey_frozen(stage: Stage, dice: random.Random) -> None:
    pid = stage.servers.valkey_process.pid
    stage.send(pid, signal.SIGSTOP)
    await asyncio.sleep(FREEZE_SECONDS)
    stage.send(pid, signal.SIGCONT)


async def valkey_restored(stage: Stage, dice: random.Random) -> None:
    """What it held some seconds ago, after it has gone on since."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        old = Path(name, "old")
        await asyncio.to_thread(copy_as_it_is, stage.valkey_data, old)
        await stage.lasting(dice.uniform(1, 4))
        await stage.restart_valkey(dice.uniform(0, 2), old)


async def _ask_valkey(stage: Stage, ask: Callable[[Any], object]) -> None:
    def run() -> None:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(stage.servers.redis_url) as client:
            ask(client)

    await asyncio.to_thread(run)


async def valkey_emptied(stage: Stage, dice: random.Random) -> None:
    for _ in range(dice.randint(1, 3)):
        await _ask_valkey(stage, lambda client: client.flushall())
        await stage.lasting(dice.uniform(0, 1))


async def valkey_streams_deleted(stage: Stage, dice: random.Random) -> None:
    """Some of its keys are gone, and some are something else."""

    def spoil(client: Any) -> None:
        for key in client.scan_iter(count=1000):
            if dice.random() < 0.6:
                client.delete(key)
                if dice.random() < 0.3:
                    client.set(key, "not a stream")

    await _ask_valkey(stage, spoil)


def valkey_full(policy: str) -> Fault:
    """It may hold less than it holds."""

    async def strike(stage: Stage, dice: random.Random) -> None:
        await _ask_valkey(stage, lambda client: client.config_set("maxmemory-policy", policy))
        await _ask_valkey(stage, lambda client: client.config_set("maxmemory", dice.choice(("500kb", "1mb"))))
        await stage.lasting(dice.uniform(3, 8))
        await _ask_valkey(stage, lambda client: client.config_set("maxmemory", 0))
        await _ask_valkey(stage, lambda client: client.config_set("maxmemory-policy", "noeviction"))

    return strike


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def postgres_ended(number: signal.Signals) -> Fault:
    """SIGINT: a restart; SIGQUIT: at once, recovered from its log; SIGKILL: all of its processes."""

    async def strike(stage: Stage, dice: random.Random) -> None:
        await stage.restart_postgres(number, dice.choice((0, dice.uniform(0, 6))))

    return strike


async def postgres_frozen(stage: Stage, dice: random.Random) -> None:
    family = stage.postgres_family()
    for pid in family:
        stage.send(pid, signal.SIGSTOP)
    await stage.lasting(dice.uniform(1, 9))
    for pid in family:
        stage.send(pid, signal.SIGCONT)


async def postgres_read_only(stage: Stage, dice: random.Random) -> None:
    await stage.sql("ALTER SYSTEM SET default_transaction_read_only = on")
    await stage.sql("SELECT pg_reload_conf()")
    await stage.lasting(dice.uniform(2, 7))
    await stage.sql("ALTER SYSTEM RESET default_transaction_read_only")
    await stage.sql("SELECT pg_reload_conf()")


async def backends_terminated(stage: Stage, dice: random.Random) -> None:
    """One connection after the other, at random."""
    for _ in range(dice.randint(5, 25)):
        await stage.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name LIKE 'hookyard%' ORDER BY md5(pid::text || '{dice.random()}') LIMIT 1"
        )
        await stage.lasting(dice.uniform(0, 0.4))


async def few_connections(stage: Stage, dice: random.Random) -> None:
    """PostgreSQL comes back with room for fewer connections than the system would like."""
    await stage.sql(f"ALTER SYSTEM SET max_connections = {FEW_CONNECTIONS}")
    await stage.restart_postgres(signal.SIGINT, 0)
    await stage.lasting(dice.uniform(2, 7))
    with contextlib.suppress(psycopg.OperationalError):  # no room for us either
        await stage.sql("ALTER SYSTEM RESET max_connections")
    await stage.restart_postgres(signal.SIGINT, 0)


async def table_locked(stage: Stage, dice: random.Random) -> None:
    table = dice.choice(TABLES)
    with contextlib.suppress(psycopg.errors.LockNotAvailable):
        connection = await psycopg.AsyncConnection.connect(
            stage.servers.url_of("hookyard"), options="-c lock_timeout=3000"
        )
        async with connection:
            await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            await asyncio.sleep(dice.choice((5.0, LOCKED_SECONDS)))


# --- the lines to them -----------------------------------------------------------------------------------------------


async def database_slow(stage: Stage, dice: random.Random) -> None:
    stage.database.delay_seconds = dice.uniform(0.02, 0.4)
    await stage.lasting(dice.uniform(3, 8))
    stage.database.delay_seconds = 0.0


async def database_silent(stage: Stage, dice: random.Random) -> None:
    """Half open: nothing arrives and nothing ends; then what was held up arrives, or all is reset."""
    stage.database.fall_silent()
    await stage.lasting(dice.uniform(1, 9))
    if dice.random() < 0.5:
        stage.database.cut()
    stage.database.speak()


async def database_cut(stage: Stage, dice: random.Random) -> None:
    for _ in range(dice.randint(1, 8)):
        stage.database.cut()
        await stage.lasting(dice.uniform(0, 0.8))


async def database_answers_lost(stage: Stage, dice: random.Random) -> None:
    """What was asked for is done, and nobody learns of it."""
    for _ in range(dice.randint(1, 4)):
        stage.database.swallows_answers = True
        await stage.lasting(dice.uniform(0.05, 0.5))
        stage.database.cut()
        stage.database.swallows_answers = False
        await stage.lasting(dice.uniform(0.2, 1))


async def redis_slow(stage: Stage, dice: random.Random) -> None:
    stage.redis.delay_seconds = dice.uniform(0.3, 2)
    await stage.lasting(dice.uniform(3, 8))
    stage.redis.delay_seconds = 0.0


async def redis_silent(stage: Stage, dice: random.Random) -> None:
    stage.redis.fall_silent()
    await stage.lasting(dice.uniform(2, 12))
    if dice.random() < 0.5:
        stage.redis.cut()
    stage.redis.speak()


async def edge_silent(stage: Stage, dice: random.Random) -> None:
    """Between the partners and ingest: half open, then reset; what was on its way is gone."""
    await _silence(stage, stage.edge, dice)


async def edge_cut(stage: Stage, dice: random.Random) -> None:
    for _ in range(dice.randint(1, 8)):
        stage.edge.cut()
        await stage.lasting(dice.uniform(0, 0.8))


async def destinations_silent(stage: Stage, dice: random.Random) -> None:
    """Between the workers and the destinations: half open, then reset; what was on its way is gone."""
    await _silence(stage, stage.destinations, dice)


async def destinations_cut(stage: Stage, dice: random.Random) -> None:
    stage.destinations.cut()


async def _silence(stage: Stage, line: Line, dice: random.Random) -> None:
    line.fall_silent()
    await stage.lasting(dice.uniform(0.5, 5))
    line.cut()
    await asyncio.sleep(0)
    line.speak()


# --- all of them -----------------------------------------------------------------------------------------------------

WORKER, INGEST, VALKEY = frozenset({"worker"}), frozenset({"ingest"}), frozenset({"valkey"})
POSTGRES, EDGE, DESTINATIONS = frozenset({"postgres"}), frozenset({"edge"}), frozenset({"destinations"})
ALL = WORKER | INGEST

FAULTS: dict[str, tuple[Fault, frozenset[str]]] = {
    "worker-killed": (killed("worker"), WORKER),
    "worker-frozen": (frozen("worker"), WORKER),
    "worker-ended": (told_to_end("worker"), WORKER),
    "ingest-killed": (killed("ingest"), INGEST),
    "ingest-frozen": (frozen("ingest"), INGEST),
    "ingest-ended": (told_to_end("ingest"), INGEST),
    "all-killed": (all_killed, ALL),
    "valkey-killed": (valkey_killed, VALKEY),
    "valkey-frozen": (valkey_frozen, VALKEY),
    "valkey-restored": (valkey_restored, VALKEY),
    "valkey-emptied": (valkey_emptied, VALKEY),
    "valkey-streams": (valkey_streams_deleted, VALKEY),
    "valkey-full": (valkey_full("noeviction"), VALKEY),
    "valkey-evicts": (valkey_full("allkeys-lru"), VALKEY),
    "postgres-restarted": (postgres_ended(signal.SIGINT), POSTGRES),
    "postgres-immediate": (postgres_ended(signal.SIGQUIT), POSTGRES),
    "postgres-killed": (postgres_ended(signal.SIGKILL), POSTGRES),
    "postgres-frozen": (postgres_frozen, POSTGRES),
    "postgres-read-only": (postgres_read_only, POSTGRES),
    "backends-terminated": (backends_terminated, POSTGRES),
    "few-connections": (few_connections, POSTGRES),
    "table-locked": (table_locked, POSTGRES),
    "database-slow": (database_slow, POSTGRES),
    "database-silent": (database_silent, POSTGRES),
    "database-cut": (database_cut, POSTGRES),
    "database-answers-lost": (database_answers_lost, POSTGRES),
    "redis-slow": (redis_slow, VALKEY),
    "redis-silent": (redis_silent, VALKEY),
    "edge-silent": (edge_silent, EDGE),
    "edge-cut": (edge_cut, EDGE),
    "destinations-silent": (destinations_silent, DESTINATIONS),
    "destinations-cut": (destinations_cut, DESTINATIONS),
}
SPANS = {"table-locked": 29.5, "valkey-frozen": 13.5}
"""How long a run must be for faults that take a while, in seconds."""


async def storm(stage: Stage, plan: Plan) -> None:
    """Everything of the plan has struck and is over. Two faults of one server wait for each other."""
    began = time.monotonic()
    stage.until = began + plan.seconds
    async with asyncio.TaskGroup() as tasks:
        for strike in plan.strikes:
            fault, touches = FAULTS[strike.fault]
            tasks.create_task(_at(began + strike.at_seconds, stage, strike.fault, fault, touches, strike.seed))


async def _at(moment: float, stage: Stage, name: str, fault: Fault, touches: frozenset[str], seed: int) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
    async with contextlib.AsyncExitStack() as held:
        for target in sorted(touches & {"postgres", "valkey", "edge", "destinations"}):
            await held.enter_async_context(stage.locks[target])
        began_at = time.monotonic()
        await fault(stage, random.Random(seed))
    stage.happened.append(Happened(name, touches, began_at, time.monotonic()))
