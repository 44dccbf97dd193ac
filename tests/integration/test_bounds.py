"""What one statement may carry and one lane may hold, however large or many the events are."""

import asyncio
from datetime import timedelta

from storage import backfills, gates
from storage.database import Connection
from storage.lanes import BYTES_AT_ONCE, dispatch, read_events
from tests.owner import Owner
from tests.pipeline import ACTOR, Pipeline

MIB = 1 << 20


async def test_a_dispatch_brings_no_more_than_its_bytes_of_copies_along(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.lane()
    await pipeline.post(shop, 20, body=b"x" * MIB)

    events = await dispatch(owner.connection, owner.token, {shop.id: True}, 64)

    copies = [event.copy for event in events if event.copy is not None]
    assert len(events) == 20
    assert sum(len(copy.body) for copy in copies) == BYTES_AT_ONCE


async def test_large_events_are_read_in_several_answers_and_all_of_them(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    answers = await pipeline.post(shop, 20, body=b"x" * MIB)
    connection = Connection(pipeline.database_url, "test")

    places = [(shop.id, answer.sequence, answer.received_at) for answer in answers if answer.received_at]
    found = await read_events(connection, places)

    assert sorted(found) == [(shop.id, n) for n in range(1, 21)]
    await connection.close()


async def test_a_backlog_of_large_events_is_delivered_and_leaves_others_alone(pipeline: Pipeline) -> None:
    shop = pipeline.lane(ordering="none", concurrency=20)
    other = pipeline.lane("other", "elsewhere", path="/other")
    await asyncio.gather(*(pipeline.post(shop, body=b"x" * (4 * MIB)) for _ in range(20)))
    pipeline.start_worker()

    await pipeline.post(other, 5)
    await pipeline.settled(60)

    assert len(pipeline.sink.at("/")) == 20
    assert pipeline.sink.sequences("/other") == [1, 2, 3, 4, 5]


async def test_the_lane_of_a_paused_destination_is_bounded_too(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    pipeline.sql("UPDATE subscriptions SET max_waiting = 3")
    pipeline.sql("UPDATE destinations SET state = 'paused'")
    pipeline.start_worker()

    await pipeline.post(shop, 5)

    await pipeline.until_sql("SELECT seq, reason FROM parked ORDER BY seq", [(4, "lane_full"), (5, "lane_full")])


async def test_a_destination_is_suspended_for_failing_that_long_not_for_having_failed_that_long_ago(
    pipeline: Pipeline,
) -> None:
    shop = pipeline.lane(max_attempts=50, suspend_after=timedelta(seconds=1))
    connection = Connection(pipeline.database_url, "test")
    pipeline.sink.default["/"] = 404
    pipeline.start_worker()
    await pipeline.post(shop)
    await pipeline.until_sql("SELECT failed_at - failing_since > interval '1 s' FROM gates", [(True,)])
    assert len(await gates.failing_too_long(connection)) == 1

    pipeline.sql("UPDATE gates SET failing_since = now() - interval '1 day'")
    pipeline.sql("UPDATE gates SET failed_at = failing_since + interval '10 ms'")
    assert await gates.failing_too_long(connection) == []
    await connection.close()


async def test_a_backfill_beyond_the_cursor_is_not_passed_over(pipeline: Pipeline, owner: Owner) -> None:
    shop = pipeline.partner("shop")
    pipeline.destination("warehouse")
    await pipeline.post(shop, 3)
    pipeline.subscribe("shop", "warehouse")
    await asyncio.to_thread(backfills.run, pipeline.store, "shop", "warehouse", backfills.Span(), actor=ACTOR)
    await owner.connection.fetch("SELECT give_back(%s, NULL)", (owner.token,))
    pipeline.start_worker()

    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 3]
