"""The documents of the API as schemas: what is answered, and what may be sent.

The documents themselves are made where the command line makes its own; a test holds both together. Answers may have
more members than are described; what is sent may not.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Generic, Literal, NotRequired, Required, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from typing_extensions import TypedDict

from domain.lifecycle import ParkReason
from domain.values import DURATION, NAME, RATE, parse_duration, parse_rate
from storage.destinations import COUNTS, MAX_HEADERS, RETRY_FACTOR
from storage.partners import MAX_BACKLOG, MAX_BODY, MAX_SECRETS
from storage.replays import MAX_NAMED

Item = TypeVar("Item")

Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$", examples=["acme"])]
Span = Annotated[
    timedelta,
    BeforeValidator(lambda given: parse_duration(str(given))),
    WithJsonSchema({"type": "string", "pattern": f"^{DURATION.pattern}$", "examples": ["30s"]}),
]
Rate = Annotated[
    float,
    BeforeValidator(lambda given: parse_rate(str(given))),
    WithJsonSchema({"type": "string", "pattern": f"^{RATE.pattern}$", "examples": ["10/s"]}),
]
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


# --- partners and destinations ------------------------------------------------------------------------


class PartnerFeeds(Answered):
    destination: str
    types: list[str] | None
    order: Ordering


class Partner(Answered):
    name: str
    state: Literal["active", "paused"]
    verify: str
    verify_options: dict[str, str]
    max_backlog: int
    on_backlog_full: Literal["reject", "accept"]
    rate: str | None
    max_body: int
    dedupe: str
    type: str
    order_key: str
    created_at: Instant


class PartnerMade(Partner):
    secret: str | None = Field(None, description="The secret that was made for it; shown this once.")


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


class DestinationMade(Destination):
    secret: str | None = Field(None, description="The secret that was made for it; shown this once.")


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


class Subscribed(Answered):
    partner: str
    destination: str
    outcome: Literal["new", "changed", "unchanged"]
    from_sequence: int


class Standing(Answered):
    """A partner or destination after it was paused or resumed, and whether that was a change."""

    name: str
    state: Literal["active", "paused", "suspended"]
    changed: bool


class Rotated(Answered):
    name: str
    secret: str | None = Field(description="The secret, if it was made here; shown this once.")


class Removed(Answered):
    """What still waits for delivery (of a partner), or was parked (of a destination)."""

    name: str
    waiting: int


class Unsubscribed(Answered):
    """How many deliveries still wait in the lane."""

    partner: str
    destination: str
    waiting: int


# --- what is sent to change them ----------------------------------------------------------------------

Secret = Annotated[str, Field(min_length=1, max_length=1000)]
Secrets = Annotated[list[Secret], Field(max_length=MAX_SECRETS)]
VerifyOption = Annotated[str, Field(max_length=2_100)]
Source = Annotated[str, Field(max_length=1000, examples=["header:webhook-id", "json:/type", "none"])]


class PartnerOptions(TypedDict, total=False):
    """What is not given keeps its default, or its value."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc] # how pydantic is told, on a TypedDict
    verify: Annotated[str, Field(max_length=100, examples=["none", "standard", "stripe"])]
    verify_options: Annotated[dict[str, VerifyOption], Field(max_length=20, examples=[{"header": "x-signature"}])]
    max_backlog: Annotated[int, Field(ge=MAX_BACKLOG.start, lt=MAX_BACKLOG.stop)]
    on_backlog_full: Literal["reject", "accept"]
    rate: Rate | None
    max_body: Annotated[int, Field(ge=MAX_BODY.start, lt=MAX_BODY.stop)]
    dedupe: Source
    type: Source
    order_key: Source
    secrets: Secrets


class PartnerNew(PartnerOptions):
    name: Required[Name]


class DestinationOptions(TypedDict, total=False):
    """What is not given keeps its default, or its value."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc] # how pydantic is told, on a TypedDict
    headers: Annotated[list[Annotated[str, Field(max_length=8_192)]], Field(max_length=MAX_HEADERS)]
    timeout: Span
    concurrency: Annotated[int, Field(ge=COUNTS["concurrency"].start, lt=COUNTS["concurrency"].stop)]
    rate: Rate | None
    max_attempts: Annotated[int, Field(ge=COUNTS["max_attempts"].start, lt=COUNTS["max_attempts"].stop)]
    retry_base: Span
    retry_factor: Annotated[float, Field(ge=RETRY_FACTOR[0], le=RETRY_FACTOR[1])]
    retry_cap: Span
    park_on: Annotated[list[Annotated[int, Field(ge=100, le=999)]], Field(max_length=900)]
    suspend_after: Span
    on_park: Literal["continue", "hold"]
    breaker_failures: Annotated[int, Field(ge=COUNTS["breaker_failures"].start, lt=COUNTS["breaker_failures"].stop)]
    breaker_reset: Span


class DestinationEdit(DestinationOptions):
    url: NotRequired[Annotated[str, Field(max_length=8_192)]]


class DestinationNew(DestinationOptions):
    name: Required[Name]
    url: Required[Annotated[str, Field(max_length=8_192)]]
    secret: NotRequired[Secret]


class Rotation(Sent):
    secret: Secret | None = Field(None, description="One is made where none is given.")
    overlap: Span | None = Field(None, description="For how long old secrets stay valid: 24h if not given.")


class SubscriptionNew(Sent):
    types: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=100)
    order: Ordering = "partner"
    max_waiting: int = 1_000_000


class Selection(Sent):
    """Events by name, or a selection of deliveries; at least one of it."""

    events: list[Annotated[str, Field(max_length=100)]] = Field([], max_length=MAX_NAMED)
    partner: str | None = None
    destination: str | None = None
    reason: ParkReason | None = None
    since: Time | None = None
    until: Time | None = None
    rate: Rate | None = None
    dry_run: bool = False


class ReplayNew(Selection):
    state: Literal["parked", "delivered", "discarded"] | None = None


class DiscardNew(Selection):
    why: Annotated[str, Field(min_length=1, max_length=1000)]


class BackfillNew(Sent):
    partner: str
    destination: str
    since: Time | None = None
    until: Time | None = None
    rate: Rate | None = None
    dry_run: bool = False


class EventNew(Sent):
    """An event as the partner would send it; a sample without a body."""

    type: Annotated[str, Field(max_length=200)] | None = None
    id: Annotated[str, Field(max_length=200)] | None = None
    body: Annotated[str, Field(max_length=200_000)] | None = None


class Accepted(Answered):
    event: str
    sequence: int
    duplicate: bool


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
    state: Literal["running", "paused", "cancelled", "interrupted", "finished"]
    selection: dict[str, Any]
    why: str | None
    rate: str | None
    expected: int = Field(description="How many it would select when it began.")
    selected: int
    done: int
    skipped: int
    failed: int
    created_at: Instant
    finished_at: Instant | None


class Counted(Answered):
    """What a dry run found: nothing was changed."""

    id: None
    dry_run: Literal[True]
    selected: int
    done: int
    skipped: int
    failed: int
    skipped_because: dict[str, int]


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


class History(Answered):
    """Values per step, oldest first, all series of one length. Null: no data."""

    since: Instant
    until: Instant
    step: str
    series: dict[str, list[float | None]]


class Across(History):
    figure: str


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
    expires: Span | None = None
