"""The documents of the API as schemas: what is answered, and what may be sent.

The documents themselves are made where the command line makes its own; a test holds both together. Answers may have
more members than are described; what is sent may not.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from domain.lifecycle import ParkReason
from domain.values import DURATION, NAME, RATE

Item = TypeVar("Item")

Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$", examples=["acme"])]
Duration = Annotated[str, Field(pattern=f"^{DURATION.pattern}$", examples=["30s"])]
Rate = Annotated[str, Field(pattern=f"^{RATE.pattern}$", examples=["10/s"])]
Time = Annotated[str, Field(max_length=40, examples=["2026-01-31T12:00:00Z", "15m"])]
EventState = Literal["received", "queued", "delivering", "parked", "discarded", "delivered"]
DeliveryState = Literal["queued", "delivering", "parked", "discarded", "delivered"]
Breaker = Literal["closed", "half_open", "open"]
Ordering = Literal["partner", "key", "none"]
TokenRole = Literal["viewer", "operator", "admin"]
Kind = Literal["replay", "discard", "backfill"]


class Answered(BaseModel):
    """What we answer; members that are not described here may be there."""

    model_config = ConfigDict(extra="allow")


class Sent(BaseModel):
    """What is sent to us; a member that is not described here is an error."""

    model_config = ConfigDict(extra="forbid")


class Page(Answered, Generic[Item]):
    items: list[Item]
    next: str | None = Field(description="The cursor of the next page; null: this was the last one.")


class Problem(Answered):
    """RFC 9457. `reason` is for programs and stays."""

    type: str
    title: str
    status: int
    detail: str
    reason: str


class Made(Answered):
    """What was made; shown this once."""

    name: str
    secret: str | None = None


# --- partners and destinations ------------------------------------------------------------------------


class PartnerFeeds(Answered):
    destination: str
    types: list[str] | None
    order: Ordering


class Partner(Answered):
    name: str
    state: Literal["active", "paused"]
    verify: str
    max_backlog: int
    on_backlog_full: Literal["reject", "accept"]
    rate: str | None
    max_body: int
    dedupe: str
    type: str
    order_key: str
    created_at: Instant


class PartnerShown(Partner):
    subscriptions: list[PartnerFeeds]


class DestinationFedBy(Answered):
    partner: str
    types: list[str] | None
    order: Ordering


class Destination(Answered):
    name: str
    url: str
    headers: list[str]
    state: Literal["active", "paused", "suspended"]
    breaker: Breaker
    in_flight: int
    timeout: str
    concurrency: int
    rate: str | None
    max_attempts: int
    retry_base: str
    retry_factor: float
    retry_cap: str
    park_on: list[int]
    suspend_after: str
    on_park: Literal["continue", "hold"]
    breaker_failures: int
    breaker_reset: str
    created_at: Instant


class DestinationShown(Destination):
    subscriptions: list[DestinationFedBy]


class Subscription(Answered):
    partner: str
    destination: str
    order: Ordering
    types: list[str] | None
    max_waiting: int
    from_sequence: int
    created_at: Instant


# --- events -------------------------------------------------------------------------------------------


class EventRow(Answered):
    id: str
    partner: str
    sequence: int
    type: str | None
    state: EventState
    received_at: Instant
    destination: str | None = None
    park_reason: ParkReason | None = None


class Attempt(Answered):
    number: int
    started_at: Instant
    duration_ms: int
    status: int | None
    outcome: str
    error: str | None
    note: str | None
    replay: str | None


class Delivery(Answered):
    destination: str
    state: DeliveryState
    park_reason: ParkReason | None
    next_attempt_at: Instant | None
    attempts: list[Attempt]


class Event(Answered):
    id: str
    partner: str
    sequence: int
    type: str | None
    state: EventState
    received_at: Instant
    content_type: str | None
    body_bytes: int
    query: str | None
    deliveries: list[Delivery]


# --- what waits, what was asked, who did what ---------------------------------------------------------


class Lane(Answered):
    destination: str
    state: Literal["active", "paused", "suspended", "removed"]
    removed_at: Instant | None
    waiting: int
    in_flight: int
    breaker: Breaker
    parked: int
    oldest_seconds: float | None
    head: str | None
    head_sequence: int | None
    blocked_by: str | None
    drain_seconds: float | None


class Backlog(Answered):
    partner: str
    removed_at: Instant | None
    waiting: int
    undispatched: int
    slope_per_minute: float | None
    oldest_seconds: float | None
    lanes: list[Lane]


class BulkRequest(Answered):
    """A replay, discard or backfill: who asked for what, and how far it is."""

    id: str
    kind: Kind
    actor: str
    state: Literal["running", "finished"]
    selection: dict[str, Any]
    why: str | None
    rate: str | None
    selected: int
    done: int
    skipped: int
    failed: int
    created_at: Instant
    finished_at: Instant | None


class AuditEntry(Answered):
    at: Instant
    actor: str
    action: str
    subject: str
    details: dict[str, Any]


class Finding(Answered):
    check: str
    ok: bool
    message: str


class Doctor(Answered):
    healthy: bool
    findings: list[Finding]


# --- the system ---------------------------------------------------------------------------------------


class Role(Answered):
    status: Literal["ready", "degraded", "unready"]
    amiss: list[str]


class Worker(Answered):
    name: str
    started_at: Instant
    lease_seconds: float = Field(description="Until its lease ends; below zero: it has ended.")
    shards: int


class Shard(Answered):
    shard: int
    epoch: int
    owner: str | None
    partners: int


class Queue(Answered):
    queue: str
    depth: float
    capacity: float | None


class Table(Answered):
    table: str
    bytes: int
    rows: int = Field(description="Estimated by the database.")
    partitions: int


class Database(Answered):
    version: str
    bytes: int
    connections: int


class Redis(Answered):
    up: bool
    version: str | None
    used_bytes: int | None


class System(Answered):
    version: str
    roles: dict[str, Role]
    workers: list[Worker]
    shards: list[Shard]
    queues: list[Queue]
    tables: list[Table]
    database: Database
    redis: Redis


# --- access -------------------------------------------------------------------------------------------


class Me(Answered):
    name: str
    role: TokenRole
    csrf: str | None = Field(description="Of a browser's session: to be sent as X-CSRF-Token with every change.")


class Token(Answered):
    name: str
    role: TokenRole
    created_at: Instant
    expires_at: Instant | None
    expired: bool


class TokenMade(Token):
    token: str = Field(description="Shown this once.")


class TokenNew(Sent):
    name: Name
    role: TokenRole
    expires: Duration | None = None
