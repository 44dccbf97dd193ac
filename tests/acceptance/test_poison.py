"""A delivery that kills whoever sends it: it costs its worker two lives, then it is parked, alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.acceptance.product import Product, birth
from tests.acceptance.receiver import Receiver, Say
from tests.acceptance.sender import sending

SHIM = Path(__file__).parents[1] / "poison"
POISON = b'{"order": "it kills its process"}'
POLICY = ("--timeout", "1s", "--max-attempts", "1", "--breaker-failures", "1000")


@pytest.fixture
async def poisoned(own_product: Product) -> Product:
    """A product in whose processes such a body is deadly."""
    own_product.use(PYTHONPATH=str(SHIM), HOOKYARD_LEASE_SECONDS="1")
    return await asyncio.to_thread(own_product.start)


@pytest.mark.slow
async def test_poison_is_parked_alone_and_everything_else_is_delivered(poisoned: Product, receiver: Receiver) -> None:
    product = poisoned
    receiver.behaviours["/slow"] = lambda _: Say(200, after_seconds=0.4)
    await asyncio.gather(
        product.lane("bakery", "mill", receiver.url("/mill"), *POLICY),
        product.lane("florist", "slow", receiver.url("/slow"), *POLICY),
    )
    first_worker = product.processes("worker")
    async with sending("bakery", product.ingest_port) as bakery, sending("florist", product.ingest_port) as florist:
        for body in (b"1", POISON, b"3"):
            await bakery.send(body)
            await florist.send(b"roses")  # some of them are in flight when the worker dies of its neighbour
        await product.settled(seconds=90)

        (worker,) = product.processes("worker")
        born = birth(worker)
        assert [worker] != first_worker
        assert receiver.successes("/mill") == [1, 3]
        assert list(dict.fromkeys(receiver.successes("/slow"))) == [1, 2, 3]
        (parked,) = await product.ask("parked")
        poison = bakery.accepted[1]
        assert (parked["id"], parked["park_reason"]) == (poison.id, "worker_crashed")
        assert await outcomes(product, poison.id) == ["lost", "lost", "crashed"]
        for event in florist.accepted:
            *before, last = await outcomes(product, event.id)
            assert (set(before) <= {"lost"}, last) == (True, "success")

        replayed = await asyncio.to_thread(product.run, "replay", poison.id, "--wait", "--json")
        assert (replayed.code, replayed.document["failed"]) == (1, 1)
        assert await outcomes(product, poison.id) == ["lost", "lost", "crashed", "crashed"]
        await bakery.send(b"4")
        await product.settled()
        assert receiver.successes("/mill") == [1, 3, 4]
        assert birth(worker) == born
        async with asyncio.timeout(30):
            while 'hookyard_parked_total{destination="mill",reason="worker_crashed"} 2\n' not in await metrics(product):
                await asyncio.sleep(0.2)


async def outcomes(product: Product, event: str) -> list[str]:
    """Of an event's only delivery, attempt by attempt."""
    (delivery,) = (await product.ask("event", "show", event))["deliveries"]
    assert [attempt["number"] for attempt in delivery["attempts"]] == list(range(1, len(delivery["attempts"]) + 1))
    return [attempt["outcome"] for attempt in delivery["attempts"]]


async def metrics(product: Product) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{product.ops_port}/metrics", timeout=30)).text
