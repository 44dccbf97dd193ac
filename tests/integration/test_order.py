"""Order, while people and destinations interfere: replay, hold, suspension, a new order (promises P6, P16, P18)."""

import asyncio
import random
import threading
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest

from storage import destinations
from tests.owner import Elsewhere
from tests.pipeline import ACTOR, Pipeline
from tests.sink import Request, overlaps
from tests.watching import Gate, ask, configured, heard, quiet, until

STATES = "SELECT seq, state::text, park_reason FROM deliveries ORDER BY seq"


async def test_whatever_fails_each_partners_events_arrive_first_in_order_and_one_at_a_time(pipeline: Pipeline) -> None:
    chance = random.Random(11)
    shops = [pipeline.partner(f"shop-{n}") for n in range(4)]

    async def moody(request: Request) -> int:
        await asyncio.sleep(chance.random() * 0.004)
        return chance.choice([200, 200, 200, 500, 503, 404, 429])

    for n in range(3):
        pipeline.destination(f"warehouse-{n}", f"/{n}", max_attempts=3)
        pipeline.sink.default[f"/{n}"] = moody
        for shop in shops:
            pipeline.subscribe(shop.name, f"warehouse-{n}")
    pipeline.start_worker("w1")
    pipeline.start_worker("w2")
    for _ in range(4):
        await asyncio.gather(*(pipeline.post(shop, 10) for shop in shops))
        await asyncio.sleep(chance.random() * 0.2)
    await pipeline.settled(30)

    lanes: dict[tuple[str, str], list[Request]] = defaultdict(list)
    for request in pipeline.sink.requests:
        lanes[request.partner, request.path].append(request)
    assert len(lanes) == 12
    for requests in lanes.values():
        sequences = [request.sequence for request in requests]
        assert sequences == sorted(sequences)
        assert list(dict.fromkeys(sequences)) == list(range(1, 41))
        assert overlaps(requests) == []
        assert [request.attempt for request in requests] == [
            sequences[: at + 1].count(sequence) for at, sequence in enumerate(sequences)
        ]


async def test_a_replay_waits_for_what_is_in_flight_and_goes_before_what_is_not(pipeline: Pipeline) -> None:
    shop = pipeline.lane(park_on=[400])
    second = Gate()
    pipeline.sink.steps["/"] += [400, second]
    pipeline.start_worker()
    await pipeline.post(shop, 4)
    await second.reached.wait()

    assert (await ask(pipeline, "replay", 1)).done == 1
    await heard(pipeline)
    assert pipeline.sink.sequences() == [1, 2]
    second.open.set()
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 1, 3, 4]
    assert overlaps(pipeline.sink.requests) == []
    assert pipeline.sink.requests[2].header("hookyard-replay") is not None
    assert pipeline.sink.requests[2].attempt == 2


async def test_a_replay_while_an_outcome_waits_for_its_commit_does_not_take_that_attempt_for_a_strangers(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    """The table still says delivering; a successor would wait out the attempt's budget, its own worker must not."""
    shop = pipeline.lane(park_on=[400], timeout=timedelta(seconds=60))

    async def lock_the_gate(request: Request) -> int:
        await elsewhere.transaction("SELECT 1 FROM gates FOR UPDATE")
        return 200

    pipeline.sink.steps["/"] += [400, lock_the_gate]
    pipeline.start_worker()
    await pipeline.post(shop, 3)
    await elsewhere.until_blocked("hookyard worker journal")

    await ask(pipeline, "replay", 1)
    await until(lambda: pipeline.sql("SELECT count(*) FROM nudges") == [(0,)], steady_seconds=0.3)
    await elsewhere.open.aclose()
    await pipeline.settled(20)

    assert sorted(pipeline.sink.sequences()) == [1, 1, 2, 3]
    assert pipeline.sql("SELECT DISTINCT outcome FROM attempts WHERE seq > 1") == [("success",)]


async def test_replays_of_a_lane_run_in_sequence_whatever_order_they_were_named_in(pipeline: Pipeline) -> None:
    shop = pipeline.lane(park_on=[400])
    pipeline.sink.steps["/"] += [400] * 5
    pipeline.start_worker()
    await pipeline.post(shop, 5)
    await pipeline.settled()

    await ask(pipeline, "replay", 4, 1, 3)
    await pipeline.settled()

    assert pipeline.sink.sequences()[5:] == [1, 3, 4]


async def test_a_replay_has_a_fresh_budget(pipeline: Pipeline) -> None:
    shop = pipeline.lane(max_attempts=2)
    pipeline.sink.steps["/"] += [500, 500, 500, 200]
    pipeline.start_worker()
    await pipeline.post(shop)
    await pipeline.settled()

    await ask(pipeline, "replay", state="parked")
    await pipeline.settled()

    assert [request.attempt for request in pipeline.sink.requests] == [1, 2, 3, 4]
    assert [request.header("hookyard-replay") is not None for request in pipeline.sink.requests] == [
        False,
        False,
        True,
        True,
    ]
    assert pipeline.sql(STATES) == [(1, "delivered", None)]


async def test_a_lane_that_holds_goes_on_after_the_replay(pipeline: Pipeline) -> None:
    shop = pipeline.lane(park_on=[400], on_park="hold")
    pipeline.sink.steps["/"] += [400]
    pipeline.start_worker()
    await pipeline.post(shop, 2)
    await pipeline.sink.until(lambda: pipeline.sink.sequences() == [1])
    await pipeline.post(shop, 1)
    await quiet(pipeline)
    assert pipeline.sink.sequences() == [1]

    await ask(pipeline, "replay", 1)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 1, 2, 3]


async def test_a_lane_that_holds_goes_on_after_the_discard(pipeline: Pipeline) -> None:
    shop = pipeline.lane(park_on=[400], on_park="hold")
    pipeline.sink.steps["/"] += [400]
    pipeline.start_worker()
    await pipeline.post(shop, 3)
    await quiet(pipeline)
    assert pipeline.sink.sequences() == [1]

    await ask(pipeline, "discard", 1)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 3]
    assert pipeline.sql(STATES)[0] == (1, "discarded", None)


async def test_a_hold_is_kept_by_the_next_owner(pipeline: Pipeline) -> None:
    shop = pipeline.lane(park_on=[400], on_park="hold")
    pipeline.sink.steps["/"] += [400]
    first = pipeline.start_worker()
    await pipeline.post(shop, 2)
    await pipeline.sink.until(lambda: pipeline.sink.sequences() == [1])
    await first.finish()

    pipeline.start_worker("w2")
    await quiet(pipeline)
    assert pipeline.sink.sequences() == [1]

    await ask(pipeline, "replay", 1)
    await pipeline.settled()
    assert pipeline.sink.sequences() == [1, 1, 2]


async def test_a_destination_that_is_gone_gets_nothing_more(pipeline: Pipeline) -> None:
    shop, bank = pipeline.lane(), pipeline.partner("bank")
    pipeline.subscribe("bank")
    pipeline.sink.default["/"] = 410
    pipeline.start_worker()
    await pipeline.post(shop, 5)
    await pipeline.settled()
    await pipeline.post(shop, 2)
    await pipeline.post(bank, 2)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1]
    assert {row[1:] for row in pipeline.sql(STATES)} == {("parked", "destination_suspended")}
    assert pipeline.sql("SELECT state FROM destinations") == [("suspended",)]

    pipeline.sink.default["/"] = 200
    with pipeline.store.begin() as connection:
        destinations.resume(connection, "warehouse", actor=ACTOR)
    await pipeline.post(shop)
    await pipeline.settled()
    assert pipeline.sink.sequences() == [1, 8]

    await ask(pipeline, "replay", reason="destination_suspended")
    await pipeline.settled()
    for name, last in (("shop", 7), ("bank", 2)):
        mine = [request.sequence for request in pipeline.sink.requests[2:] if request.partner == name]
        assert mine == list(range(1, last + 1))


async def test_nothing_more_goes_to_a_destination_that_is_gone_while_its_suspension_is_being_written(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = destinations.suspend, threading.Event()

    def slowly(*given: Any) -> int:
        written.wait(10)
        return real(*given)

    monkeypatch.setattr(destinations, "suspend", slowly)
    shop = pipeline.lane()
    pipeline.sink.default["/"] = 410
    pipeline.start_worker()
    await pipeline.post(shop, 3)
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 1)
    await quiet(pipeline)
    assert pipeline.sink.sequences() == [1]

    written.set()
    await pipeline.settled()
    assert pipeline.sink.sequences() == [1]


async def test_an_attempt_in_flight_when_its_destination_is_suspended_is_parked_if_it_fails(pipeline: Pipeline) -> None:
    shop, gate = pipeline.lane(), Gate(500)
    pipeline.sink.steps["/"] += [gate]
    pipeline.start_worker()
    await pipeline.post(shop, 2)
    await gate.reached.wait()

    identity = pipeline.sql("SELECT id FROM destinations")[0][0]
    await asyncio.to_thread(destinations.suspend, pipeline.store, identity, "a person's wish")
    await configured(pipeline)
    gate.open.set()
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1]
    assert {row[1:] for row in pipeline.sql(STATES)} == {("parked", "destination_suspended")}


async def test_a_new_order_starts_when_the_old_lane_is_empty(pipeline: Pipeline) -> None:
    shop, old, new = pipeline.lane(), Gate(), Gate()
    pipeline.sink.steps["/"] += [old, 200, new, new]
    pipeline.start_worker()
    await pipeline.post(shop, 2)
    await old.reached.wait()
    pipeline.subscribe(ordering="none")
    await pipeline.post(shop, 2)
    await quiet(pipeline)
    assert pipeline.sink.sequences() == [1]

    old.open.set()
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 4)
    assert pipeline.sink.sequences() == [1, 2, 3, 4]  # 3 and 4 side by side
    pipeline.subscribe(ordering="partner")
    await pipeline.post(shop, 1)
    await quiet(pipeline)
    assert len(pipeline.sink.requests) == 4

    new.open.set()
    await pipeline.settled()
    assert pipeline.sink.sequences() == [1, 2, 3, 4, 5]


async def test_unordered_events_overtake_one_that_waits(pipeline: Pipeline) -> None:
    shop = pipeline.lane(ordering="none", retry_base=timedelta(seconds=1), retry_cap=timedelta(seconds=1))
    pipeline.sink.steps["/"] += [500]
    pipeline.start_worker()

    await pipeline.post(shop, 5)
    await pipeline.settled()

    assert sorted(pipeline.sink.sequences()[:5]) == [1, 2, 3, 4, 5]
    assert len(pipeline.sink.requests) == 6


async def test_a_paused_destination_holds_its_lanes_and_a_paused_partner_its_own(pipeline: Pipeline) -> None:
    shop, bank = pipeline.lane(), pipeline.partner("bank")
    pipeline.destination("archive", "/archive")
    pipeline.subscribe("bank", "archive")
    pipeline.subscribe("shop", "archive")
    pipeline.sql("UPDATE destinations SET state = 'paused' WHERE name = 'warehouse'")
    pipeline.sql("UPDATE partners SET state = 'paused' WHERE name = 'bank'")
    pipeline.start_worker()
    await pipeline.post(shop, 2)
    await pipeline.post(bank, 2)
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 2)
    await quiet(pipeline)
    assert [(request.path, request.partner) for request in pipeline.sink.requests] == [("/archive", "shop")] * 2

    pipeline.sql("UPDATE destinations SET state = 'active'")
    pipeline.sql("UPDATE partners SET state = 'active'")
    await pipeline.settled()

    assert pipeline.sink.sequences("/") == [1, 2]
    assert len(pipeline.sink.at("/archive")) == 4


async def test_a_replay_waits_for_what_is_in_flight_with_its_key(pipeline: Pipeline) -> None:
    shop = pipeline.partner(order_key="json:/k")
    pipeline.destination(park_on=[400])
    pipeline.subscribe(ordering="key")
    second = Gate()
    pipeline.sink.steps["/"] += [400, second]
    pipeline.start_worker()
    await pipeline.post(shop, 2, order_key=7)
    await second.reached.wait()
    await pipeline.post(shop, 1, order_key=7)
    await pipeline.post(shop, 1, order_key=8)

    await ask(pipeline, "replay", 1)
    await heard(pipeline)
    assert pipeline.sink.sequences() == [1, 2, 4]
    second.open.set()
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 4, 1, 3]
