"""Who receives what: versions of subscriptions, each for the sequences `[from_seq, until_seq)`.

Both ends are set under the lock of the partner's head row. Ingest takes the same lock to number events, so an event is
for exactly those who were subscribed when it was accepted (promise P16). Locks come in the order of `storage.partners`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa

from domain.globs import normal_globs, pattern_of
from storage import audit, destinations, partners
from storage.errors import Conflict, Invalid, NotFound

Ordering = Literal["partner", "key", "none"]
MAX_WAITING = 1_000_000
MAX_WAITING_LIMIT = 1_000_000_000

LOCK_HEAD = sa.text("SELECT last_seq FROM partner_heads WHERE partner_id = :partner FOR NO KEY UPDATE")
LOCK_LANE = sa.text("SELECT FROM lanes WHERE partner_id = :partner AND destination_id = :destination FOR NO KEY UPDATE")
HOLD_DESTINATION = sa.text("SELECT removed_at IS NULL FROM destinations WHERE id = :destination FOR SHARE")
CURRENT = sa.text("""
SELECT id, ordering, types, max_waiting FROM subscriptions
WHERE partner_id = :partner AND destination_id = :destination AND until_seq IS NULL
""")
END = sa.text("UPDATE subscriptions SET until_seq = :until WHERE id = :id")
WIDEN = sa.text("UPDATE subscriptions SET max_waiting = :max_waiting WHERE id = :id")
BEGIN = sa.text("""
INSERT INTO subscriptions (partner_id, destination_id, ordering, types, pattern, max_waiting, from_seq)
VALUES (:partner, :destination, :ordering, :types, :pattern, :max_waiting, :from_seq)
""")
FEED_LANE = sa.text("""
INSERT INTO lanes (partner_id, destination_id) VALUES (:partner, :destination)
ON CONFLICT (partner_id, destination_id) DO UPDATE SET active = true
""")
REST_LANE = sa.text(
    "UPDATE lanes SET active = false WHERE partner_id = :partner AND destination_id = :destination RETURNING waiting"
)
LISTED = sa.text("""
SELECT p.name, d.name, s.ordering, s.types, s.max_waiting, s.from_seq, s.created_at
FROM subscriptions s JOIN partners p ON p.id = s.partner_id JOIN destinations d ON d.id = s.destination_id
WHERE s.until_seq IS NULL
  AND (CAST(:partner AS int) IS NULL OR s.partner_id = :partner)
  AND (CAST(:destination AS int) IS NULL OR s.destination_id = :destination)
ORDER BY p.name, d.name
""")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A current subscription. `types` is None where every event is taken."""

    partner: str
    destination: str
    ordering: str
    types: list[str] | None
    max_waiting: int
    from_seq: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What came of `subscribe`: from this sequence on, and whether it was there before."""

    from_seq: int
    outcome: Literal["new", "changed", "unchanged"]


def listed(
    connection: sa.Connection, *, partner_id: int | None = None, destination_id: int | None = None
) -> list[Subscription]:
    """The current subscriptions, of one partner or one destination where given, by name."""
    rows = connection.execute(LISTED, {"partner": partner_id, "destination": destination_id})
    return [Subscription(*row) for row in rows]


def subscribe(
    connection: sa.Connection,
    partner: str,
    destination: str,
    *,
    types: Sequence[str] = (),
    ordering: Ordering = "partner",
    max_waiting: int = MAX_WAITING,
    actor: str,
) -> Subscribed:
    """The destination receives what the partner sends from now on. The same settings again change nothing.

    Raises: NotFound, Invalid.
    """
    if not 1 <= max_waiting <= MAX_WAITING_LIMIT:
        raise Invalid(f"max waiting {max_waiting}: 1 to {MAX_WAITING_LIMIT} are allowed")
    try:
        globs = normal_globs(types)
    except ValueError as problem:
        raise Invalid(str(problem)) from problem
    sender, target = partners.find(connection, partner), destinations.find(connection, destination).id
    if ordering == "key" and sender.order_key == "none":
        raise Conflict(
            f"partner {partner} has no order key: give it one with `partner edit {partner} --order-key SOURCE`"
        )
    source = sender.id
    pair = {"partner": source, "destination": target}
    last_seq = connection.execute(LOCK_HEAD, pair).scalar_one()
    connection.execute(LOCK_LANE, pair)
    if not connection.execute(HOLD_DESTINATION, pair).scalar_one():
        raise NotFound(f"no destination {destination!r}")
    partners.find(connection, partner)  # it may have been removed while its head was locked
    settings = {"ordering": ordering, "types": list(globs) if globs else None, "max_waiting": max_waiting}
    current = connection.execute(CURRENT, pair).one_or_none()
    if current is not None and (current.ordering, current.types) == (settings["ordering"], settings["types"]):
        if current.max_waiting == max_waiting:
            return Subscribed(last_seq + 1, "unchanged")
        connection.execute(WIDEN, {"id": current.id, "max_waiting": max_waiting})
    else:
        if current is not None:
            connection.execute(END, {"id": current.id, "until": last_seq + 1})
        pattern = pattern_of(globs) if globs else None
        connection.execute(BEGIN, pair | settings | {"pattern": pattern, "from_seq": last_seq + 1})
    connection.execute(FEED_LANE, pair)
    unsaid = {"types": None} | (
        {"max_waiting": MAX_WAITING} if current is None else {}
    )  # the audit has what was chosen
    told = {name: value for name, value in settings.items() if (name, value) not in unsaid.items()}
    audit.record(connection, actor, "subscribe", f"{partner} > {destination}", told | {"from": last_seq + 1})
    return Subscribed(last_seq + 1, "new" if current is None else "changed")


def unsubscribe(connection: sa.Connection, partner: str, destination: str, *, actor: str) -> int:
    """Nothing accepted from now on is for this destination; what was accepted before still is.

    How many deliveries still wait in the lane. Raises: NotFound, Conflict where it is not subscribed.
    """
    pair = {
        "partner": partners.find(connection, partner).id,
        "destination": destinations.find(connection, destination).id,
    }
    last_seq = connection.execute(LOCK_HEAD, pair).scalar_one()
    connection.execute(LOCK_LANE, pair)
    current = connection.execute(CURRENT, pair).one_or_none()
    if current is None:
        raise Conflict(f"{destination} is not subscribed to {partner}")
    connection.execute(END, {"id": current.id, "until": last_seq + 1})
    waiting = connection.execute(REST_LANE, pair).scalar_one_or_none() or 0
    audit.record(connection, actor, "unsubscribe", f"{partner} > {destination}", {"until": last_seq + 1})
    return waiting
