"""Retries: their time is a column, so they survive everything (promise P11)."""

from datetime import timedelta

import pytest

from tests.pipeline import Pipeline
from tests.watching import Gate, kill, until
from workers.turns import Turns

SECOND = timedelta(seconds=1)
WAITS = "SELECT 1 FROM deliveries WHERE state = 'queued' AND failures = 1"


@pytest.mark.parametrize("ordering", ["partner", "none"])
async def test_a_retry_is_not_earlier_and_not_forgotten_when_its_worker_stops(
    pipeline: Pipeline, ordering: str
) -> None:
    shop = pipeline.lane(ordering=ordering, retry_base=2 * SECOND, retry_cap=2 * SECOND, max_attempts=2)
    pipeline.sink.steps["/"] += [500, 500]
    first = pipeline.start_worker("w1")
    await pipeline.post(shop)
    await until(lambda: pipeline.sql(WAITS))
    await first.finish()

    pipeline.start_worker("w2")
    await pipeline.settled()

    one, two = pipeline.sink.requests
    assert one.ended_at is not None
    assert 1.6 <= two.began_at - one.ended_at < 3.5
    assert (one.attempt, two.attempt) == (1, 2)
    assert pipeline.sql("SELECT state::text, attempts, failures, park_reason FROM deliveries") == [
        ("parked", 2, 2, "attempts_exhausted")
    ]


async def test_a_retry_survives_a_worker_that_was_killed(pipeline: Pipeline) -> None:
    shop = pipeline.lane(retry_base=2 * SECOND, retry_cap=2 * SECOND)
    pipeline.sink.steps["/"] += [500]
    first = pipeline.start_worker("w1", lease=SECOND)
    await pipeline.post(shop, 2)
    await until(lambda: pipeline.sql(WAITS))

    await kill(first)
    pipeline.start_worker("w2", lease=SECOND)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 1, 2]
    assert pipeline.sink.requests[1].began_at - pipeline.sink.requests[0].began_at >= 1.6


async def test_a_due_retry_that_is_refused_a_slot_does_not_wait_its_backoff_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = pipeline.lane(retry_base=2 * SECOND, retry_cap=2 * SECOND, concurrency=1)
    pipeline.sink.steps["/"] += [500]
    refused: list[float] = []
    real = Turns.block

    def block(self: Turns, turnstile: object, seconds: float) -> None:
        refused.append(seconds)
        real(self, turnstile, seconds)  # type: ignore[arg-type]

    monkeypatch.setattr(Turns, "block", block)
    pipeline.start_worker()
    await pipeline.post(shop)
    await until(lambda: pipeline.sql(WAITS))
    pipeline.sql("UPDATE gates SET in_flight = 1")  # somebody else has the only slot
    await until(lambda: refused)

    pipeline.sql("UPDATE gates SET in_flight = 0")
    await pipeline.settled(1.5)


@pytest.mark.parametrize(("status", "waits"), [(503, 1.0), (429, 1.0), (500, 0.0)])
async def test_a_destination_that_asks_for_time_is_given_it(pipeline: Pipeline, status: int, waits: float) -> None:
    shop = pipeline.lane(retry_cap=2 * SECOND)
    pipeline.sink.steps["/"] += [status]
    pipeline.sink.headers["/"] = "retry-after: 1\r\n"
    pipeline.start_worker()

    await pipeline.post(shop)
    await pipeline.settled()

    one, two = pipeline.sink.requests
    assert one.ended_at is not None
    assert waits <= two.began_at - one.ended_at < waits + 1


async def test_what_timed_out_is_tried_again(pipeline: Pipeline) -> None:
    shop, hangs = pipeline.lane(timeout=timedelta(milliseconds=200)), Gate()
    pipeline.sink.steps["/"] += [hangs]
    pipeline.start_worker()

    await pipeline.post(shop, 2)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 1, 2]
    assert pipeline.sql("SELECT outcome FROM attempts ORDER BY seq, number") == [
        ("timeout",),
        ("success",),
        ("success",),
    ]
