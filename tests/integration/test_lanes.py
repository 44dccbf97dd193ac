"""Lanes and their bounds: one in flight, bounded memory, bulkheads that hold for the whole system (P6, P8, P10)."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from storage import leases
from storage.errors import StorageUnavailable
from tests.pipeline import Pipeline
from tests.sink import overlaps
from tests.watching import Crowd, Gate, apart, configured, kill, owned, quiet, ready, spread, tenure_of, until
from workers import attempts
from workers.lane import MAILBOX

SECOND = timedelta(seconds=1)


# --- P6 --------------------------------------------------------------------------------------------------------------


async def test_the_successor_of_a_lane_left_in_flight_waits_out_the_attempts_whole_budget(pipeline: Pipeline) -> None:
    shop, hangs = pipeline.lane(timeout=SECOND), Gate()
    pipeline.sink.steps["/"] += [hangs]
    first = pipeline.start_worker("w1", lease=SECOND)
    await pipeline.post(shop, 3)
    await hangs.reached.wait()

    await kill(first)
    second = pipeline.start_worker("w2", lease=SECOND)
    await until(lambda: owned(second) == 64)
    took_over_at = asyncio.get_running_loop().time()
    await pipeline.settled()

    left, again, *rest = pipeline.sink.requests
    assert (left.sequence, left.attempt, again.sequence, again.attempt) == (1, 1, 1, 2)
    assert again.began_at - took_over_at >= attempts.START_GRACE_SECONDS + 1 - 0.1
    assert [request.sequence for request in rest] == [2, 3]
    assert pipeline.sql("SELECT number, outcome FROM attempts WHERE seq = 1 ORDER BY 1") == [
        (1, "lost"),
        (2, "success"),
    ]
    assert pipeline.sql("SELECT attempts, failures FROM deliveries WHERE seq = 1") == [(2, 0)]


async def test_an_attempt_that_would_start_too_late_is_withdrawn_and_its_number_given_back(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = pipeline.lane()
    monkeypatch.setattr(attempts, "START_GRACE_SECONDS", -1.0)  # every claim comes too late
    pipeline.start_worker()
    await pipeline.post(shop)
    tokens: set[object] = set()
    async with asyncio.timeout(10):
        while len(tokens) < 4:
            tokens |= set(await asyncio.to_thread(pipeline.sql, "SELECT token FROM deliveries"))
    assert (pipeline.sink.requests, pipeline.sql("SELECT count(*) FROM attempts")) == ([], [(0,)])

    monkeypatch.undo()
    await pipeline.settled()

    assert [request.attempt for request in pipeline.sink.requests] == [1]
    assert pipeline.sql("SELECT attempts FROM deliveries") == [(1,)]
    assert pipeline.sql("SELECT number, outcome FROM attempts") == [(1, "success")]


async def test_nothing_is_begun_under_a_lease_that_may_have_ended(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = pipeline.lane()
    running = pipeline.start_worker()
    await ready(running)

    async def away(*given: object, **options: object) -> leases.Lease:
        raise StorageUnavailable("away")

    monkeypatch.setattr(leases, "tend", away)
    tenure_of(running)._lease_ends = 0.0
    await pipeline.post(shop)
    await quiet(pipeline)
    assert (pipeline.sink.requests, pipeline.sql("SELECT token FROM deliveries")) == ([], [(None,)])

    monkeypatch.undo()
    await pipeline.settled()
    assert len(pipeline.sink.requests) == 1


# --- P8 --------------------------------------------------------------------------------------------------------------


async def test_hung_destinations_together_cost_at_most_half_of_the_pool_and_the_others_nothing(
    pipeline: Pipeline,
) -> None:
    hung = [Gate() for _ in range(3)]
    for n, gate in enumerate(hung):
        shop = pipeline.lane(
            f"hung-{n}", f"hung-{n}", path=f"/hung-{n}", ordering="none", timeout=timedelta(seconds=30)
        )
        pipeline.sink.default[f"/hung-{n}"] = gate
        await pipeline.post(shop, 20)
    good = pipeline.lane("good", "good", path="/good")
    running = pipeline.start_worker(pool_size=12)
    await asyncio.gather(*(gate.reached.wait() for gate in hung))

    await pipeline.post(good, 40)
    await pipeline.sink.until(lambda: len(pipeline.sink.at("/good")) == 40, seconds=5)

    tenure = tenure_of(running)
    assert tenure.pool.active <= 6
    at_hung = [request for request in pipeline.sink.requests if request.path != "/good"]
    assert len(at_hung) in (5, 6)  # half of the pool, its last slot kept for one that has yet to show that it lives
    assert {request.path for request in at_hung} == {"/hung-0", "/hung-1", "/hung-2"}
    for gate in hung:
        gate.open.set()
    await pipeline.settled()


async def test_a_partners_dead_destination_does_not_slow_its_others(pipeline: Pipeline) -> None:
    shop, hangs = pipeline.lane("shop", "dead", path="/dead", timeout=timedelta(seconds=30)), Gate()
    pipeline.destination("alive", "/alive")
    pipeline.subscribe("shop", "alive")
    pipeline.sink.default["/dead"] = hangs
    pipeline.start_worker()

    await pipeline.post(shop, 300)
    await pipeline.sink.until(lambda: len(pipeline.sink.at("/alive")) == 300)

    assert pipeline.sink.sequences("/alive") == list(range(1, 301))
    assert len(pipeline.sink.at("/dead")) == 1
    hangs.open.set()
    await pipeline.settled()


async def test_a_destinations_concurrency_holds_for_all_workers_together(pipeline: Pipeline) -> None:
    crowd = Crowd(0.03)
    pipeline.sink.default["/"] = crowd
    pipeline.destination(concurrency=3)
    shops = [pipeline.partner(f"shop-{n}") for n in range(8)]
    for shop in shops:
        pipeline.subscribe(shop.name)
    shops = spread(pipeline, shops, 2)
    await apart(pipeline, 2, each=3)

    await asyncio.gather(*(pipeline.post(shop, 12) for shop in shops))
    await pipeline.settled()

    assert len(pipeline.sink.requests) == 96
    assert crowd.most == 3


async def test_a_destinations_rate_holds_for_all_workers_together(pipeline: Pipeline) -> None:
    pipeline.destination(rate=20.0)
    shops = [pipeline.partner(f"shop-{n}") for n in range(4)]
    for shop in shops:
        pipeline.subscribe(shop.name)
    shops = spread(pipeline, shops, 2)
    await apart(pipeline)

    await asyncio.gather(*(pipeline.post(shop, 12) for shop in shops))
    await pipeline.settled()

    times = sorted(request.began_at for request in pipeline.sink.requests)
    assert len(times) == 48
    for first, began in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= 20 + 20 * (times[last] - began) + 2  # a commit's length before the request
    assert times[-1] - times[0] < 3.5


async def test_where_there_are_fewer_slots_than_workers_they_take_turns(pipeline: Pipeline) -> None:
    crowd = Crowd(0.01)
    pipeline.sink.default["/"] = crowd
    pipeline.destination(concurrency=1)
    shops = [pipeline.partner(f"shop-{n}") for n in range(2)]
    for shop in shops:
        pipeline.subscribe(shop.name)
    shops = spread(pipeline, shops, 2)
    workers = await apart(pipeline)
    await until(lambda: all(tenure_of(w).turns.turnstile(1).others == 1 for w in workers))

    await asyncio.gather(*(pipeline.post(shop, 20) for shop in shops))
    await pipeline.settled()

    assert crowd.most == 1
    shares = Counter(request.partner for request in pipeline.sink.requests[:20])
    assert min(shares[shop.name] for shop in shops) >= 4


# --- P10 -------------------------------------------------------------------------------------------------------------


async def test_a_long_lane_keeps_little_in_memory_and_arrives_in_order(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    running = pipeline.start_worker()
    await pipeline.post(shop)
    await pipeline.settled()  # the lane knows everything: what comes now is handed on to it
    pipeline.sql("UPDATE destinations SET state = 'paused'")
    await configured(pipeline)

    for _ in range(4):
        await pipeline.post(shop, 500)
    await quiet(pipeline)
    tenure = tenure_of(running)
    (lane,) = tenure.feed.lanes.values()
    assert (len(lane.queue), tenure.feed.entries, lane.behind) == (MAILBOX, MAILBOX, True)
    assert tenure.feed.copy_bytes == 2 * sum(entry.copy is not None for entry in lane.queue)

    pipeline.sql("UPDATE destinations SET state = 'active'")
    await configured(pipeline)
    await pipeline.settled(60)

    assert pipeline.sink.sequences() == list(range(1, 2002))
    assert overlaps(pipeline.sink.requests) == []
    assert (tenure.feed.entries, tenure.feed.copy_bytes) == (0, 0)


async def test_an_unordered_lane_that_fails_and_fails_stays_in_its_bounds(pipeline: Pipeline) -> None:
    shop = pipeline.lane(ordering="none", max_attempts=3)
    pipeline.sink.default["/"] = 500
    running = pipeline.start_worker()

    await pipeline.post(shop, 200)
    await pipeline.settled()

    assert Counter(request.sequence for request in pipeline.sink.requests) == dict.fromkeys(range(1, 201), 3)
    assert (tenure_of(running).feed.entries, tenure_of(running).feed.copy_bytes) == (0, 0)
    assert pipeline.sql("SELECT in_flight FROM gates") == [(0,)]
