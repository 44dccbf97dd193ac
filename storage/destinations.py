"""Destinations, for people: where events go, by which policy, and whether they go now.

URLs, headers and secrets are sealed. Removing and suspending close a destination first, in one transaction, and then
park what waits for it in many small ones; a sweep finishes that part where it was interrupted (`storage.parking`).
"""

import secrets as randomness
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from domain.headers import BadHeader, configured
from domain.lifecycle import ParkReason
from domain.signatures import BadSecret, key_of, secret_of
from domain.urls import BadURL, parse, redact
from domain.values import counted, format_duration, format_rate, parse_name
from storage import audit
from storage.errors import Conflict, Invalid
from storage.names import ids_ever, living
from storage.parking import park_waiting
from storage.secrets import DESTINATION_SECRET, DESTINATION_URL, Vault
from storage.tables import destination_secrets, destinations, gates
from storage.transactions import Store

MS = timedelta(milliseconds=1)
DAY = timedelta(days=1)
DURATIONS = {  # what is allowed; the lower ends leave room for tests
    "timeout": (100 * MS, timedelta(minutes=10)),
    "retry_base": (10 * MS, DAY),
    "retry_cap": (10 * MS, 30 * DAY),
    "suspend_after": (timedelta(seconds=1), 365 * DAY),
    "breaker_reset": (10 * MS, DAY),
}
COUNTS = {"concurrency": range(1, 10_001), "max_attempts": range(1, 10_001), "breaker_failures": range(1, 1_001)}
RETRY_BASE, RETRY_CAP = timedelta(seconds=5), timedelta(hours=6)  # the schema's defaults
RETRY_FACTOR = (1.0, 100.0)
MAX_RATE = 100_000.0  # attempts per second
MAX_HEADERS = 50
MAX_SECRETS = 5  # valid at once: every one signs every attempt
SECRET_BYTES = 32
SYSTEM = "hookyard"  # the actor of what the pipeline does by itself

HEADS = sa.text("""
SELECT h.partner_id FROM partner_heads h
WHERE h.partner_id IN (SELECT partner_id FROM subscriptions WHERE destination_id = :id AND until_seq IS NULL)
ORDER BY h.partner_id FOR NO KEY UPDATE
""")
END_SUBSCRIPTIONS = sa.text("""
UPDATE subscriptions s SET until_seq = h.last_seq + 1 FROM partner_heads h
WHERE s.destination_id = :id AND s.until_seq IS NULL AND h.partner_id = s.partner_id
""")
RETRY_WAITS = sa.text("SELECT retry_base_ms AS base, retry_cap_ms AS cap FROM destinations WHERE id = :id")
LOCK_GATE = sa.text("SELECT FROM gates WHERE destination_id = :id FOR NO KEY UPDATE")
LOCK_LANES = sa.text("SELECT FROM lanes WHERE destination_id = :id ORDER BY partner_id FOR NO KEY UPDATE")
REST_LANES = sa.text("UPDATE lanes SET active = false WHERE destination_id = :id")
WAITING = sa.text("SELECT coalesce(sum(waiting), 0)::bigint FROM lanes WHERE destination_id = :id")
PARKED = sa.text("SELECT count(*) FROM parked WHERE destination_id = :id")
NUDGE = sa.text("""
INSERT INTO nudges (partner_id, destination_id)
SELECT partner_id, destination_id FROM lanes WHERE destination_id = :id AND waiting > 0
""")
FORGIVE = sa.text("UPDATE gates SET failing_since = NULL WHERE destination_id = :id")
CLOSE_BREAKER = sa.text("""
UPDATE gates SET breaker = 'closed', opened_at = NULL, probe_token = NULL, probe_expires_at = NULL, closed_at = NULL,
                 failing_since = NULL, version = version + 1
WHERE destination_id = :id
""")
EXPIRE = sa.text("""
UPDATE destination_secrets SET expires_at = now() + :overlap
WHERE destination_id = :id AND (expires_at IS NULL OR expires_at > now() + :overlap)
""")
COUNT_SECRETS = sa.text(
    "SELECT count(*) FROM destination_secrets WHERE destination_id = :id AND (expires_at IS NULL OR expires_at > now())"
)


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination as people see it: no secrets, of its headers only the names."""

    id: int
    name: str
    url: str
    header_names: tuple[str, ...]
    state: str
    breaker: str
    in_flight: int
    timeout: timedelta
    concurrency: int
    rate: float | None
    max_attempts: int
    retry_base: timedelta
    retry_factor: float
    retry_cap: timedelta
    park_on: list[int]
    suspend_after: timedelta
    on_park: str
    breaker_failures: int
    breaker_reset: timedelta
    created_at: datetime


class Options(TypedDict, total=False):
    """What can be chosen; what is not in it keeps its default, or its value in an edit. `rate` None: unlimited."""

    url: str
    headers: list[str]  # `Name: value`; all of them
    timeout: timedelta
    concurrency: int
    rate: float | None
    max_attempts: int
    retry_base: timedelta
    retry_factor: float
    retry_cap: timedelta
    park_on: list[int]
    suspend_after: timedelta
    on_park: str
    breaker_failures: int
    breaker_reset: timedelta


def listed(connection: sa.Connection, vault: Vault, *, after: str = "", limit: int | None = None) -> list[Destination]:
    """Every destination, by name; of those after a name so many where that is asked for. Raises: CannotOpen."""
    living = destinations.c.removed_at.is_(None) & (destinations.c.name > after)
    query = _select().where(living).order_by(destinations.c.name).limit(limit)
    return [_seen(row, vault) for row in connection.execute(query)]


def show(connection: sa.Connection, vault: Vault, name: str) -> Destination:
    """The destination of this name. Raises: NotFound, CannotOpen."""
    return _seen(living(connection, destinations, _select(), name), vault)


@dataclass(frozen=True, slots=True)
class Found:
    """What a change needs to know of a destination."""

    id: int
    state: str


def find(connection: sa.Connection, name: str, *, lock: bool = False) -> Found:
    """The destination of this name, its row locked against other changes on request. Raises: NotFound."""
    query = sa.select(destinations.c.id, destinations.c.state)
    query = query.with_for_update(key_share=True) if lock else query
    return Found(*living(connection, destinations, query, name))


def ids_named(connection: sa.Connection, name: str) -> list[int]:
    """Every one that has or had this name: what a removed one left stays findable by it. Raises: NotFound."""
    return ids_ever(connection, destinations, name)


def add(
    connection: sa.Connection, vault: Vault, name: str, options: Options, secret: str | None = None, *, actor: str
) -> str | None:
    """A new destination; its secret, if it was made here. Raises: Invalid, Conflict."""
    check(name, options)
    _check_waits(options.get("retry_base"), options.get("retry_cap", RETRY_CAP))
    made = None if secret is not None else secret_of(randomness.token_bytes(SECRET_BYTES))
    sealed = _sealed_secret(vault, secret or made or "")
    values = {"sealed_headers": vault.seal_headers([])} | _columns(vault, options)
    if "retry_base" not in options and "retry_cap" in options:
        values["retry_base_ms"] = min(RETRY_BASE, options["retry_cap"]) // MS
    query = pg.insert(destinations).values(name=name, **values).on_conflict_do_nothing().returning(destinations.c.id)
    identity = connection.execute(query).scalar_one_or_none()
    if identity is None:
        raise Conflict(f"there is a destination {name!r} already")
    connection.execute(gates.insert().values(destination_id=identity))
    connection.execute(destination_secrets.insert().values(destination_id=identity, sealed=sealed))
    audit.record(connection, actor, "destination add", name, _told(vault, options))
    return made


def edit(connection: sa.Connection, vault: Vault, name: str, options: Options, *, actor: str) -> None:
    """The given options are changed, nothing else. Raises: NotFound, Invalid."""
    check(name, options)
    found = find(connection, name, lock=True)
    if options:
        if "retry_base" in options or "retry_cap" in options:
            kept = connection.execute(RETRY_WAITS, {"id": found.id}).one()
            _check_waits(options.get("retry_base", kept.base * MS), options.get("retry_cap", kept.cap * MS))
        query = destinations.update().where(destinations.c.id == found.id)
        connection.execute(query.values(**_columns(vault, options)))
        connection.execute(NUDGE, {"id": found.id})
    audit.record(connection, actor, "destination edit", name, _told(vault, options))


def pause(connection: sa.Connection, name: str, *, actor: str) -> bool:
    """Nothing goes to it until it is resumed; whether that is a change. Raises: NotFound, Conflict if suspended."""
    found = find(connection, name, lock=True)
    if found.state == "suspended":
        raise Conflict(f"destination {name!r} is suspended already: nothing goes to it")
    if found.state == "paused":
        return False
    _set_state(connection, found.id, "paused")
    audit.record(connection, actor, "destination pause", name)
    return True


def resume(connection: sa.Connection, name: str, *, actor: str) -> str:
    """Deliveries go to it again; what a suspension parked stays parked. The state it was in. Raises: NotFound."""
    connection.execute(LOCK_GATE, {"id": find(connection, name).id})
    found = find(connection, name, lock=True)
    if found.state != "active":
        _set_state(connection, found.id, "active")
        connection.execute(FORGIVE, {"id": found.id})
        connection.execute(NUDGE, {"id": found.id})
        audit.record(connection, actor, "destination resume", name, {"was": found.state})
    return found.state


def reset_breaker(connection: sa.Connection, name: str, *, actor: str) -> None:
    """The breaker is closed and has forgotten what it held against the destination. Raises: NotFound.

    A probe that is out loses its say: the row has moved on.
    """
    found = find(connection, name)
    connection.execute(CLOSE_BREAKER, {"id": found.id})
    connection.execute(NUDGE, {"id": found.id})
    audit.record(connection, actor, "destination reset-breaker", name)


def rotate_secret(
    connection: sa.Connection, vault: Vault, name: str, secret: str | None, overlap: timedelta, *, actor: str
) -> str | None:
    """Every attempt is signed with a new secret too, and with the old ones until the overlap has passed.

    The secret, if it was made here. Raises: NotFound, Invalid, Conflict.
    """
    found = find(connection, name, lock=True)
    made = None if secret is not None else secret_of(randomness.token_bytes(SECRET_BYTES))
    sealed = _sealed_secret(vault, secret or made or "")
    connection.execute(EXPIRE, {"id": found.id, "overlap": overlap})
    if connection.execute(COUNT_SECRETS, {"id": found.id}).scalar_one() >= MAX_SECRETS:
        raise Conflict(f"{MAX_SECRETS} secrets of destination {name!r} are valid already: wait for an overlap to end")
    connection.execute(destination_secrets.insert().values(destination_id=found.id, sealed=sealed))
    details = {"overlap": format_duration(overlap)}
    audit.record(connection, actor, "destination rotate-secret", name, details)
    return made


@dataclass(frozen=True, slots=True)
class Left:
    """The deliveries that a destination's removal would concern: queued or in flight, and parked already."""

    waiting: int
    parked: int


def left(connection: sa.Connection, name: str) -> Left:
    """What its removal would concern. Raises: NotFound."""
    key = {"id": find(connection, name).id}
    return Left(connection.execute(WAITING, key).scalar_one(), connection.execute(PARKED, key).scalar_one())


def remove(store: Store, name: str, *, even_if_waiting: bool = False, actor: str) -> int:
    """Nothing goes to it any more, what waited is parked (`destination_removed`), events stay. How many were parked.

    Raises: NotFound, Conflict where something waits and that was not to be; StorageUnavailable.
    """

    def close(connection: sa.Connection) -> int:
        identity = find(connection, name).id
        connection.execute(HEADS, {"id": identity}).all()
        connection.execute(LOCK_LANES, {"id": identity}).all()
        find(connection, name, lock=True)
        waiting = connection.execute(WAITING, {"id": identity}).scalar_one()
        if waiting and not even_if_waiting:
            raise Conflict(f"{counted(waiting, 'delivery', 'deliveries')} to destination {name!r} still to be made")
        connection.execute(REST_LANES, {"id": identity})
        query = destinations.update().where(destinations.c.id == identity)
        connection.execute(query.values(removed_at=sa.func.now()))
        connection.execute(END_SUBSCRIPTIONS, {"id": identity})
        audit.record(connection, actor, "destination remove", name, {"waiting": int(waiting)})
        return identity

    return park_waiting(store, store.run(close), ParkReason.DESTINATION_REMOVED)


def suspend(store: Store, destination_id: int, why: str, *, actor: str = SYSTEM) -> int:
    """It takes nothing until a person resumes it; what waits is parked (`destination_suspended`). How many were parked.

    Idempotent. Raises: StorageUnavailable.
    """

    def close(connection: sa.Connection) -> None:
        query = destinations.update().where(
            destinations.c.id == destination_id,
            destinations.c.removed_at.is_(None),
            destinations.c.state != "suspended",
        )
        name = connection.execute(query.values(state="suspended").returning(destinations.c.name)).scalar_one_or_none()
        if name is not None:
            audit.record(connection, actor, "destination suspend", name, {"why": why})

    store.run(close)
    return park_waiting(store, destination_id, ParkReason.DESTINATION_SUSPENDED)


def check(name: str, options: Options) -> None:
    """Returns if every option is allowed. Raises: Invalid, saying which, what was given and what is allowed."""
    values: dict[str, Any] = dict(options)
    try:
        parse_name(name)
        if "url" in options:
            parse(options["url"])
        headers = [configured(header) for header in options.get("headers", [])]
    except (BadURL, BadHeader, ValueError) as problem:
        raise Invalid(str(problem)) from problem
    if len(headers) > MAX_HEADERS:
        raise Invalid(f"{len(headers)} headers: at most {MAX_HEADERS} are allowed")
    for field, (least, most) in DURATIONS.items():
        _check_between(field, values.get(field), least, most, format_duration)
    for field, allowed in COUNTS.items():
        _check_between(field, values.get(field), allowed.start, allowed.stop - 1, str)
    _check_between("retry_factor", values.get("retry_factor"), *RETRY_FACTOR, "{:g}".format)
    rate = options.get("rate")
    if rate is not None and not 0 < rate <= MAX_RATE:
        raise Invalid(f"rate {rate:g}/s: above 0 and at most {MAX_RATE:.0f}/s are allowed")
    if options.get("on_park", "continue") not in ("continue", "hold"):
        raise Invalid(f"on park {options['on_park']!r}: continue and hold are allowed")
    for status in options.get("park_on", []):
        if not 100 <= status <= 999 or 200 <= status <= 299:
            raise Invalid(f"park on {status}: statuses that are no success (100 to 999 without 200 to 299) are allowed")


def _check_waits(base: timedelta | None, cap: timedelta) -> None:
    if base is not None and base > cap:
        raise Invalid(f"retry base {format_duration(base)}: at most the retry cap ({format_duration(cap)}) is allowed")


def _check_between(field: str, value: Any, least: Any, most: Any, show: Any) -> None:
    if value is not None and not least <= value <= most:
        raise Invalid(f"{field.replace('_', ' ')} {show(value)}: {show(least)} to {show(most)} are allowed")


def _columns(vault: Vault, options: Options) -> dict[str, Any]:
    """The options as the table keeps them."""
    columns: dict[str, Any] = {}
    for field, value in options.items():
        if field == "url":
            columns["sealed_url"] = vault.seal_text(options["url"], DESTINATION_URL)
        elif field == "headers":
            pairs = [configured(header) for header in options["headers"]]
            columns["sealed_headers"] = vault.seal_headers((name.decode(), text.decode()) for name, text in pairs)
        elif isinstance(value, timedelta):
            columns[f"{field}_ms"] = value // MS
        else:
            columns[field] = value
    return columns


def _sealed_secret(vault: Vault, secret: str) -> bytes:
    try:
        key_of(secret)
    except BadSecret as problem:
        raise Invalid(str(problem)) from problem
    return vault.seal_text(secret, DESTINATION_SECRET)


def _set_state(connection: sa.Connection, identity: int, state: str) -> None:
    connection.execute(destinations.update().where(destinations.c.id == identity).values(state=state))


def _select() -> sa.Select[Any]:
    return sa.select(destinations, gates.c.breaker, gates.c.in_flight).join(
        gates, gates.c.destination_id == destinations.c.id
    )


def _seen(row: sa.Row[Any], vault: Vault) -> Destination:
    kept = row._mapping
    durations = {field: kept[f"{field}_ms"] * MS for field in DURATIONS}
    same = {field: kept[field] for field in Destination.__slots__ if field in kept}
    names = tuple(name for name, _ in vault.open_headers(kept["sealed_headers"], kept["name"]))
    url = vault.open_text(kept["sealed_url"], DESTINATION_URL, kept["name"])
    return Destination(url=url, header_names=names, **durations, **same)


def told_url(vault: Vault, url: str) -> str:
    """The host of a URL, and what tells it from others there: path, query and credentials may hold secrets."""
    shown = redact(url)
    return shown if shown == url else f"{shown} #{vault.mark(url)}"


def _told(vault: Vault, options: Options) -> dict[str, Any]:
    """The options as people write them and the audit may keep them: of a URL the host, of headers the names."""
    told: dict[str, Any] = {}
    for field, value in options.items():
        if field == "url":
            told["url"] = told_url(vault, options["url"])
        elif field == "headers":
            told["headers"] = [header.partition(":")[0] for header in options["headers"]]
        elif field == "rate":
            told["rate"] = "none" if options["rate"] is None else format_rate(options["rate"])
        elif isinstance(value, timedelta):
            told[field] = format_duration(value)
        else:
            told[field] = int(value) if isinstance(value, float) and value.is_integer() else value
    return told
