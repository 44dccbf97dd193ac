"""`hookyard doctor`: is this installation well? Each finding is a check, whether it passed, and what was seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from domain.retry import longest
from domain.values import counted
from ops.settings import Settings, WrongSetting
from storage import condition
from storage.condition import Condition, Waiting
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


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Whether every check passed."""
    return all(finding.ok for finding in findings)


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """What was found, for a program."""
    told = [{"check": f.check, "ok": f.ok, "message": f.message} for f in findings]
    return {"healthy": is_healthy(findings), "findings": told}


def judge(seen: Condition, here: datetime) -> Iterator[Finding]:
    """The verdicts on a database's condition. `here` is this machine's clock at the moment of `seen.now`."""
    read_only = ", and it is read-only: point HOOKYARD_DATABASE_URL at the primary" if seen.read_only else ""
    yield Finding("database", not seen.read_only, f"PostgreSQL {seen.version}{read_only}")
    yield _durability(seen)
    yield Finding("standby", True, _standby(seen))
    yield _clocks(here - seen.now)
    alone = "no worker is alive, nothing is delivered: start `hookyard worker` (or `hookyard up`)"
    yield Finding("workers", seen.workers > 0, f"{seen.workers} alive" if seen.workers else alone)
    owned = f"{seen.shards - seen.unowned_shards} of {seen.shards} shards have an owner"
    ownerless = "; the others' partners wait until a worker takes them, which one that is alive does within seconds"
    yield Finding("leases", not seen.unowned_shards, owned + ownerless * bool(seen.unowned_shards))
    adrift = _lanes(seen.orphaned_lanes, "in delivering without an owner")
    rescue = ": the next worker waits for what is in flight, then sends it again. Start one"
    yield Finding("in flight", not seen.orphaned_lanes, adrift + rescue * bool(seen.orphaned_lanes))
    waits = _lanes(seen.unfinished_closings, "still queued for removed or suspended destinations")
    parks = ": `hookyard jobs` parks it within a minute. Is one running?"
    yield Finding("parking", not seen.unfinished_closings, waits + parks * bool(seen.unfinished_closings))
    lag = seen.undispatched_seconds or 0.0
    late = "; workers hand events to their lanes within seconds: see workers and leases, and their logs"
    is_late = lag >= STUCK_SECONDS
    yield Finding("dispatch", not is_late, f"the oldest event not yet in its lanes is {lag:.0f} s old{late * is_late}")
    yield _partitions(seen)


def judge_lanes(waiting: Sequence[Waiting]) -> Finding:
    """The verdict on what waits: nothing should for longer than the attempts of its destination's policy can take."""
    late = [lane for lane in waiting if lane.age > _patience(lane) + timedelta(seconds=STUCK_SECONDS)]
    if not late:
        return Finding("lanes", True, "nothing waits for longer than its destination's policy allows")
    worst = max(late, key=lambda lane: lane.age)
    told = (
        f"{counted(len(late), 'lane is', 'lanes are')} older than the policy allows: from {worst.partner} to"
        f" {worst.destination} something waits for {_span(worst.age)}, although it would be given up after"
        f" {_span(_patience(worst))} of attempts. `hookyard backlog` says what for"
    )
    return Finding("lanes", False, told)


def judge_default_commits(synchronous_commit: str) -> Finding:
    """The verdict on `synchronous_commit` as sessions have it that do not ask for it."""
    if synchronous_commit != "off":
        return Finding("commits", True, "synchronous_commit is on")
    return Finding(
        "commits",
        False,
        "synchronous_commit is off by default (of the server, the database or the role). Hookyard turns it on for"
        " itself, but a pooler that drops such options would make a 202 worthless: ALTER SYSTEM (or DATABASE, or ROLE)"
        " … SET synchronous_commit = on",
    )


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
        yield judge_default_commits(condition.commits_by_default(settings.database_url or ""))
        yield judge_lanes(store.run(condition.waiting))
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
    if policy != "noeviction":
        why = "it evicts when it is full, and hints and housekeeping vanish unnoticed"
        return Finding("redis", False, f"{version}, maxmemory-policy is {policy}: {why}. Set noeviction")
    most, used = int(told.get("maxmemory") or 0), int(told.get("used_memory") or 0)
    if most and used >= most:
        return Finding("redis", False, f"{version}, full ({used} of {most} bytes): hints are refused. Raise maxmemory")
    return Finding("redis", True, f"{version}, maxmemory-policy {policy}")


def _durability(seen: Condition) -> Finding:
    if not seen.unsafe_settings:
        return Finding("durability", True, "fsync and full_page_writes are on, commits are synchronous")
    off = ", ".join(f"{name} is off" for name in seen.unsafe_settings)
    cures = [f"ALTER SYSTEM SET {name} = on" for name in seen.unsafe_settings if name != "synchronous_commit"]
    if "synchronous_commit" in seen.unsafe_settings:
        cures.append("let the pooler pass on `options`, and ALTER SYSTEM SET synchronous_commit = on")
    cure = "; ".join([*cures, "SELECT pg_reload_conf()"])
    return Finding(
        "durability", False, f"{off}: what a 202 acknowledged may be gone after a crash of the server. {cure}"
    )


def _standby(seen: Condition) -> str:
    if seen.synchronous_standbys:
        return f"{seen.synchronous_standbys} synchronous: a fail-over to it loses nothing that was acknowledged"
    if seen.standbys:
        asynchronous = counted(seen.standbys, "standby, and it is", "standbys, all")
        return f"{asynchronous} asynchronous: a fail-over may lose the last acknowledged events"
    return "none (that this user may see): without a synchronous one a fail-over may lose acknowledged events"


def _clocks(ahead: timedelta) -> Finding:
    """`ahead` is by how much this machine's clock is ahead of the database's."""
    if abs(ahead) <= MAX_SKEW:
        return Finding("clocks", True, f"this machine and the database differ by {abs(ahead).total_seconds():.1f} s")
    way = "ahead of" if ahead > timedelta(0) else "behind"
    told = f"this machine is {_span(abs(ahead))} {way} the database, whose clock counts: set both by NTP"
    return Finding("clocks", False, told)


def _partitions(seen: Condition) -> Finding:
    told = f"ready for {seen.days_ahead} days ahead"
    if seen.days_ahead < DAYS_AHEAD:
        told += ": `hookyard jobs` makes them, is one running?"
    if seen.in_default_partition:
        told += ", but events stand in the default partition: none was ready when they came"
    return Finding("partitions", seen.days_ahead >= DAYS_AHEAD and not seen.in_default_partition, told)


def _patience(lane: Waiting) -> timedelta:
    return longest(lane.attempts, lane.retry_base, lane.retry_factor, lane.retry_cap, lane.timeout)


def _span(span: timedelta) -> str:
    return str(timedelta(seconds=round(span.total_seconds())))  # `1 day, 2:03:04`


def _lanes(number: int, what: str) -> str:
    return f"{counted(number, 'lane has', 'lanes have')} something {what}" if number else f"nothing is {what}"
