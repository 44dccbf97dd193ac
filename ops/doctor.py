"""`hookyard doctor`: is this installation well? Each finding is a check, whether it passed, and what was seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from domain.values import counted
from ops.settings import Settings, WrongSetting
from storage import condition
from storage.condition import Condition
from storage.errors import StorageUnavailable, first_line
from storage.sealed import Survey, survey
from storage.secrets import Vault
from storage.transactions import Store

if TYPE_CHECKING:
    import redis

MAX_SKEW = timedelta(seconds=5)  # half of the default lease; Standard Webhooks allows 300 s
STUCK_SECONDS = 60.0
DAYS_AHEAD = 2  # partitions are made two weeks ahead; two days is the last warning
REDIS_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's outcome."""

    check: str
    ok: bool
    message: str


def examine() -> list[Finding]:
    """Everything that can be looked at; what a failed check makes invisible is left out."""
    from ops.datadir import complete
    from ops.settings import load

    try:
        settings = complete(load())
    except WrongSetting as problem:
        return [Finding("settings", False, str(problem))]
    return [_settings(settings), *_database(settings), _redis(settings)]


def judge(seen: Condition, here: datetime) -> Iterator[Finding]:
    """The verdicts on a database's condition. `here` is this machine's clock at the moment of `seen.now`."""
    yield Finding("database", not seen.read_only, f"PostgreSQL {seen.version}" + ", read only" * seen.read_only)
    unsafe = ", ".join(f"{name} is off" for name in seen.unsafe_settings)
    yield Finding("durability", not unsafe, unsafe or "fsync and full_page_writes are on, commits are synchronous")
    standbys = seen.synchronous_standbys
    without = "no synchronous standby: a fail-over may lose the last acknowledged events"
    yield Finding("standby", True, f"{standbys} synchronous" if standbys else without)
    skew = abs(here - seen.now)
    yield Finding("clocks", skew <= MAX_SKEW, f"this machine and the database differ by {skew.total_seconds():.1f} s")
    owned = seen.shards - seen.unowned_shards
    yield Finding("workers", seen.workers > 0, f"{seen.workers} alive" if seen.workers else "no worker is alive")
    yield Finding("leases", not seen.unowned_shards, f"{owned} of {seen.shards} shards have an owner")
    yield Finding("in flight", not seen.orphaned_lanes, _lanes(seen.orphaned_lanes, "in flight without an owner"))
    waits = _lanes(seen.unfinished_closings, "still queued for removed or suspended destinations")
    yield Finding("parking", not seen.unfinished_closings, waits)
    lag = seen.undispatched_seconds or 0.0
    yield Finding("dispatch", lag < STUCK_SECONDS, f"the oldest event not yet in its lanes is {lag:.0f} s old")
    ready = f"ready for {seen.days_ahead} days ahead"
    stray = ", but events stand in the default partition" if seen.in_default_partition else ""
    yield Finding("partitions", seen.days_ahead >= DAYS_AHEAD and not stray, ready + stray)


def judge_secrets(seen: Survey) -> Finding:
    """The verdict on what is sealed: all of it has to open; an old key that is still needed is no ailment."""
    if seen.closed:
        others = f" (and {len(seen.closed) - 1} more)" if len(seen.closed) > 1 else ""
        return Finding("secrets", False, seen.closed[0] + others)
    told = counted(seen.opened, "sealed value opens", "sealed values open") if seen.opened else "nothing is sealed"
    if seen.old:
        told += f"; {counted(seen.old, 'needs', 'need')} an old master key: run `hookyard reseal`"
    return Finding("secrets", True, told)


def _settings(settings: Settings) -> Finding:
    if not settings.master_keys:
        return Finding("settings", False, "HOOKYARD_MASTER_KEY is not set")
    return Finding("settings", True, "complete")


def _database(settings: Settings) -> Iterator[Finding]:
    store = Store(settings.database_url or "", "hookyard doctor")
    try:
        if not store.run(condition.is_current):
            yield Finding("schema", False, "not of this version: run `hookyard migrate`")
            return
        yield Finding("schema", True, "of this version")
        began = datetime.now(UTC)
        seen = store.run(condition.examine)
        yield from judge(seen, began + (datetime.now(UTC) - began) / 2)
        if settings.master_keys:
            vault = Vault(settings.master_keys)
            yield judge_secrets(store.run(lambda connection: survey(connection, vault)))
    except StorageUnavailable as problem:
        yield Finding("database", False, str(problem))
    finally:
        store.close()


def _redis(settings: Settings) -> Finding:
    import redis

    if not settings.redis_url:
        return Finding("redis", False, "HOOKYARD_REDIS_URL is not set")
    try:
        with redis.Redis.from_url(
            settings.redis_url, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS, retry=None
        ) as client:
            return _judge_redis(client)
    except (redis.RedisError, OSError, ValueError) as problem:
        return Finding("redis", False, f"away or refusing ({first_line(problem)}): deliveries go on, a little later")


def _judge_redis(client: "redis.Redis") -> Finding:
    told = client.info()
    version = told.get("valkey_version") or told.get("redis_version")
    policy = str(told.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction" and told.get("maxmemory"):
        return Finding("redis", False, f"{version}, maxmemory-policy is {policy}: hints may vanish, set noeviction")
    return Finding("redis", True, f"{version}, maxmemory-policy {policy}")


def _lanes(number: int, what: str) -> str:
    return f"{counted(number, 'lane has', 'lanes have')} something {what}" if number else f"nothing is {what}"
