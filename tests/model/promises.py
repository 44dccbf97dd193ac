"""What must never happen, judged on one step or on one world; and what must always stay possible."""

from __future__ import annotations

from typing import Final

from tests.model.world import Request, Row, World

TWO_IN_FLIGHT: Final = "two requests are in flight in the lane"
OUT_OF_ORDER: Final = "a delivery is begun before the one before it is settled"
STALE_OWNER: Final = "somebody who is not the owner changed something"
RECORDED_TWICE: Final = "an attempt is recorded twice"
DUPLICATE: Final = "more duplicates than faults"
SKIPPED: Final = "the cursor passed an event that has no delivery"
STUCK: Final = "an event can no longer be delivered or parked"
NEVER: Final = frozenset({TWO_IN_FLIGHT, OUT_OF_ORDER, STALE_OWNER, RECORDED_TWICE, DUPLICATE, SKIPPED})


def overlap(before: Request, after: Request) -> bool:
    """Two open exchanges of which the later may not have begun.

    What is documented is excused: a worker that stood still between its check and the write, or with an exchange open
    beyond its timeout. It could neither take the request back nor end it.
    """
    return not (after.late and after.frozen) and not (before.late and before.frozen) and not before.over


def is_settled(row: Row) -> bool:
    """Nothing automatic is left to do."""
    return row.state in ("delivered", "parked")


def skips(world: World) -> bool:
    """An event at or below the cursor has no delivery, and nobody is about to make it."""
    return len(world.rows) < world.cursor and not any(t.stage == "half" for t in world.transactions)


def is_good(world: World) -> bool:
    """All that was accepted is delivered or parked."""
    return len(world.rows) == world.log and all(map(is_settled, world.rows))
