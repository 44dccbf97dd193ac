"""What must never happen, judged on one step or on one world; and what must always stay possible."""

from __future__ import annotations

from typing import Final

from tests.model.world import Request, Row, World

TWO_IN_FLIGHT: Final = "two requests are in flight in the lane"
FROZEN_BEFORE_WRITE: Final = "two in flight: a worker stood still between its last look at the clocks and the write"
FROZEN_IN_EXCHANGE: Final = "two in flight: a worker stood still and did not end its exchange at the timeout"
OUT_OF_ORDER: Final = "a delivery is begun before the one before it is settled"
STALE_OWNER: Final = "somebody who is not the owner changed something"
RECORDED_TWICE: Final = "an attempt is recorded twice"
DUPLICATE: Final = "more duplicates than faults"
SKIPPED: Final = "the cursor passed an event that has no delivery"
STUCK: Final = "an event can no longer be delivered or parked"
NEVER: Final = frozenset({TWO_IN_FLIGHT, OUT_OF_ORDER, STALE_OWNER, RECORDED_TWICE, DUPLICATE, SKIPPED})


def overlap(before: Request, after: Request) -> str:
    """What it means that the later was written while the earlier was open. The frozen could neither take back nor end
    theirs: that is documented, and not among what must never happen."""
    if (after.late and after.frozen) or (before.late and before.frozen):
        return FROZEN_BEFORE_WRITE
    return FROZEN_IN_EXCHANGE if before.over else TWO_IN_FLIGHT


def is_settled(row: Row) -> bool:
    """Nothing automatic is left to do."""
    return row.state in ("delivered", "parked")


def skips(world: World) -> bool:
    """An event at or below the cursor has no delivery, and nobody is about to make it."""
    return len(world.rows) < world.cursor and not any(t.stage == "half" for t in world.transactions)


def is_good(world: World) -> bool:
    """All that was accepted is delivered or parked."""
    return len(world.rows) == world.log and all(map(is_settled, world.rows))
