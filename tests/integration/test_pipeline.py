"""An event's way through the pipeline, with one worker."""

from datetime import timedelta

from tests.pipeline import Pipeline
from tests.sink import Request, Step, overlaps


async def test_an_event_is_delivered(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    pipeline.start_worker()

    (answer,) = await pipeline.post(shop, body=b'{"type": "order.created"}', type="order.created")
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 1)
    await pipeline.settled()

    (request,) = pipeline.sink.requests
    assert request.body == b'{"type": "order.created"}'
    assert request.id == pipeline.id_of(shop, answer)
    assert (request.partner, request.sequence, request.attempt) == ("shop", 1, 1)
    assert pipeline.sql("SELECT state::text, attempts FROM deliveries") == [("delivered", 1)]
    assert pipeline.sql("SELECT number, outcome, status FROM attempts") == [(1, "success", 200)]


async def test_a_partners_events_arrive_in_order_one_at_a_time(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    pipeline.start_worker()

    await pipeline.post(shop, 500)
    await pipeline.settled()

    assert pipeline.sink.sequences() == list(range(1, 501))
    assert overlaps(pipeline.sink.requests) == []


async def test_a_failed_event_is_tried_again_before_the_next(pipeline: Pipeline) -> None:
    shop = pipeline.lane(max_attempts=5)
    pipeline.sink.steps["/"] += [200, 500, 503, 200]
    pipeline.start_worker()

    await pipeline.post(shop, 3)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 2, 2, 3]
    assert [request.attempt for request in pipeline.sink.requests] == [1, 1, 2, 3, 1]


async def test_a_delivery_is_parked_after_its_last_attempt_and_the_lane_goes_on(pipeline: Pipeline) -> None:
    shop = pipeline.lane(max_attempts=2)
    pipeline.sink.steps["/"] += [500, 500]
    pipeline.start_worker()

    await pipeline.post(shop, 2)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 1, 2]
    assert pipeline.sql("SELECT state::text, park_reason FROM deliveries ORDER BY seq") == [
        ("parked", "attempts_exhausted"),
        ("delivered", None),
    ]
    assert pipeline.sql("SELECT seq, reason FROM parked") == [(1, "attempts_exhausted")]


async def test_what_others_have_overtaken_in_an_unordered_lane_lags_behind_its_head(pipeline: Pipeline) -> None:
    shop = pipeline.lane(ordering="none", retry_base=timedelta(minutes=5), retry_cap=timedelta(minutes=5))
    pipeline.sink.default["/"] = fail_from(1000)
    running = pipeline.start_worker()

    await pipeline.post(shop, 1020)
    await pipeline.until_sql("SELECT waiting, in_flight FROM lanes", [(21, 0)])

    await pipeline.until_sql("SELECT head_seq, (SELECT count(*) FROM laggards) FROM lanes", [(1021, 21)])
    await running.finish()
    pipeline.sink.default["/"] = 200
    pipeline.sql("UPDATE deliveries SET next_attempt_at = NULL")
    pipeline.start_worker("w2")
    await pipeline.settled()

    assert pipeline.sql("SELECT count(*) FROM laggards") == [(0,)]


def fail_from(sequence: int) -> Step:
    async def step(request: Request) -> int:
        return 500 if request.sequence >= sequence else 200

    return step
