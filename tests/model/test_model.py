"""The design's promises over every history of the model, and what breaks once a mechanism is taken away."""

import pytest

from tests.model import promises
from tests.model.explore import Found, explore
from tests.model.world import Bounds, Mechanisms

ALL = Mechanisms()
CUT = Bounds(kinds="cut", moody=0)
FROZEN = Bounds(kinds="freeze")


def told(found: Found) -> str:
    """The trace, as an assertion shows it."""
    return "\n".join([found.broken, *found.trace])


# --- what holds ------------------------------------------------------------------------------------------------------


def test_one_fault_anywhere_breaks_no_promise_and_leaves_nothing_stuck() -> None:
    found = explore(ALL, Bounds())

    assert found.broken == "", told(found)
    assert found.worlds > 50_000


def test_without_a_fault_a_replay_and_a_hand_over_break_nothing_and_nothing_arrives_twice() -> None:
    found = explore(ALL, Bounds(faults=0, replays=1, hand_overs=1))

    assert found.broken == "", told(found)
    assert found.worlds > 10_000


@pytest.mark.parametrize("bounds", [Bounds(kinds="die", replays=1), Bounds(kinds="die", hand_overs=1)])
def test_an_owner_that_dies_while_people_and_shards_move_breaks_nothing(bounds: Bounds) -> None:
    found = explore(ALL, bounds)

    assert found.broken == "", told(found)


# --- what each mechanism is for --------------------------------------------------------------------------------------

SHARP = {
    "the fence": (Mechanisms(fence=False), FROZEN, promises.STALE_OWNER),
    "the hold on the lease": (Mechanisms(hold=False), FROZEN, promises.STALE_OWNER),
    "the wait for the budget": (Mechanisms(budget_wait=False), FROZEN, promises.TWO_IN_FLIGHT),
    "the grace check": (Mechanisms(grace_check=False), Bounds(kinds="jump"), promises.TWO_IN_FLIGHT),
    "both checks of the clocks": (Mechanisms(grace_check=False, lease_check=False), FROZEN, promises.TWO_IN_FLIGHT),
    "the token check": (Mechanisms(token_check=False), Bounds(kinds="cut"), promises.RECORDED_TWICE),
    "the order check": (Mechanisms(order_check=False), Bounds(faults=0, replays=1), promises.OUT_OF_ORDER),
    "the atomic dispatch": (Mechanisms(atomic_dispatch=False), Bounds(kinds="die"), promises.SKIPPED),
    "waiting to read": (Mechanisms(reads_wait=False), Bounds(faults=0, replays=1), promises.STUCK),
    "comparing what is known with the table": (Mechanisms(compares=False), CUT, promises.STUCK),
}


@pytest.mark.parametrize("mechanism", SHARP)
def test_a_promise_breaks_without(mechanism: str) -> None:
    without, bounds, expected = SHARP[mechanism]
    found = explore(without, bounds)

    assert found.broken == expected


def test_of_the_two_checks_of_the_clocks_the_leases_adds_nothing_to_the_graces() -> None:
    """It spares the destination late attempts; what keeps the promise are grace and budget."""
    found = explore(Mechanisms(lease_check=False), Bounds(kinds="freeze jump", moody=0))

    assert found.broken == "", told(found)


# --- what is documented to remain ------------------------------------------------------------------------------------

REMAINS = (promises.FROZEN_BEFORE_WRITE, promises.FROZEN_IN_EXCHANGE)


@pytest.mark.parametrize("residual", REMAINS)
def test_a_worker_that_stands_still_at_its_request_may_overlap_with_its_successor(residual: str) -> None:
    found = explore(ALL, FROZEN, frozenset({residual}), always_possible=False)

    assert found.broken == residual
    assert any("FREEZES" in step for step in found.trace)


def test_nothing_but_standing_still_makes_requests_overlap() -> None:
    found = explore(ALL, Bounds(kinds="die cut jump", moody=0), frozenset(REMAINS), always_possible=False)

    assert found.broken == "", told(found)
