"""The journal: every move by compare-and-set, together with its record (promises P6 to P9, P17)."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from domain import lifecycle
from domain.lifecycle import Delivery, ParkReason, Policy, State, transition
from storage import lanes
from storage.errors import BadData, StorageUnavailable
from storage.lanes import Claim, Dispatched
from tests.owner import Elsewhere, Owner, a_claim, an_outcome, loses_answer
from tests.pipeline import Pipeline
from tests.watching import ask
from workers.journal import Item, Journal

POLICY = Policy(max_attempts=3)


async def queued(pipeline: Pipeline, owner: Owner, n: int = 2, **options: Any) -> tuple[int, list[Dispatched]]:
    """The destination, and n events in its lane."""
    shop = pipeline.lane(**options)
    await pipeline.post(shop, n)
    return pipeline.sql("SELECT id FROM destinations")[0][0], await owner.dispatch(shop.id)


def after(claim: Claim, fact: lifecycle.Fact, before: Delivery | None = None, policy: Policy = POLICY) -> Delivery:
    begun = transition(before or Delivery(), lifecycle.Begun(claim.token), policy)
    return transition(begun, fact, policy)


def deliveries(pipeline: Pipeline) -> list[tuple[object, ...]]:
    return pipeline.sql("SELECT seq, state::text, attempts, failures FROM deliveries ORDER BY seq")


def counts(pipeline: Pipeline) -> tuple[object, ...]:
    """waiting and in flight of the lane, in flight at the gate."""
    return pipeline.sql("SELECT l.waiting, l.in_flight, g.in_flight FROM lanes l JOIN gates g USING (destination_id)")[
        0
    ]


# --- claims ----------------------------------------------------------------------------------------------------------


async def test_a_claim_is_committed_with_its_token_and_budget(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination, budget_ms=4000)

    (begun,) = await owner.claim(claim)

    assert (begun.number, begun.refusal) == (1, None)
    assert pipeline.sql("SELECT state::text, attempts, token, budget_ms FROM deliveries WHERE seq = 1") == [
        ("delivering", 1, claim.token, 4000)
    ]
    assert counts(pipeline) == (2, 1, 1)


async def test_nothing_of_a_strict_lane_is_begun_while_something_of_it_is_in_flight(
    pipeline: Pipeline, owner: Owner
) -> None:
    destination, (first, second) = await queued(pipeline, owner)
    await owner.claim(a_claim(first, destination))

    (begun,) = await owner.claim(a_claim(second, destination))

    assert begun.refusal == "order"
    assert counts(pipeline) == (2, 1, 1)


async def test_nothing_of_a_strict_lane_is_begun_before_what_is_open_below_it(pipeline: Pipeline, owner: Owner) -> None:
    destination, (_, second) = await queued(pipeline, owner)

    assert [begun.refusal for begun in await owner.claim(a_claim(second, destination))] == ["order"]


async def test_a_replayed_delivery_is_not_begun_while_a_later_one_is_in_flight(
    pipeline: Pipeline, owner: Owner
) -> None:
    destination, (first, second) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)
    await owner.end(an_outcome(claim, after(claim, lifecycle.Rejected()), outcome="http_error", status=400, evidence=0))
    await owner.claim(a_claim(second, destination))
    await ask(pipeline, "replay", 1)

    (begun,) = await owner.claim(a_claim(first, destination))

    assert begun.refusal == "order"


async def test_two_of_a_strict_lane_in_one_batch_are_begun_one_by_one(pipeline: Pipeline, owner: Owner) -> None:
    destination, events = await queued(pipeline, owner)

    begun = await owner.claim(*(a_claim(event, destination) for event in reversed(events)))

    assert [each.refusal for each in begun] == ["order", None]


async def test_nothing_of_a_strict_lane_is_begun_behind_a_hold(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, second) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)
    parked = after(claim, lifecycle.Rejected(), policy=Policy(3, hold_on_park=True))
    await owner.end(an_outcome(claim, parked, outcome="http_error", status=400, evidence=0))

    (begun,) = await owner.claim(a_claim(second, destination))

    assert (parked.holding, begun.refusal) == (True, "order")


async def test_unordered_deliveries_are_begun_side_by_side(pipeline: Pipeline, owner: Owner) -> None:
    destination, events = await queued(pipeline, owner, 3, ordering="none")

    begun = await owner.claim(*(a_claim(event, destination) for event in reversed(events)))

    assert [each.refusal for each in begun] == [None] * 3


async def test_a_destinations_concurrency_is_never_passed(pipeline: Pipeline, owner: Owner) -> None:
    destination, events = await queued(pipeline, owner, 5, ordering="none", concurrency=2)
    claims = [a_claim(event, destination) for event in events]

    assert [begun.refusal for begun in await owner.claim(*claims[:3])] == [None, None, "full"]
    await owner.end(an_outcome(claims[0], after(claims[0], lifecycle.Acknowledged())))

    assert [begun.refusal for begun in await owner.claim(*claims[2:4])] == [None, "full"]


async def test_a_destinations_rate_is_a_burst_of_a_second_and_then_its_rate(pipeline: Pipeline, owner: Owner) -> None:
    destination, events = await queued(pipeline, owner, 6, ordering="none", rate=2.0)
    claims = [a_claim(event, destination) for event in events]
    assert [begun.refusal for begun in await owner.claim(*claims[:3])] == [None, None, "rate"]

    pipeline.sql("UPDATE gates SET refilled_at = refilled_at - interval '500 ms', tokens = 0")

    assert [begun.refusal for begun in await owner.claim(*claims[2:4])] == [None, "rate"]


async def test_an_open_breaker_lets_nothing_pass_and_a_half_open_one_its_probe(
    pipeline: Pipeline, owner: Owner
) -> None:
    destination, events = await queued(pipeline, owner, 2, ordering="none")
    probe = uuid4()
    pipeline.sql("UPDATE gates SET breaker = 'open', opened_at = now()")
    assert [begun.refusal for begun in await owner.claim(a_claim(events[0], destination, probe))] == ["breaker"]

    pipeline.sql("UPDATE gates SET breaker = 'half_open', probe_token = :probe, probe_expires_at = now()", probe=probe)
    begun = await owner.claim(a_claim(events[0], destination), a_claim(events[1], destination, probe))

    assert [each.refusal for each in begun] == ["breaker", None]
    assert deliveries(pipeline) == [(1, "queued", 0, 0), (2, "delivering", 1, 0)]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE destinations SET state = 'paused'",
        "UPDATE destinations SET removed_at = now()",
        "UPDATE partners SET state = 'paused'",
    ],
)
async def test_nothing_is_begun_where_a_person_said_stop(pipeline: Pipeline, owner: Owner, change: str) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    pipeline.sql(change)

    assert [begun.refusal for begun in await owner.claim(a_claim(first, destination))] == ["held"]


async def test_a_claim_of_what_was_settled_or_begun_meanwhile_is_stale(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, second) = await queued(pipeline, owner, ordering="none")
    claim = a_claim(first, destination)
    await owner.claim(claim)
    assert [begun.refusal for begun in await owner.claim(a_claim(first, destination))] == ["stale"]
    await owner.end(an_outcome(claim, after(claim, lifecycle.Acknowledged())))

    gone = a_claim(second, destination)._replace(sequence=99)

    assert [begun.refusal for begun in await owner.claim(a_claim(first, destination), gone)] == ["stale", "stale"]


async def test_two_owners_of_one_lane_cannot_both_begin(pipeline: Pipeline, owner: Owner, elsewhere: Elsewhere) -> None:
    """A defect in the leases would still not break the order: the lane's row is locked while it is looked at."""
    destination, (first, _) = await queued(pipeline, owner)
    held = await elsewhere.transaction("SELECT 1 FROM lanes FOR UPDATE")
    claims = [asyncio.ensure_future(owner.claim(a_claim(first, destination)))]
    rival = Owner(type(owner.connection)(pipeline.database_url, "rival"), owner.token)
    claims.append(asyncio.ensure_future(rival.claim(a_claim(first, destination))))
    await elsewhere.until_blocked("rival")
    await elsewhere.until_blocked("hookyard owner")

    await held.rollback()
    fates = [begun.refusal for answer in await asyncio.gather(*claims) for begun in answer]

    await rival.connection.close()
    assert sorted(fates, key=str) == [None, "stale"]
    assert counts(pipeline) == (2, 1, 1)


# --- outcomes --------------------------------------------------------------------------------------------------------


async def test_an_outcome_and_its_attempt_are_one(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)

    (saved,) = await owner.end(an_outcome(claim, after(claim, lifecycle.Acknowledged()), answer=b"\x00ok"))

    assert saved.saved
    assert saved.lag_ms is not None
    assert deliveries(pipeline)[0] == (1, "delivered", 1, 0)
    assert pipeline.sql("SELECT seq, number, outcome, status, answer FROM attempts") == [
        (1, 1, "success", 200, b"\x00ok")
    ]
    assert counts(pipeline) == (1, 0, 0)


async def test_an_outcome_counts_only_for_the_attempt_whose_token_the_delivery_carries(
    pipeline: Pipeline, owner: Owner
) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)
    stranger = claim._replace(token=uuid4())

    (saved,) = await owner.end(an_outcome(stranger, after(stranger, lifecycle.Acknowledged())))

    assert not saved.saved
    assert deliveries(pipeline)[0] == (1, "delivering", 1, 0)
    assert pipeline.sql("SELECT count(*) FROM attempts") == [(0,)]
    assert counts(pipeline) == (2, 1, 1)


async def test_an_outcome_that_is_sent_twice_is_recorded_once(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)
    outcome = an_outcome(claim, after(claim, lifecycle.Failed(timedelta(seconds=9))), outcome="timeout", evidence=-1)

    saved = [(await owner.end(outcome))[0].saved for _ in range(2)]

    assert saved == [True, True]
    assert deliveries(pipeline)[0] == (1, "queued", 1, 1)
    assert pipeline.sql("SELECT count(*) FROM attempts") == [(1,)]
    assert counts(pipeline) == (2, 0, 0)


async def test_a_claim_that_is_sent_twice_is_begun_once(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination)

    numbers = [(await owner.claim(claim))[0].number for _ in range(2)]

    assert numbers == [1, 1]
    assert counts(pipeline) == (2, 1, 1)


async def test_a_commit_whose_answer_was_lost_is_found_out(pipeline: Pipeline, owner: Owner) -> None:
    """The journal sends the same batch again, and neither an attempt nor a number is counted twice."""
    destination, (first, second) = await queued(pipeline, owner)
    claim, following = a_claim(first, destination), a_claim(second, destination)
    journal = Journal(owner.connection, owner.token)
    await journal.submit(Item(claim))
    sent = loses_answer(owner.connection, "journal(", StorageUnavailable("the line is dead"))

    outcome = an_outcome(claim, after(claim, lifecycle.Acknowledged()))
    saved, begun = await asyncio.gather(journal.submit(Item(outcome)), journal.submit(Item(following)))

    assert sent() == 2
    assert isinstance(saved, lanes.Saved)
    assert isinstance(begun, lanes.Begun)
    assert (saved.saved, begun.number, begun.refusal) == (True, 1, None)
    assert deliveries(pipeline) == [(1, "delivered", 1, 0), (2, "delivering", 1, 0)]
    assert pipeline.sql("SELECT seq, number FROM attempts") == [(1, 1)]
    assert counts(pipeline) == (1, 1, 1)


async def test_an_outcome_and_the_next_claim_of_its_lane_share_a_commit(
    pipeline: Pipeline, owner: Owner, elsewhere: Elsewhere
) -> None:
    destination, (first, second) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)
    outcome = an_outcome(claim, after(claim, lifecycle.Acknowledged()))

    saved, begun = await lanes.save(owner.connection, owner.token, [outcome], [a_claim(second, destination)])

    assert (saved[0].saved, begun[0].refusal) == (True, None)
    assert await elsewhere.rows("SELECT count(DISTINCT xmin::text) FROM deliveries") == [(1,)]


async def test_a_withdrawn_attempt_gives_its_number_back_and_leaves_no_record(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)

    withdrawn = an_outcome(claim, after(claim, lifecycle.Withdrawn()), outcome="withdrawn", evidence=0, status=None)
    assert [saved.saved for saved in await owner.end(withdrawn)] == [True]
    assert [saved.saved for saved in await owner.end(withdrawn)] == [True]

    assert deliveries(pipeline)[0] == (1, "queued", 0, 0)
    assert pipeline.sql("SELECT count(*) FROM attempts") == [(0,)]
    assert [begun.number for begun in await owner.claim(a_claim(first, destination))] == [1]


async def test_a_retrys_time_is_a_column(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)

    failed = an_outcome(claim, after(claim, lifecycle.Failed(timedelta(seconds=90))), outcome="timeout", evidence=-1)
    await owner.end(failed)

    assert pipeline.sql(
        "SELECT next_attempt_at - now() BETWEEN interval '80 s' AND interval '90 s' FROM deliveries WHERE seq = 1"
    ) == [(True,)]
    read = await lanes.read_lanes(owner.connection, {(first.partner_id, destination): -1}, 10)
    (one, two) = read[(first.partner_id, destination)].open
    assert 80_000 < one.due_in_ms <= 90_000
    assert (one.delivery.attempts, one.delivery.failures, two.due_in_ms) == (1, 1, 0)


async def test_what_is_parked_is_listed_with_its_reason(pipeline: Pipeline, owner: Owner) -> None:
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)

    parked = after(claim, lifecycle.Gone())
    await owner.end(an_outcome(claim, parked, outcome="http_error", status=410, evidence=0))

    assert parked.park_reason is ParkReason.DESTINATION_SUSPENDED
    assert pipeline.sql("SELECT seq, reason FROM parked") == [(1, "destination_suspended")]
    assert counts(pipeline) == (1, 0, 0)


async def test_how_long_every_attempt_has_failed_is_known_until_one_succeeds(pipeline: Pipeline, owner: Owner) -> None:
    destination, events = await queued(pipeline, owner, 3, ordering="none")
    told = []
    for event, outcome in zip(events, ("http_error", "interrupted", "success"), strict=True):
        claim = a_claim(event, destination)
        await owner.claim(claim)
        evidence = 1 if outcome == "success" else 0
        await owner.end(an_outcome(claim, after(claim, lifecycle.Acknowledged()), outcome=outcome, evidence=evidence))
        told.append(pipeline.sql("SELECT failing_since IS NOT NULL FROM gates")[0][0])

    assert told == [True, True, False]


# --- P17 -------------------------------------------------------------------------------------------------------------


async def test_one_bad_outcome_fails_alone(pipeline: Pipeline, owner: Owner) -> None:
    destination, events = await queued(pipeline, owner, 9, ordering="none")
    claims = [a_claim(event, destination) for event in events]
    await owner.claim(*claims)
    journal = Journal(owner.connection, owner.token)
    texts = ["bad\0text" if n == 4 else None for n in range(9)]

    fates = await asyncio.gather(
        *(
            journal.submit(Item(an_outcome(claim, after(claim, lifecycle.Acknowledged()), error=text)))
            for claim, text in zip(claims, texts, strict=True)
        ),
        return_exceptions=True,
    )

    assert isinstance(fates[4], BadData)
    assert [state for _, state, *_ in deliveries(pipeline)] == ["delivered"] * 4 + ["delivering"] + ["delivered"] * 4
    assert pipeline.sql("SELECT count(*) FROM attempts") == [(8,)]


# --- the schema's own word -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE deliveries SET state = 'parked'",
        "UPDATE deliveries SET park_reason = 'rejected'",
        "UPDATE deliveries SET state = 'parked', park_reason = 'no idea'",
        "UPDATE deliveries SET state = 'delivering'",
        "UPDATE deliveries SET state = 'delivering', token = gen_random_uuid(), budget_ms = 1, attempts = 0",
        "UPDATE deliveries SET holding = true",
        "UPDATE deliveries SET crashes = 1",
        "UPDATE deliveries SET attempts = 1, crashes = 1, state = 'parked', park_reason = 'worker_crashed'",
        "UPDATE lanes SET in_flight = -1",
        "UPDATE lanes SET waiting = -1",
        "UPDATE gates SET in_flight = -1",
        "UPDATE gates SET breaker = 'open'",
        "UPDATE gates SET breaker = 'half_open'",
    ],
)
async def test_the_schema_refuses_what_cannot_be(pipeline: Pipeline, owner: Owner, change: str) -> None:
    await queued(pipeline, owner, 1)

    with pytest.raises(BadData):
        pipeline.sql(change)


async def test_a_rescue_is_an_outcome_like_any_other(pipeline: Pipeline, owner: Owner) -> None:
    """By the successor, with the token that its predecessor left."""
    destination, (first, _) = await queued(pipeline, owner)
    claim = a_claim(first, destination)
    await owner.claim(claim)
    read = await lanes.read_lanes(owner.connection, {(first.partner_id, destination): -1}, 10)
    left = read[(first.partner_id, destination)].open[0]
    assert (left.delivery.state, left.delivery.token, left.budget_ms) == (State.DELIVERING, claim.token, 1000)

    lost = an_outcome(
        claim, transition(left.delivery, lifecycle.Lost(), POLICY), outcome="lost", evidence=0, status=None
    )
    assert [saved.saved for saved in await owner.end(lost)] == [True]

    late = an_outcome(claim, after(claim, lifecycle.Acknowledged()))
    await owner.claim(a_claim(first, destination))
    assert [saved.saved for saved in await owner.end(late)] == [False]
    assert deliveries(pipeline)[0] == (1, "delivering", 2, 0)
