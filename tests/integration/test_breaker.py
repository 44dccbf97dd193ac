"""Breakers: a failing destination is left alone, one probe goes out, and it comes back gently (promise P9)."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from storage import destinations, gates
from storage.errors import StorageUnavailable
from tests.pipeline import ACTOR, Pipeline
from tests.sink import overlaps
from tests.watching import Crowd, Gate, apart, kill, quiet, spread, tenure_of, until
from workers import tenure

RESET = timedelta(milliseconds=400)
AGES = timedelta(minutes=10)
BREAKER: dict[str, Any] = {"breaker_failures": 3, "breaker_reset": RESET, "max_attempts": 50}
STATE = "SELECT breaker FROM gates"


async def test_a_failing_destination_is_left_alone_and_rejections_cost_no_attempt(pipeline: Pipeline) -> None:
    shop = pipeline.lane(**BREAKER | {"breaker_reset": AGES})
    pipeline.sink.default["/"] = 500
    pipeline.start_worker()

    await pipeline.post(shop, 3)
    await until(lambda: pipeline.sql(STATE) == [("open",)])
    await quiet(pipeline)

    assert len(pipeline.sink.requests) == 3
    assert pipeline.sql("SELECT seq, state::text, attempts, failures FROM deliveries ORDER BY seq") == [
        (1, "queued", 3, 3),
        (2, "queued", 0, 0),
        (3, "queued", 0, 0),
    ]


async def test_one_probe_goes_out_after_the_reset_time_and_a_good_one_closes_the_breaker(pipeline: Pipeline) -> None:
    shop = pipeline.lane(**BREAKER)
    pipeline.sink.steps["/"] += [500] * 5
    pipeline.start_worker()

    await pipeline.post(shop, 3)
    await pipeline.settled()

    requests = pipeline.sink.requests
    assert [request.status for request in requests] == [500] * 5 + [200] * 3
    for before, after in pairwise(requests[2:6]):
        assert before.ended_at is not None
        assert after.began_at - before.ended_at >= RESET.total_seconds() * 0.9
    assert pipeline.sql(STATE) == [("closed",)]


async def test_there_is_one_probe_in_the_whole_system(pipeline: Pipeline) -> None:
    pipeline.destination(**BREAKER)
    shops = [pipeline.partner(f"shop-{n}") for n in range(6)]
    for shop in shops:
        pipeline.subscribe(shop.name)
    shops = spread(pipeline, shops, 2)
    workers = await apart(pipeline, each=2)
    pipeline.sink.default["/"] = 500
    await asyncio.gather(*(pipeline.post(shop, 5) for shop in shops))
    await until(lambda: all(tenure_of(w).turns.turnstile(1).breaker.row.state != "closed" for w in workers))
    await until(lambda: tenure_of(workers[0]).attempts.running + tenure_of(workers[1]).attempts.running == 0)

    probes, seen = [Gate(500), Gate(500), Gate(200)], len(pipeline.sink.requests)
    pipeline.sink.steps["/"] += probes
    pipeline.sink.default["/"] = 200
    for n, probe in enumerate(probes):
        await probe.reached.wait()
        await until(lambda: True, steady_seconds=2 * RESET.total_seconds())  # whoever else would, would by now
        assert len(pipeline.sink.requests) == seen + n + 1
        probe.open.set()
    await pipeline.settled()

    assert overlaps(pipeline.sink.requests[seen : seen + 3]) == []
    assert pipeline.sql("SELECT in_flight, breaker FROM gates") == [(0, "closed")]


async def test_a_destination_that_recovered_gets_one_more_at_a_time(pipeline: Pipeline) -> None:
    shop = pipeline.lane(**BREAKER, ordering="none", concurrency=8)
    pipeline.sink.steps["/"] += [500] * 3
    crowd = Crowd(0.03)
    pipeline.sink.default["/"] = crowd
    pipeline.sql("UPDATE destinations SET concurrency = 1")
    pipeline.start_worker()
    await pipeline.post(shop, 1)
    await until(lambda: pipeline.sql(STATE) == [("open",)])
    pipeline.sql("UPDATE destinations SET concurrency = 8")

    await pipeline.post(shop, 60)
    await pipeline.settled()

    after = pipeline.sink.requests[3:]
    for request in after:
        there = sum(other.began_at < request.began_at < (other.ended_at or 0) for other in after)
        done = sum((other.ended_at or 0) <= request.began_at for other in after)
        assert there + 1 <= max(1, done)
    assert 2 < crowd.most <= 8


async def test_answers_about_single_events_are_no_evidence(pipeline: Pipeline) -> None:
    shop = pipeline.lane(**BREAKER | {"max_attempts": 2})
    pipeline.sink.default["/"] = 400
    pipeline.start_worker()

    await pipeline.post(shop, 6)
    await pipeline.settled()

    assert len(pipeline.sink.requests) == 12
    assert pipeline.sql("SELECT breaker, version FROM gates") == [("closed", 0)]


async def test_a_person_closes_the_breaker(pipeline: Pipeline) -> None:
    shop = pipeline.lane(**BREAKER | {"breaker_reset": AGES})
    pipeline.sink.steps["/"] += [500] * 3
    pipeline.start_worker()
    await pipeline.post(shop, 2)
    await until(lambda: pipeline.sql(STATE) == [("open",)])

    with pipeline.store.begin() as connection:
        destinations.reset_breaker(connection, "warehouse", actor=ACTOR)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 1, 1, 1, 2]


async def test_a_probe_that_was_out_when_a_person_closed_the_breaker_has_no_say(pipeline: Pipeline) -> None:
    shop, probe = pipeline.lane(**BREAKER), Gate(500)
    pipeline.sink.steps["/"] += [500, 500, 500, probe]
    pipeline.start_worker()
    await pipeline.post(shop, 2)
    await probe.reached.wait()

    with pipeline.store.begin() as connection:
        destinations.reset_breaker(connection, "warehouse", actor=ACTOR)
    ((version,),) = pipeline.sql("SELECT version FROM gates")
    probe.open.set()
    await pipeline.settled()

    assert pipeline.sql("SELECT breaker, version FROM gates") == [("closed", version)]
    assert pipeline.sink.sequences() == [1] * 5 + [2]


async def test_a_probe_whose_worker_vanished_is_made_again_by_another(pipeline: Pipeline) -> None:
    shop, hangs = pipeline.lane(**BREAKER, timeout=timedelta(seconds=1)), Gate()
    pipeline.sink.steps["/"] += [500, 500, 500, hangs]
    first = pipeline.start_worker(lease=timedelta(seconds=1))
    await pipeline.post(shop, 2)
    await hangs.reached.wait()

    await kill(first)
    pipeline.start_worker("w2", lease=timedelta(seconds=1))
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1] * 5 + [2]
    assert pipeline.sql(STATE) == [("closed",)]


async def test_an_opening_that_could_not_be_saved_does_not_close_the_destination_for_ever(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = gates.change, 0

    async def change(*given: Any) -> bool:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise StorageUnavailable("away")
        return await real(*given)

    monkeypatch.setattr(gates, "change", change)
    shop = pipeline.lane(**BREAKER)
    pipeline.sink.steps["/"] += [500] * 3
    pipeline.start_worker()

    await pipeline.post(shop, 2)
    await pipeline.settled()

    assert failures > 1
    assert pipeline.sink.sequences() == [1, 1, 1, 1, 2]


async def test_every_attempt_having_failed_for_too_long_suspends(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenure, "SUSPEND_SECONDS", 0.1)
    shop = pipeline.lane(suspend_after=timedelta(seconds=1), max_attempts=1000)
    pipeline.sink.default["/"] = 500
    pipeline.start_worker()

    await pipeline.post(shop, 3)
    await pipeline.settled()

    assert pipeline.sql("SELECT DISTINCT park_reason FROM deliveries") == [("destination_suspended",)]
    assert pipeline.sql("SELECT state FROM destinations") == [("suspended",)]
