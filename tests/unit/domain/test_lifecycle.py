"""The life of a delivery: every state × fact, then stories, then walks nobody planned."""

from datetime import timedelta
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.lifecycle import (
    EVENT_STATES,
    Acknowledged,
    Begun,
    Crashed,
    Delivery,
    Discarded,
    Fact,
    Failed,
    Gone,
    IllegalTransition,
    Interrupted,
    LaneFull,
    Lost,
    ParkReason,
    Policy,
    Rejected,
    Removed,
    Replayed,
    State,
    Suspended,
    Unsendable,
    Withdrawn,
    event_state,
    transition,
)

TOKEN, NEXT_TOKEN = UUID(int=7), UUID(int=8)
WAIT = timedelta(seconds=5)
POLICY = Policy(max_attempts=3)
HOLDING = Policy(max_attempts=3, hold_on_park=True)
CLOSINGS = (ParkReason.DESTINATION_SUSPENDED, ParkReason.DESTINATION_REMOVED)

QUEUED = Delivery(attempts=1, failures=1, retry_in=WAIT, token=TOKEN)
DELIVERING = Delivery(State.DELIVERING, attempts=4, failures=1, token=TOKEN, crashes=2)
DELIVERED = Delivery(State.DELIVERED, attempts=2, failures=1, token=TOKEN)
PARKED = Delivery(State.PARKED, 3, 3, token=TOKEN, park_reason=ParkReason.ATTEMPTS_EXHAUSTED, holding=True)
DISCARDED = Delivery(State.DISCARDED, attempts=3, failures=3, token=TOKEN, replay_id=4)
DELIVERIES = (QUEUED, DELIVERING, DELIVERED, PARKED, DISCARDED)

FACTS: tuple[Fact, ...] = (
    Begun(NEXT_TOKEN),
    Withdrawn(),
    Acknowledged(),
    Failed(WAIT),
    Rejected(),
    Gone(),
    Unsendable(),
    Interrupted(),
    Lost(),
    Crashed(),
    Suspended(),
    Removed(),
    LaneFull(),
    Replayed(9),
    Discarded(),
)


def parked(delivery: Delivery, reason: ParkReason) -> Delivery:
    return delivery._replace(state=State.PARKED, park_reason=reason, retry_in=None)


REPLAYED = {"state": State.QUEUED, "failures": 0, "park_reason": None, "holding": False, "replay_id": 9}
LEGAL: dict[tuple[State, type], Delivery] = {
    (State.QUEUED, Begun): Delivery(State.DELIVERING, attempts=2, failures=1, token=NEXT_TOKEN),
    (State.QUEUED, Suspended): parked(QUEUED, ParkReason.DESTINATION_SUSPENDED),
    (State.QUEUED, Removed): parked(QUEUED, ParkReason.DESTINATION_REMOVED),
    (State.QUEUED, LaneFull): parked(QUEUED, ParkReason.LANE_FULL),
    (State.QUEUED, Unsendable): parked(QUEUED, ParkReason.UNDELIVERABLE),
    (State.DELIVERING, Acknowledged): DELIVERING._replace(state=State.DELIVERED, crashes=0),
    (State.DELIVERING, Failed): DELIVERING._replace(state=State.QUEUED, failures=2, crashes=0, retry_in=WAIT),
    (State.DELIVERING, Rejected): parked(DELIVERING._replace(failures=2, crashes=0), ParkReason.REJECTED),
    (State.DELIVERING, Gone): parked(DELIVERING._replace(failures=2, crashes=0), ParkReason.DESTINATION_SUSPENDED),
    (State.DELIVERING, Unsendable): parked(DELIVERING._replace(crashes=0), ParkReason.UNDELIVERABLE),
    (State.DELIVERING, Crashed): parked(DELIVERING, ParkReason.WORKER_CRASHED),
    (State.DELIVERING, Withdrawn): DELIVERING._replace(state=State.QUEUED, attempts=3),
    (State.DELIVERING, Interrupted): DELIVERING._replace(state=State.QUEUED),
    (State.DELIVERING, Lost): DELIVERING._replace(state=State.QUEUED, crashes=3),
    (State.DELIVERED, Replayed): DELIVERED._replace(**REPLAYED),  # type: ignore[arg-type]
    (State.PARKED, Replayed): PARKED._replace(**REPLAYED),  # type: ignore[arg-type]
    (State.PARKED, Discarded): PARKED._replace(state=State.DISCARDED, park_reason=None, holding=False),
    (State.DISCARDED, Replayed): DISCARDED._replace(**REPLAYED),  # type: ignore[arg-type]
}


def test_every_state_and_every_fact_is_tried() -> None:
    assert {delivery.state for delivery in DELIVERIES} == set(State)
    assert [type(fact) for fact in FACTS] == list(get_args(Fact))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
@pytest.mark.parametrize("delivery", DELIVERIES, ids=lambda delivery: delivery.state)
def test_a_fact_leads_where_the_table_says_or_nowhere(delivery: Delivery, fact: Fact) -> None:
    legal = LEGAL.get((delivery.state, type(fact)))

    if legal is None:
        with pytest.raises(IllegalTransition, match=f"{type(fact).__name__} .* {delivery.state}"):
            transition(delivery, fact, POLICY)
    else:
        assert transition(delivery, fact, POLICY) == legal


# --- stories ---------------------------------------------------------------------------------------------------------


def told(delivery: Delivery, *facts: Fact, policy: Policy = POLICY) -> Delivery:
    for fact in facts:
        delivery = transition(delivery, fact, policy)
    return delivery


def attempt(n: int, ending: Fact) -> tuple[Fact, Fact]:
    return Begun(UUID(int=n)), ending


def test_a_delivery_is_parked_after_its_last_attempt() -> None:
    retried = told(Delivery(), *attempt(1, Failed(WAIT)), *attempt(2, Failed(WAIT)))
    spent = told(retried, *attempt(3, Failed(WAIT)))

    assert (retried.state, retried.failures, retried.retry_in) == (State.QUEUED, 2, WAIT)
    assert (spent.state, spent.park_reason, spent.attempts) == (State.PARKED, ParkReason.ATTEMPTS_EXHAUSTED, 3)


def test_a_replay_gives_a_fresh_budget_and_goes_on_counting() -> None:
    parked_once = told(Delivery(), *(fact for n in range(3) for fact in attempt(n, Failed(WAIT))))

    again = told(parked_once, Replayed(1), *attempt(4, Failed(WAIT)), *attempt(5, Failed(WAIT)))

    assert (again.state, again.attempts, again.failures, again.replay_id) == (State.QUEUED, 5, 2, 1)


def test_an_attempt_that_never_reached_the_wire_costs_neither_number_nor_budget() -> None:
    delivery = told(Delivery(), *attempt(1, Withdrawn()))

    assert (delivery.state, delivery.attempts, delivery.failures) == (State.QUEUED, 0, 0)
    assert told(delivery, Begun(NEXT_TOKEN)).attempts == 1


@pytest.mark.parametrize("ending", [Interrupted(), Lost()])
def test_an_attempt_of_unknown_end_costs_a_number_but_no_budget(ending: Fact) -> None:
    delivery = told(Delivery(), *attempt(1, ending))

    assert (delivery.state, delivery.attempts, delivery.failures, delivery.retry_in) == (State.QUEUED, 1, 0, None)


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("ending", [Failed(WAIT), Interrupted(), Lost(), Withdrawn()], ids=lambda e: type(e).__name__)
def test_what_ends_without_success_at_a_closed_destination_is_parked(ending: Fact, closing: ParkReason) -> None:
    delivery = told(Delivery(), *attempt(1, ending), policy=Policy(3, hold_on_park=True, closing=closing))

    assert (delivery.state, delivery.park_reason, delivery.holding) == (State.PARKED, closing, False)


@pytest.mark.parametrize("closing", CLOSINGS)
def test_what_a_closing_destination_still_acknowledged_is_delivered(closing: ParkReason) -> None:
    assert told(Delivery(), *attempt(1, Acknowledged()), policy=Policy(3, closing=closing)).state is State.DELIVERED


@pytest.mark.parametrize(
    ("fact", "holds"),
    [(Rejected(), True), (Unsendable(), True), (Crashed(), True), (Gone(), False)],
    ids=lambda each: type(each).__name__,
)
def test_a_parked_delivery_holds_its_lane_only_while_its_destination_takes_events(fact: Fact, holds: bool) -> None:
    assert told(DELIVERING, fact, policy=HOLDING).holding is holds
    assert told(DELIVERING, fact).holding is False


@pytest.mark.parametrize("fact", [Suspended(), Removed(), LaneFull()], ids=lambda each: type(each).__name__)
def test_what_is_parked_while_it_waits_holds_nothing(fact: Fact) -> None:
    assert told(Delivery(), fact, policy=HOLDING).holding is False


def test_discarding_or_replaying_lets_go_of_the_lane() -> None:
    assert told(PARKED, Discarded()).holding is False
    assert told(PARKED, Replayed(9)).holding is False


def test_what_was_discarded_by_mistake_can_be_replayed() -> None:
    assert told(PARKED, Discarded(), Replayed(2), *attempt(1, Acknowledged())).state is State.DELIVERED


def test_an_event_is_as_finished_as_its_least_finished_delivery() -> None:
    assert event_state(False, []) == "received"
    assert event_state(True, []) == "delivered"
    assert event_state(True, [State.DELIVERED, State.PARKED, State.DELIVERING]) == "delivering"
    assert event_state(True, [State.DELIVERED, State.DISCARDED]) == "discarded"
    assert set(EVENT_STATES) == {"received", *(state.value for state in State)}


# --- crashes ---------------------------------------------------------------------------------------------------------

TWICE_LOST = (*attempt(1, Lost()), *attempt(2, Lost()))


def test_what_was_in_flight_at_two_crashes_goes_alone_and_is_parked_if_it_kills_that_process_too() -> None:
    once, twice = told(Delivery(), *TWICE_LOST[:2]), told(Delivery(), *TWICE_LOST)
    assert (once.is_suspect, twice.is_suspect) == (False, True)

    dead = told(twice, *attempt(3, Crashed()))

    assert (dead.state, dead.park_reason, dead.attempts, dead.failures) == (
        State.PARKED,
        ParkReason.WORKER_CRASHED,
        3,
        0,
    )


@pytest.mark.parametrize("ending", [Acknowledged(), Failed(WAIT), Rejected(), Gone(), Unsendable()])
def test_an_attempt_with_an_outcome_ends_every_suspicion(ending: Fact) -> None:
    assert not told(Delivery(), *TWICE_LOST, *attempt(3, ending)).is_suspect
    assert not told(
        Delivery(), *attempt(1, Lost()), *attempt(2, ending), *again(ending), *attempt(3, Lost())
    ).is_suspect


@pytest.mark.parametrize("ending", [Withdrawn(), Interrupted(), Lost()])
def test_an_attempt_without_an_outcome_ends_none(ending: Fact) -> None:
    assert told(Delivery(), *TWICE_LOST, *attempt(3, ending)).is_suspect


def test_what_was_parked_for_killing_its_process_goes_alone_when_it_is_replayed() -> None:
    replayed = told(Delivery(), *TWICE_LOST, *attempt(3, Crashed()), Replayed(1))

    assert replayed.is_suspect
    assert told(replayed, *attempt(4, Crashed())).park_reason is ParkReason.WORKER_CRASHED


def test_nothing_is_parked_for_a_crash_that_was_not_alone() -> None:
    with pytest.raises(IllegalTransition):
        told(Delivery(), *attempt(1, Lost()), *attempt(2, Crashed()))


def again(ending: Fact) -> tuple[Fact, ...]:
    """What queues it once more."""
    return () if isinstance(ending, Failed) else (Replayed(1),)


# --- walks -----------------------------------------------------------------------------------------------------------

FACT = st.one_of(
    st.builds(Begun, st.uuids()),
    st.builds(Failed, st.timedeltas(timedelta(0), timedelta(days=1))),
    st.builds(Replayed, st.integers(1, 9)),
    st.sampled_from([fact for fact in FACTS if not isinstance(fact, Begun | Failed | Replayed)]),
)
POLICIES = st.builds(Policy, st.integers(1, 4), st.booleans(), st.sampled_from([None, *CLOSINGS]))


@given(st.lists(st.tuples(FACT, POLICIES), max_size=60))
def test_whatever_happens_a_delivery_stays_sound(walk: list[tuple[Fact, Policy]]) -> None:
    delivery = Delivery()
    for fact, policy in walk:
        before = delivery
        try:
            delivery = transition(before, fact, policy)
        except IllegalTransition:
            assert (before.state, type(fact)) not in LEGAL or (isinstance(fact, Crashed) and not before.is_suspect)
            continue
        assert (before.state, type(fact)) in LEGAL
        assert delivery.attempts - before.attempts == {Begun: 1, Withdrawn: -1}.get(type(fact), 0)
        assert 0 <= delivery.failures + delivery.crashes <= delivery.attempts
        assert (delivery.state is State.PARKED) == (delivery.park_reason is not None)
        assert delivery.state is State.PARKED or not delivery.holding
        assert delivery.state is State.QUEUED or delivery.retry_in is None
        assert delivery.state is not State.DELIVERING or (delivery.token is not None and delivery.attempts > 0)
        assert not isinstance(fact, Failed) or delivery.state is State.PARKED or delivery.failures < policy.max_attempts
        assert isinstance(fact, Begun) or delivery.token == before.token
        assert isinstance(fact, Replayed) or delivery.replay_id == before.replay_id
