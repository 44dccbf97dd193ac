"""The life of a delivery: the duty to bring one event to one destination.

                              Failed (budget left), Interrupted, Lost, Withdrawn
                            ┌────────────────────────────────────────────────┐
                            ▼                                                │
    received ──dispatch─▶ queued ───────────────Begun──────────────────▶ delivering (attempt n)
    (an event,            ▲ │  │                                            │    │
    not yet handed        │ │  └─Suspended, Removed, LaneFull, Unsendable─┐ │    └──Acknowledged──▶ delivered
    to its lanes)         │ │                                             ▼ ▼                         │
                          │ │                  Failed (budget spent), Rejected, Gone,                 │
                          │ │                  Unsendable, Crashed ──▶ parked ──Discarded──▶ discarded│
                          │ │                                            │                       │    │
                          │ └────────────────────────────────────────────│───────────────────────│────│
                          └──────────────────Replayed (by a person)──────┴───────────────────────┴────┘

Everything that decides a delivery's next state is `transition`: frozen in, frozen out. Inputs are facts in the past
tense; an *event* is a partner's webhook. The shell (workers, storage) loads, asks here, saves by compare-and-set on
the state and the attempt's token, and records the attempt. Bulk operations of people apply the same table set by set
in SQL, and the schema repeats as CHECKs what it can. No clock here: a wait is a span from the moment it is saved.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID


class State(StrEnum):
    """Who brings a delivery in, who takes it out, how long it may stay."""

    QUEUED = "queued"
    """In by dispatch, by a failed or lost attempt, by a replay. Out by its lane when it is its turn, due and admitted;
    by suspension, removal or a full lane. Stays until then: behind its elders, its backoff, an open breaker."""

    DELIVERING = "delivering"
    """In by the lane's claim, committed before the request goes out. Out by the attempt's outcome, or by the new owner
    once the attempt's whole budget has passed. Stays at most start grace + timeout + one lease."""

    DELIVERED = "delivered"
    """In by a status of 200 to 299. Out only by an explicit replay. Stays for the retention of its partition."""

    PARKED = "parked"
    """In with a reason, when no automatic attempt is left. Out by a person: replay or discard. Stays until then."""

    DISCARDED = "discarded"
    """In by a person who said why. Out only by an explicit replay. Stays for the retention of its partition."""


class ParkReason(StrEnum):
    """Why no automatic attempt is left."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    LANE_FULL = "lane_full"
    DESTINATION_SUSPENDED = "destination_suspended"
    DESTINATION_REMOVED = "destination_removed"
    REJECTED = "rejected"
    WORKER_CRASHED = "worker_crashed"
    UNDELIVERABLE = "undeliverable"


SUSPECT_AFTER = 2  # crashes in a row: one happens to whatever is in flight, when a machine goes down for one


class IllegalTransition(Exception):
    """The fact cannot be of a delivery in this state: a stale owner, or a defect. Nothing was changed."""


class Delivery(NamedTuple):
    """What decides a delivery's future. Its place in the log and its body are the shell's to keep."""

    state: State = State.QUEUED
    attempts: int = 0  # numbers given out, over the whole life: the next attempt is number attempts + 1
    failures: int = 0  # of the retry budget, since the last replay
    retry_in: timedelta | None = None  # wait before the next attempt, from the moment this is saved; None: at once
    token: UUID | None = None  # of the attempt in flight, else of the last one
    park_reason: ParkReason | None = None
    holding: bool = False  # parked, and its lane waits for a person (--on-park hold)
    replay_id: int | None = None  # the replay that asked for the next attempts
    crashes: int = 0  # attempts whose worker vanished, since one with an outcome

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what its workers died of: its next attempt is made alone, in a process of its own."""
        return self.crashes >= SUSPECT_AFTER


@dataclass(frozen=True, slots=True)
class Policy:
    """What a destination's settings say about failures."""

    max_attempts: int
    hold_on_park: bool = False
    closing: ParkReason | None = None  # the destination is suspended or removed: what fails now is parked so


# --- facts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begun:
    """The lane claimed it: one request with this token will go out."""

    token: UUID


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The claimed attempt provably never reached the wire: its number is given back."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The destination answered 200 to 299."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Any other answer, or none. `retry_in` is the wait if budget is left."""

    retry_in: timedelta


@dataclass(frozen=True, slots=True)
class Rejected:
    """A status the destination is set to park on at once."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The destination answered 410: it wants nothing more."""


@dataclass(frozen=True, slots=True)
class Unsendable:
    """No request can be made of it at all: it would fail the same way for ever."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """This worker stopped during the attempt; what the destination did is unknown."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker of the attempt vanished; the new owner waited out the attempt's whole budget. Whether that worker died
    of it, was killed or only lost its lease cannot be told."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """Alone in a process of its own, it killed that process."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """Its destination was suspended."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Its destination was removed."""


@dataclass(frozen=True, slots=True)
class LaneFull:
    """The lane of a destination that is down is at its bound."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A person asked for it again: a fresh budget, the attempts count on."""

    replay_id: int


@dataclass(frozen=True, slots=True)
class Discarded:
    """A person ended it, and said why."""


Fact = (
    Begun
    | Withdrawn
    | Acknowledged
    | Failed
    | Rejected
    | Gone
    | Unsendable
    | Interrupted
    | Lost
    | Crashed
    | Suspended
    | Removed
    | LaneFull
    | Replayed
    | Discarded
)


def transition(delivery: Delivery, fact: Fact, policy: Policy) -> Delivery:
    """The delivery after the fact. Raises: IllegalTransition."""
    match delivery.state, fact:
        case State.QUEUED, Begun(token):
            return delivery._replace(state=State.DELIVERING, attempts=delivery.attempts + 1, token=token, retry_in=None)
        case State.QUEUED, Suspended():
            return _parked(delivery, ParkReason.DESTINATION_SUSPENDED, policy)
        case State.QUEUED, Removed():
            return _parked(delivery, ParkReason.DESTINATION_REMOVED, policy)
        case State.QUEUED, LaneFull():
            return _parked(delivery, ParkReason.LANE_FULL, policy)
        case State.QUEUED | State.DELIVERING, Unsendable():
            return _parked(delivery._replace(crashes=0), ParkReason.UNDELIVERABLE, policy)
        case State.DELIVERING, Acknowledged():
            return delivery._replace(state=State.DELIVERED, crashes=0)
        case State.DELIVERING, Failed(retry_in):
            return _failed(_counted(delivery), retry_in, policy)
        case State.DELIVERING, Rejected():
            return _parked(_counted(delivery), ParkReason.REJECTED, policy)
        case State.DELIVERING, Gone():
            return _parked(_counted(delivery), ParkReason.DESTINATION_SUSPENDED, policy)
        case State.DELIVERING, Crashed() if delivery.is_suspect:
            return _parked(delivery, ParkReason.WORKER_CRASHED, policy)  # still suspect, when it is replayed
        case State.DELIVERING, Withdrawn():
            return _requeued(delivery._replace(attempts=delivery.attempts - 1), policy)
        case State.DELIVERING, Interrupted():
            return _requeued(delivery, policy)
        case State.DELIVERING, Lost():
            return _requeued(delivery._replace(crashes=delivery.crashes + 1), policy)
        case State.PARKED | State.DISCARDED | State.DELIVERED, Replayed(replay_id):
            return delivery._replace(
                state=State.QUEUED,
                failures=0,
                retry_in=None,
                park_reason=None,
                holding=False,
                replay_id=replay_id,
            )
        case State.PARKED, Discarded():
            return delivery._replace(state=State.DISCARDED, park_reason=None, holding=False)
    raise IllegalTransition(f"{type(fact).__name__} cannot be of a delivery that is {delivery.state}")


def _counted(delivery: Delivery) -> Delivery:
    """One failure more; whatever it is, it does not kill its worker."""
    return delivery._replace(failures=delivery.failures + 1, crashes=0)


def _failed(delivery: Delivery, retry_in: timedelta, policy: Policy) -> Delivery:
    """Queued for a retry while budget is left, else parked."""
    if policy.closing is not None:
        return _parked(delivery, policy.closing, policy)
    if delivery.failures >= policy.max_attempts:
        return _parked(delivery, ParkReason.ATTEMPTS_EXHAUSTED, policy)
    return delivery._replace(state=State.QUEUED, retry_in=retry_in)


def _requeued(delivery: Delivery, policy: Policy) -> Delivery:
    """Queued again at once, the budget untouched; parked where its destination has closed meanwhile."""
    if policy.closing is not None:
        return _parked(delivery, policy.closing, policy)
    return delivery._replace(state=State.QUEUED, retry_in=None)


def _parked(delivery: Delivery, reason: ParkReason, policy: Policy) -> Delivery:
    """Parked; it holds its lane only where the policy says so and the destination still takes events."""
    holding = policy.hold_on_park and reason not in (
        ParkReason.DESTINATION_SUSPENDED,
        ParkReason.DESTINATION_REMOVED,
        ParkReason.LANE_FULL,
    )
    return delivery._replace(state=State.PARKED, park_reason=reason, holding=holding, retry_in=None)


EVENT_STATES = ("received", "queued", "delivering", "parked", "discarded", "delivered")


def event_state(dispatched: bool, deliveries: list[State]) -> str:
    """The least finished state of an event's deliveries; `delivered` where nobody was subscribed to it."""
    if not dispatched:
        return "received"
    return min((state.value for state in deliveries), key=EVENT_STATES.index, default="delivered")
