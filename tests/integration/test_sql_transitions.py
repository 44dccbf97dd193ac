"""Every statement that moves deliveries makes only moves that `domain.lifecycle` allows (promise P7).

A trigger writes down each row of `deliveries` as it was and as it became. Each statement is set upon deliveries in
every state; whatever it did to them must be what some fact does to a delivery like that, attempts, budget and all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from domain import lifecycle
from domain.events import Place
from domain.lifecycle import Delivery, Fact, IllegalTransition, ParkReason, Policy, State, transition
from storage import backfills, destinations, parking, replays
from storage.backfills import Span
from storage.lanes import Claim, Dispatched
from tests.by_hand import ACTOR, Hand
from tests.owner import Owner, a_claim, an_outcome

Move = tuple[str | None, str, str | None]  # from, to, the reason if parked

WATCH = """
CREATE TABLE moves (id bigint GENERATED ALWAYS AS IDENTITY, before jsonb, after jsonb);
CREATE FUNCTION write_down() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO moves (before, after) VALUES (to_jsonb(OLD), to_jsonb(NEW));
    RETURN NULL;
END $$;
CREATE TRIGGER written_down AFTER INSERT OR UPDATE ON deliveries FOR EACH ROW EXECUTE FUNCTION write_down();
"""
WAIT = timedelta(seconds=1)
POLICIES = [
    Policy(most, hold, closing)
    for most, hold, closing in itertools.product(
        (1, 1000), (False, True), (None, ParkReason.DESTINATION_SUSPENDED, ParkReason.DESTINATION_REMOVED)
    )
]
OF_ATTEMPTS: list[Fact] = [
    lifecycle.Acknowledged(),
    lifecycle.Failed(WAIT),
    lifecycle.Rejected(),
    lifecycle.Gone(),
    lifecycle.Unsendable(),
    lifecycle.Interrupted(),
    lifecycle.Lost(),
    lifecycle.Crashed(),
    lifecycle.Withdrawn(),
]


def facts(after: Delivery) -> list[Fact]:
    """Every fact that might have led there."""
    of_people: list[Fact] = [lifecycle.Suspended(), lifecycle.Removed(), lifecycle.LaneFull(), lifecycle.Discarded()]
    begun: list[Fact] = [lifecycle.Begun(after.token)] if after.token is not None else []
    replayed: list[Fact] = [lifecycle.Replayed(after.replay_id)] if after.replay_id is not None else []
    return [*OF_ATTEMPTS, *of_people, *begun, *replayed]


def delivery(row: dict[str, Any]) -> Delivery:
    """The delivery that a row is; of its wait only whether there is one, and only where it counts."""
    waits = row["state"] == "queued" and row["next_attempt_at"] is not None
    return Delivery(
        State(row["state"]),
        row["attempts"],
        row["failures"],
        WAIT if waits else None,
        row["token"] and UUID(row["token"]),
        row["park_reason"] and ParkReason(row["park_reason"]),
        row["holding"],
        row["replay_id"],
        row["crashes"],
    )


def followers(before: Delivery, after: Delivery) -> Iterator[Delivery]:
    """What may become of a delivery."""
    for fact, policy in itertools.product(facts(after), POLICIES):
        try:
            yield transition(before, fact, policy)
        except IllegalTransition:
            continue


@dataclass(slots=True)
class Board:
    """A destination with a delivery in each state, and every move since."""

    hand: Hand
    owner: Owner
    partner: int
    destination: int
    events: list[Dispatched]
    claims: list[Claim]

    def made(self) -> set[Move]:
        """The moves since last asked, each of them one that the lifecycle allows."""
        rows = self.hand.rows("DELETE FROM moves RETURNING before, after")
        for before, after in rows:
            became = delivery(after)
            if before is None:
                possible = [Delivery(), *followers(Delivery(), became)]
            else:
                possible = list(followers(delivery(before), became))
            assert became in possible, (before, after)
        return {(before and before["state"], after["state"], after["park_reason"]) for before, after in rows}

    async def arrive(self, n: int = 1) -> list[Dispatched]:
        """Events are accepted and dispatched."""
        self.hand.post(n=n)
        return await self.owner.dispatch(self.partner)

    def suspect(self) -> None:
        """Each was in flight at two crashes."""
        self.hand.sql("UPDATE deliveries SET attempts = attempts + 2, crashes = 2")
        self.hand.sql("DELETE FROM moves")

    async def end(self, claim: Claim, fact: Fact, policy: Policy) -> None:
        """The attempt ended so: what the worker would save."""
        row = self.hand.rows("SELECT to_jsonb(d) FROM deliveries d WHERE seq = :seq", seq=claim.sequence)[0][0]
        begun = delivery(row)._replace(state=State.DELIVERING, park_reason=None, holding=False, token=claim.token)
        outcome = "withdrawn" if isinstance(fact, lifecycle.Withdrawn) else "http_error"
        number = row["attempts"]
        await self.owner.end(an_outcome(claim, transition(begun, fact, policy), outcome=outcome, number=number))

    def ask(self, kind: replays.Kind, state: str) -> None:
        """A person's command is about to move all of them: each was in that state when it was selected."""
        found = [
            replays.Candidate((e.partner_id, self.destination, e.sequence), e.received_at, None) for e in self.events
        ]
        with self.hand.store.begin() as connection:
            replays._move(connection, kind, 1, state, found)


@pytest.fixture
async def board(hand: Hand, owner: Owner) -> Board:
    """Five events: queued, delivering, delivered, parked, discarded."""
    partner, destination = hand.partner().id, hand.destination()
    hand.subscribe(ordering="none")
    hand.sql(WATCH)
    made = Board(hand, owner, partner, destination, [], [])
    made.events = await made.arrive(5)
    made.claims = [a_claim(event, destination) for event in made.events[1:]]
    await owner.claim(*made.claims)
    ends: list[Fact] = [lifecycle.Acknowledged(), lifecycle.Rejected(), lifecycle.Rejected()]
    for claim, fact in zip(made.claims[1:], ends, strict=True):
        await made.end(claim, fact, Policy(1000))
    places = (Place(partner, made.events[4].sequence, made.events[4].received_at),)
    replays.run(hand.store, "discard", replays.Selection(places), actor=ACTOR, why="a test")
    assert hand.states() == [state.value for state in State]
    assert made.made() == {
        (None, "queued", None),
        ("queued", "delivering", None),
        ("delivering", "delivered", None),
        ("delivering", "parked", "rejected"),
        ("parked", "discarded", None),
    }
    return made


async def test_a_claim_begins_what_is_queued_and_nothing_else(board: Board) -> None:
    await board.owner.claim(*[a_claim(event, board.destination) for event in board.events])

    assert board.made() == {("queued", "delivering", None)}


async def test_an_outcome_ends_the_attempt_it_is_of_once(board: Board) -> None:
    seen: set[Move] = set()
    for fact, policy in itertools.product(OF_ATTEMPTS, POLICIES):
        (event,) = await board.arrive()
        claim = a_claim(event, board.destination)
        await board.owner.claim(claim)
        board.made()
        if isinstance(fact, lifecycle.Crashed):
            board.suspect()

        for attempt in (claim, claim, *board.claims[1:]):
            await board.end(attempt, fact, policy)

        (move,) = board.made()
        seen.add(move)
    assert seen == {
        ("delivering", "delivered", None),
        ("delivering", "queued", None),
        *{("delivering", "parked", reason.value) for reason in ParkReason if reason is not ParkReason.LANE_FULL},
    }


async def test_dispatch_queues_what_can_wait_and_parks_what_cannot(board: Board) -> None:
    await board.arrive()
    assert board.made() == {(None, "queued", None)}

    board.hand.sql("UPDATE subscriptions SET max_waiting = 3")
    board.hand.sql("UPDATE gates SET breaker = 'open', opened_at = now()")
    await board.arrive()
    assert board.made() == {(None, "parked", "lane_full")}

    board.hand.sql("UPDATE destinations SET state = 'suspended'")
    await board.arrive()
    assert board.made() == {(None, "parked", "destination_suspended")}

    board.hand.post()
    destinations.remove(board.hand.store, "warehouse", even_if_waiting=True, actor=ACTOR)
    board.made()
    await board.owner.dispatch(board.partner)
    assert board.made() == {(None, "parked", "destination_removed")}


@pytest.mark.parametrize("reason", [ParkReason.DESTINATION_SUSPENDED, ParkReason.DESTINATION_REMOVED])
async def test_what_is_queued_is_parked_where_its_destination_closes(board: Board, reason: ParkReason) -> None:
    assert parking.park_waiting(board.hand.store, board.destination, reason) == 1

    assert board.made() == {("queued", "parked", reason.value)}


@pytest.mark.parametrize("state", replays.STATES)
async def test_a_replay_queues_what_is_in_the_state_that_was_asked_for(board: Board, state: str) -> None:
    board.ask("replay", state)

    assert board.made() == {(state, "queued", None)}


async def test_a_discard_ends_what_is_parked_and_nothing_else(board: Board) -> None:
    board.ask("discard", "parked")

    assert board.made() == {("parked", "discarded", None)}


async def test_a_backfill_makes_new_deliveries_and_touches_none(board: Board) -> None:
    board.hand.destination("ledger")
    board.hand.subscribe("shop", "ledger")
    for destination in ("ledger", "warehouse"):
        backfills.run(board.hand.store, "shop", destination, Span(), actor=ACTOR)

    assert board.made() == {(None, "queued", None)}
    assert board.hand.states("ledger") == ["queued"] * 5
