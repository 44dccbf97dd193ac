"""Hints: whatever Redis does, everything is delivered, in order, and nobody is held up (promise P12)."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from storage.hints import Announcer, Keys, Listener
from storage.schema import migrate
from tests.pipeline import Pipeline, running_pipeline
from tests.servers import Servers
from tests.sink import overlaps
from tests.watching import ready

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
async def deaf(database_url: str) -> AsyncIterator[Pipeline]:
    """A pipeline whose Redis is away."""
    async with running_pipeline(database_url, NOWHERE) as pipeline:
        yield pipeline


def keys_of(pipeline: Pipeline) -> Keys:
    return Keys(str(pipeline.sql("SELECT incarnation FROM installation")[0][0]))


def in_order(pipeline: Pipeline, n: int) -> None:
    assert pipeline.sink.sequences() == list(range(1, n + 1))
    assert overlaps(pipeline.sink.requests) == []


async def test_without_redis_a_poll_finds_everything(deaf: Pipeline) -> None:
    shop = deaf.lane()
    await ready(deaf.start_worker())

    answered = []
    for _ in range(30):
        began = time.monotonic()
        await deaf.post(shop)
        answered.append(time.monotonic() - began)
    await deaf.settled()

    in_order(deaf, 30)
    assert sorted(answered)[-2] < 0.5


async def test_a_hint_wakes_the_owner_at_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from workers import tenure

    monkeypatch.setattr(tenure, "POLL_SECONDS", 600)
    shop = pipeline.lane()
    await ready(pipeline.start_worker())

    for n in range(5):
        await pipeline.post(shop)
        await pipeline.sink.until(lambda n=n: len(pipeline.sink.requests) == n + 1, seconds=2)  # type: ignore[misc]


async def test_a_redis_that_forgets_everything_again_and_again_costs_nothing(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    await ready(pipeline.start_worker())
    finished = asyncio.Event()

    async def forget() -> None:
        client = redis.asyncio.Redis.from_url(pipeline.redis_url)
        while not finished.is_set():
            await client.flushall()
            await asyncio.sleep(0.003)
        await client.aclose()

    forgetting = asyncio.create_task(forget())
    for _ in range(40):
        await pipeline.post(shop, 5)
    await pipeline.settled()
    finished.set()
    await forgetting

    in_order(pipeline, 200)


async def wrong(client: Any, keys: Keys, shop: Any) -> None:
    bell, stream = keys.bell(shop.shard), keys.stream(shop.shard, shop.id)
    for sequence in ("999999999", "0", "-7", "1e300", "nan", "many", ""):
        await client.xadd(stream, {"s": sequence})
        await client.xadd(bell, {"p": str(shop.id)})


async def garbage(client: Any, keys: Keys, shop: Any) -> None:
    bell = keys.bell(shop.shard)
    for text in ("777", "nobody", "-1", f"{1 << 31}", "9" * 40, "1.5", "", "\x00\xff", f"{shop.id} " * 500):
        await client.xadd(bell, {"p": text})
    await client.xadd(bell, {"other": "field"})


async def other_types(client: Any, keys: Keys, shop: Any) -> None:
    bell, stream = keys.bell(shop.shard), keys.stream(shop.shard, shop.id)
    await client.delete(stream)
    await client.set(stream, "a string")
    await client.xadd(bell, {"p": str(shop.id)})


async def bell_of_wood(client: Any, keys: Keys, shop: Any) -> None:
    bell = keys.bell(shop.shard)
    await client.delete(bell)
    await client.set(bell, "a string")


@pytest.mark.parametrize("mischief", [wrong, garbage, other_types, bell_of_wood], ids=lambda each: each.__name__)
async def test_hints_that_are_wrong_are_only_hints(pipeline: Pipeline, mischief: Any) -> None:
    shop = pipeline.lane()
    running = pipeline.start_worker()
    await ready(running)
    tenure = running.worker._tenure
    client = redis.asyncio.Redis.from_url(pipeline.redis_url)

    await pipeline.post(shop, 3)
    for _ in range(3):
        await mischief(client, keys_of(pipeline), shop)
        await pipeline.post(shop, 2)
    await pipeline.settled()

    await client.aclose()
    in_order(pipeline, 9)
    assert running.worker._tenure is tenure


async def test_after_garbage_the_bell_is_heard_again(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from workers import tenure

    monkeypatch.setattr(tenure, "POLL_SECONDS", 600)
    shop = pipeline.lane()
    await ready(pipeline.start_worker())
    client = redis.asyncio.Redis.from_url(pipeline.redis_url)
    for mischief in (garbage, wrong, other_types):
        await mischief(client, keys_of(pipeline), shop)
    await client.aclose()

    await pipeline.post(shop)

    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 1, seconds=3)


async def test_a_frozen_redis_holds_nobody_up(own_servers: Servers) -> None:
    url = own_servers.url_of("hookyard")
    await asyncio.to_thread(migrate, url)
    async with running_pipeline(url, own_servers.redis_url) as pipeline:
        shop = pipeline.lane()
        await ready(pipeline.start_worker())
        await pipeline.post(shop, 3)
        os.kill(own_servers.valkey_process.pid, signal.SIGSTOP)
        try:
            answered = []
            for _ in range(40):
                began = time.monotonic()
                await pipeline.post(shop)
                answered.append(time.monotonic() - began)
            await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 43, seconds=6)
        finally:
            os.kill(own_servers.valkey_process.pid, signal.SIGCONT)
        await pipeline.post(shop, 3)
        await pipeline.settled()

        in_order(pipeline, 46)
        assert sorted(answered)[-2] < 0.5


async def test_the_redis_of_another_database_says_nothing_to_this_one(redis_url: str) -> None:
    announcer, listener = Announcer(redis_url, Keys("11111111")), Listener(redis_url, Keys("22222222"))

    announcer.announce({(3, 7): 41})
    await announcer.close()

    assert await listener.hear([3]) == {}
    await listener.close()


async def test_what_rang_is_heard_once_with_its_newest_sequence_and_streams_do_not_grow(redis_url: str) -> None:
    keys = Keys("11111111")
    announcer, listener = Announcer(redis_url, keys), Listener(redis_url, keys)
    for sequence in range(1, 2001):
        announcer.announce({(3, 7): sequence})
        if sequence % 10 == 0:
            await asyncio.sleep(0)
    await announcer.close()

    with redis.Redis.from_url(redis_url) as client:
        assert client.xlen(keys.stream(3, 7)) < 300
        assert client.xlen(keys.bell(3)) < 600
    assert await listener.hear([3, 4]) == {7: 2000}
    assert await listener.hear([3, 4]) == {}
    await listener.close()


async def heard(listener: Listener, shards: list[int], n: int) -> dict[int, int]:
    """What was heard once there was news of n partners."""
    found: dict[int, int] = {}
    async with asyncio.timeout(5):
        while len(found) < n:
            found |= await listener.hear(shards)
    return found


async def test_something_else_in_the_place_of_a_bell_silences_no_other_bell(redis_url: str) -> None:
    keys = Keys("11111111")
    announcer, listener = Announcer(redis_url, keys), Listener(redis_url, keys)
    with redis.Redis.from_url(redis_url) as client:
        client.set(keys.bell(3), "a string")

    announcer.announce({(4, 7): 41})
    assert await heard(listener, [3, 4], 1) == {7: 41}

    assert listener.available
    announcer.announce({(3, 6): 17})
    assert await heard(listener, [3, 4], 1) == {6: 17}
    await announcer.close()
    await listener.close()


async def test_whoever_rings_puts_the_bell_back(redis_url: str) -> None:
    keys = Keys("11111111")
    announcer, listener = Announcer(redis_url, keys), Listener(redis_url, keys)
    with redis.Redis.from_url(redis_url) as client:
        client.hset(keys.bell(3), "a", "hash")

    announcer.announce({(3, 6): 17, (4, 7): 41})
    await announcer.close()

    assert (announcer.available, announcer.dropped) == (True, 0)
    assert await heard(listener, [3, 4], 2) == {6: 17, 7: 41}
    await listener.close()


async def test_hints_that_redis_does_not_take_are_dropped_and_counted() -> None:
    announcer = Announcer(NOWHERE, Keys("11111111"))

    for sequence in range(1, 4):
        announcer.announce({(3, 7): sequence, (3, 8): sequence})
    await announcer.close()

    assert (announcer.dropped, announcer.available, announcer.depth) == (2, False, 0)
