"""What the database knows and no process could count: gates of destinations, and how often deliveries were parked."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

GATES = sa.text("""
SELECT d.name, d.state, g.breaker, g.in_flight
FROM destinations d JOIN gates g ON g.destination_id = d.id WHERE d.removed_at IS NULL ORDER BY d.name
""")
PARKINGS = sa.text("""
SELECT d.name, k.reason, sum(k.n)::bigint FROM parkings k JOIN destinations d ON d.id = k.destination_id
GROUP BY d.name, k.reason ORDER BY d.name, k.reason
""")

PARKED = sa.text("""
SELECT reason, count(*) AS n FROM parked WHERE destination_id = ANY (:destinations)
GROUP BY reason ORDER BY n DESC, reason
""")


@dataclass(frozen=True, slots=True)
class Gate:
    """A destination as it is now, in the whole system."""

    destination: str
    state: str
    breaker: str
    in_flight: int


@dataclass(frozen=True, slots=True)
class Parkings:
    """How often deliveries to destinations of this name were parked so; it only grows, removed ones count on."""

    destination: str
    reason: str
    total: int


def gates(connection: sa.Connection) -> list[Gate]:
    """Every destination that is there, by name."""
    return [Gate(*row) for row in connection.execute(GATES)]


def parked_by_reason(connection: sa.Connection, destination_ids: Sequence[int]) -> dict[str, int]:
    """How much is parked for destinations, by reason; the most frequent first."""
    return {row.reason: row.n for row in connection.execute(PARKED, {"destinations": list(destination_ids)})}


def parkings(connection: sa.Connection) -> list[Parkings]:
    """Every destination and reason for which something was ever parked."""
    return [Parkings(*row) for row in connection.execute(PARKINGS)]
