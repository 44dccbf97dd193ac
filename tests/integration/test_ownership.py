"""Several workers: fair shares, hand-overs, and what is made while they run (promises P5, P6)."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from storage import lanes, loops
from storage.configuration import Configuration
from storage.errors import StorageUnavailable
from tests.owner import Elsewhere
from tests.pipeline import Pipeline
from tests.sink import Request, overlaps
from tests.watching import kill, owned, ready, tenure_of, until
from workers.tenure import Tenure

SHARES = "SELECT count(*) FROM shards WHERE owner IS NOT NULL GROUP BY owner ORDER BY 1"


@pytest.mark.parametrize("loop", ["hints", "dispatch", "rates"])
async def test_a_tenure_one_of_whose_loops_dies_is_followed_by_another(pipeline: Pipeline, loop: str) -> None:
    shop = pipeline.lane()
    running = pipeline.start_worker(lease=timedelta(seconds=1))
    await ready(running)
    dead = tenure_of(running)

    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == loop]
    task.cancel()  # as a library does that loses count of whom it cancelled
    await until(lambda: running.worker.degraded == ["tenure failing"])
    await pipeline.post(shop, 3)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 3]
    assert tenure_of(running) is not dead
    assert running.worker.amiss == []


async def test_a_workers_gauges_are_shown_again_when_that_died(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "AGAIN_SECONDS", 0.05)
    running = pipeline.start_worker()
    with monkeypatch.context() as broken:
        broken.setattr(Tenure, "show", None)
        await until(lambda: running.worker.degraded == ["gauges failing"])

    running.worker.metrics.pool_size.set(0)
    await until(lambda: running.registry.get_sample_value("hookyard_pool_size") == 50)


async def shares(pipeline: Pipeline, *expected: int, seconds: float = 10) -> None:
    await until(lambda: [n for (n,) in pipeline.sql(SHARES)] == list(expected), seconds)


async def test_workers_share_fairly_as_they_come_and_go(pipeline: Pipeline) -> None:
    shops = [pipeline.partner(f"shop-{n}") for n in range(12)]
    pipeline.destination()
    for shop in shops:
        pipeline.subscribe(shop.name)
    posted = 0

    async def post() -> None:
        nonlocal posted
        for shop in shops:
            await pipeline.post(shop, 5)
        posted += 5

    first = pipeline.start_worker("w1")
    await shares(pipeline, 64)
    await post()
    pipeline.start_worker("w2")
    await shares(pipeline, 32, 32)
    await post()
    third = pipeline.start_worker("w3")
    await until(lambda: max((n for (n,) in pipeline.sql(SHARES)), default=64) == 22)
    await post()
    await first.finish()
    await shares(pipeline, 32, 32)
    await post()
    await kill(third)
    await post()
    await shares(pipeline, 64)
    await pipeline.settled()

    for shop in shops:
        mine = [request for request in pipeline.sink.requests if request.partner == shop.name]
        first_arrivals = list(dict.fromkeys(request.sequence for request in mine))
        assert first_arrivals == list(range(1, posted + 1))
        assert overlaps(mine) == []


async def test_a_dead_process_is_not_waited_for_by_the_next_one_in_its_place(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    first = pipeline.start_worker("here:worker-0:17", lease=timedelta(minutes=5))
    other = pipeline.start_worker("here:worker-1:18", lease=timedelta(minutes=5))
    await until(lambda: owned(first) == owned(other) == 32)
    await kill(first)

    second = pipeline.start_worker("here:worker-0:19", lease=timedelta(minutes=5), predecessors="here:worker-0:")
    await until(lambda: owned(second) == 32)
    await pipeline.post(shop)
    await pipeline.settled()

    assert owned(other) == 32
    assert pipeline.sink.sequences() == [1]


async def test_a_graceful_hand_over_delivers_nothing_twice(pipeline: Pipeline) -> None:
    shops = [pipeline.partner(f"shop-{n}") for n in range(8)]
    pipeline.destination()
    for shop in shops:
        pipeline.subscribe(shop.name)
    first = pipeline.start_worker("w1")
    await until(lambda: owned(first) == 64)

    await asyncio.gather(*(pipeline.post(shop, 60) for shop in shops))
    pipeline.start_worker("w2")
    await shares(pipeline, 32, 32)
    await first.finish()
    await pipeline.settled()

    assert len(pipeline.sink.requests) == 8 * 60
    assert pipeline.sql("SELECT DISTINCT outcome FROM attempts") == [("success",)]


async def test_a_shard_is_not_handed_over_while_an_attempt_of_it_is_in_flight(pipeline: Pipeline) -> None:
    pipeline.sql("UPDATE installation SET shards = 4")
    pipeline.sql("DELETE FROM shards WHERE shard > 3")
    shops = [replace(pipeline.partner(f"shop-{n}"), shard=n) for n in range(4)]
    pipeline.destination(timeout=timedelta(seconds=20))
    for shop in shops:
        pipeline.subscribe(shop.name)
        pipeline.sql("UPDATE partners SET shard = :shard WHERE id = :id", shard=shop.shard, id=shop.id)
    answer = asyncio.Event()

    async def slow(request: Request) -> int:
        await answer.wait()
        return 200

    pipeline.sink.default["/"] = slow
    first = pipeline.start_worker("w1")
    await until(lambda: owned(first) == 4)
    for shop in shops:
        await pipeline.post(shop, 2)
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 4)

    second = pipeline.start_worker("w2")
    await until(lambda: len(tenure_of(first)._draining) == 2)
    await until(lambda: (owned(first), owned(second)) == (4, 0), steady_seconds=1.5)

    answer.set()
    await until(lambda: (owned(first), owned(second)) == (2, 2))
    await pipeline.settled()
    assert len(pipeline.sink.requests) == 8
    assert pipeline.sql("SELECT DISTINCT outcome FROM attempts") == [("success",)]


async def test_what_is_made_while_a_worker_runs_is_effective_at_once(pipeline: Pipeline) -> None:
    await ready(pipeline.start_worker())

    await pipeline.post(pipeline.lane())

    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 1, seconds=2.5)
    await pipeline.settled()


async def test_an_event_that_comes_before_the_worker_knows_its_partner_waits_in_the_log(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = pipeline.start_worker()
    await ready(running)

    async def nothing_new(self: object) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Configuration, "refresh", nothing_new)
    await pipeline.post(pipeline.lane())
    await until(lambda: not tenure_of(running).feed._news, steady_seconds=1.5)  # hinted, polled, and left alone
    assert pipeline.sql("SELECT cursor FROM partner_tails") == [(0,)]

    monkeypatch.undo()
    await pipeline.settled()
    assert len(pipeline.sink.requests) == 1


async def test_a_worker_that_lost_its_lease_begins_again(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    running = pipeline.start_worker()
    await pipeline.post(shop, 3)
    await pipeline.settled()
    before = running.worker._tenure

    pipeline.sql("UPDATE workers SET fenced = true")
    await pipeline.post(shop, 3)
    await pipeline.settled()

    assert running.worker._tenure is not before
    assert pipeline.sink.sequences() == [1, 2, 3, 4, 5, 6]


async def test_a_stop_begins_nothing_more_and_leaves_nothing_behind(pipeline: Pipeline) -> None:
    shop = pipeline.lane()

    async def slow(request: Request) -> int:
        await asyncio.sleep(0.1)
        return 200

    pipeline.sink.default["/"] = slow
    running = pipeline.start_worker()
    await pipeline.post(shop, 300)
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) >= 3)

    seen = len(pipeline.sink.requests)
    async with asyncio.timeout(3):
        await running.finish()

    assert len(pipeline.sink.requests) <= seen + 1
    assert pipeline.sql("SELECT count(*) FROM workers") == [(0,)]
    assert pipeline.sql("SELECT in_flight FROM lanes") == [(0,)]
    assert pipeline.sql("SELECT count(*) FROM deliveries WHERE state = 'delivering'") == [(0,)]


async def test_an_attempt_that_outlasts_the_stop_is_interrupted_and_queued_again(pipeline: Pipeline) -> None:
    shop = pipeline.lane(timeout=timedelta(seconds=60))

    async def hang(request: Request) -> int:
        await asyncio.Event().wait()
        return 200

    pipeline.sink.steps["/"] += [hang]
    running = pipeline.start_worker(drain_seconds=0.2)
    await pipeline.post(shop)
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 1)

    await running.finish()

    assert pipeline.sql("SELECT number, outcome FROM attempts") == [(1, "interrupted")]
    assert pipeline.sql("SELECT state::text, attempts, failures FROM deliveries") == [("queued", 1, 0)]
    pipeline.start_worker("w2")
    await pipeline.settled()
    assert [request.attempt for request in pipeline.sink.requests] == [1, 2]


async def test_shards_whose_lanes_could_not_be_read_are_not_forgotten(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, elsewhere: Elsewhere
) -> None:
    """The lease came through, the database went away before its lanes were read."""
    shop = pipeline.lane()
    await pipeline.post(shop)
    first = pipeline.start_worker("w1")
    await pipeline.settled()
    await first.finish()
    pipeline.sql("UPDATE deliveries SET state = 'queued'")
    pipeline.sql("UPDATE lanes SET waiting = 1, head_seq = 1")
    real, failures = lanes.open_lanes, 0

    async def open_lanes(*given: Any) -> Any:
        nonlocal failures
        if not failures:
            failures += 1
            raise StorageUnavailable("away")
        return await real(*given)

    monkeypatch.setattr(lanes, "open_lanes", open_lanes)
    pipeline.start_worker("w2")

    await pipeline.settled()
    assert (failures, pipeline.sink.sequences()) == (1, [1, 1])
