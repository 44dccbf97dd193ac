"""`--order key`: order per value of the partner's order key; different keys flow side by side."""

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import Any
from uuid import uuid4

from storage import replays
from storage.database import Connection
from storage.lanes import Claim, save
from storage.leases import tend
from tests.pipeline import ACTOR, Pipeline
from tests.sink import Request, overlaps


def keyed(pipeline: Pipeline, **options: Any) -> Any:
    shop = pipeline.partner(order_key="json:/k")
    pipeline.destination(**options)
    pipeline.subscribe(ordering="key")
    return shop


async def post_keys(pipeline: Pipeline, shop: Any, keys: list[int]) -> None:
    for key in keys:
        await pipeline.post(shop, body=b"%d" % key, order_key=key)


def by_key(requests: list[Request]) -> dict[bytes, list[Request]]:
    found: dict[bytes, list[Request]] = defaultdict(list)
    for request in requests:
        found[request.body].append(request)
    return found


async def test_each_key_keeps_its_order_and_a_slow_key_holds_up_no_other(pipeline: Pipeline) -> None:
    shop = keyed(pipeline)
    release = asyncio.Event()

    async def slow_first_key(request: Request) -> int:
        if request.body == b"1":
            await release.wait()
        return 200

    pipeline.sink.default["/"] = slow_first_key
    pipeline.start_worker()

    await post_keys(pipeline, shop, [1, 2, 3, 1, 2, 3, 1])
    await pipeline.sink.until(
        lambda: sum(r.body != b"1" and r.ended_at is not None for r in pipeline.sink.requests) == 4
    )
    assert len(by_key(pipeline.sink.requests)[b"1"]) == 1
    release.set()
    await pipeline.settled()

    for requests in by_key(pipeline.sink.requests).values():
        assert [r.sequence for r in requests] == sorted(r.sequence for r in requests)
        assert overlaps(requests) == []


async def test_thousands_that_wait_behind_one_key_take_no_room_and_stop_nobody(pipeline: Pipeline) -> None:
    shop = keyed(pipeline, timeout=timedelta(seconds=30))
    release = asyncio.Event()

    async def slow_first_key(request: Request) -> int:
        if request.body == b"1":
            await release.wait()
        return 200

    pipeline.sink.default["/"] = slow_first_key
    running = pipeline.start_worker()

    await asyncio.gather(*(pipeline.post(shop, 200, body=b"1", order_key=1) for _ in range(10)))
    await post_keys(pipeline, shop, [2, 3])
    await pipeline.sink.until(lambda: {r.body for r in pipeline.sink.requests} == {b"1", b"2", b"3"})

    running.worker.show()
    assert running.registry.get_sample_value("hookyard_queue_depth", {"queue": "lanes"}) == 0
    release.set()
    await pipeline.settled(60)
    first = [r.sequence for r in pipeline.sink.requests if r.body == b"1"]
    assert first == list(range(1, 2001))


async def test_a_retry_holds_its_key_alone(pipeline: Pipeline) -> None:
    shop = keyed(pipeline, max_attempts=10)
    pipeline.sink.steps["/"] += [500]
    pipeline.start_worker()

    await post_keys(pipeline, shop, [1, 2, 1, 2])
    await pipeline.settled()

    for requests in by_key(pipeline.sink.requests).values():
        assert [r.sequence for r in requests] == sorted(r.sequence for r in requests)
    assert len(pipeline.sink.requests) == 5


async def test_keys_go_on_in_order_under_the_next_owner(pipeline: Pipeline) -> None:
    shop = keyed(pipeline, concurrency=5)
    pipeline.sink.default["/"] = wait_a_little
    first = pipeline.start_worker("w1")
    posting = asyncio.create_task(post_keys(pipeline, shop, [1 + n % 7 for n in range(300)]))
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) > 50)
    await first.finish()
    pipeline.start_worker("w2")
    await posting
    await pipeline.settled(30)

    for requests in by_key(pipeline.sink.requests).values():
        sequences = [r.sequence for r in requests]
        assert list(dict.fromkeys(sequences)) == sorted(set(sequences))
        assert overlaps(requests) == []


async def test_a_replay_of_a_key_comes_before_what_waits_with_it(pipeline: Pipeline) -> None:
    shop = keyed(pipeline, max_attempts=1)
    pipeline.sink.steps["/"] += [500]
    pipeline.start_worker()
    await post_keys(pipeline, shop, [1])
    await pipeline.until_sql("SELECT count(*) FROM parked", [(1,)])
    release = asyncio.Event()

    async def held(request: Request) -> int:
        await release.wait()
        return 200

    pipeline.sink.default["/"] = held
    await post_keys(pipeline, shop, [1, 1])
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 2)
    await asyncio.to_thread(replays.run, pipeline.store, "replay", replays.Selection(), actor=ACTOR)
    release.set()
    await pipeline.settled()

    assert [r.sequence for r in pipeline.sink.requests] == [1, 2, 1, 3]


async def test_a_claim_is_refused_while_an_elder_of_its_key_is_open(pipeline: Pipeline) -> None:
    shop = keyed(pipeline)
    await post_keys(pipeline, shop, [1, 2, 1])
    connection = Connection(pipeline.database_url, "test")

    token = uuid4()
    await tend(connection, token, "test", timedelta(seconds=30))
    await connection.fetch("SELECT * FROM dispatch(%s, %s, %s, 10, 1000)", (token, [shop.id], [False]))
    ((destination_id,),) = await connection.fetch("SELECT id FROM destinations")
    rows = await connection.fetch("SELECT seq, received_at FROM deliveries ORDER BY seq")
    claims = [Claim(shop.id, destination_id, seq, at, uuid4(), 1000) for seq, at in rows]
    _, begun = await save(connection, token, [], [claims[2], claims[1]])
    assert [b.refusal for b in begun] == ["order", None]
    await connection.close()


async def wait_a_little(request: Request) -> int:
    await asyncio.sleep(0.01)
    return 200
