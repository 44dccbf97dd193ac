"""Everything at once: many partners, good and bad destinations, and losses in the middle of it."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from tests.acceptance.invariants import changed, lanes_violations, numbering
from tests.acceptance.product import Product
from tests.acceptance.receiver import Arrival, Receiver, Say, always, silent
from tests.acceptance.sender import JSON, Accepted, Sender, sending

PARTNERS = [f"partner-{number:02}" for number in range(20)]
EVENTS = 250  # per partner
RARE = "report.ready"
RARE_EVERY = 5
QUICK = (
    "--retry-base",
    "20ms",
    "--retry-factor",
    "2",
    "--retry-cap",
    "500ms",
    "--timeout",
    "2s",
    "--concurrency",
    "50",
)
DESTINATIONS = {
    # both answer at once
    "ledger": QUICK,
    "mailer": QUICK,
    # answers 500 until everything has been sent, then recovers
    "warehouse": (*QUICK, "--max-attempts", "1000", "--breaker-reset", "300ms"),
    # answers 400, always
    "legacy": (*QUICK, "--max-attempts", "2"),
    # never answers; it gets the rare events only, and so many failures do not open its breaker
    "silent": (*QUICK, "--max-attempts", "2", "--timeout", "150ms", "--breaker-failures", "1000"),
}
SUBSCRIBERS = {
    "ledger": PARTNERS[:12],
    "mailer": PARTNERS[8:],
    "warehouse": PARTNERS[::3],
    "legacy": PARTNERS[1::5],
    "silent": PARTNERS[2::5],
}
GOOD = ("ledger", "mailer", "warehouse")
KILL_AFTER = 1_500  # events acknowledged
FLUSH_AFTER = (3_000, len(PARTNERS) * EVENTS)  # the second time nobody sends any more who would ring the bell again


@pytest.fixture
def pair(redis_url: str) -> Iterator[Product]:
    """A product with two workers, on a Valkey that can be emptied."""
    with tempfile.TemporaryDirectory(prefix="hookyard-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        made = Product(Path(name), WORKER_PROCESSES="2", LEASE_SECONDS="3", REDIS_URL=redis_url)
        try:
            yield made.start()
        finally:
            made.destroy()


@dataclass(slots=True)
class Weather:
    """What happens while the partners send."""

    product: Product
    redis_url: str
    acknowledged: int = 0

    async def after(self) -> None:
        """One more event is acknowledged: perhaps it is time for a loss."""
        self.acknowledged += 1
        if self.acknowledged == KILL_AFTER:
            self.product.kill("worker")
        if self.acknowledged in FLUSH_AFTER:
            await asyncio.to_thread(self._flush)

    def _flush(self) -> None:
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushall()


@pytest.mark.slow
async def test_nothing_is_lost_or_reordered_when_a_worker_dies_and_valkey_is_emptied_amid_bad_destinations(
    pair: Product, redis_url: str, receiver: Receiver
) -> None:
    recovered = asyncio.Event()
    receiver.behaviours |= {
        "/warehouse": lambda _: Say(200 if recovered.is_set() else 500),
        "/legacy": always(400),
        "/silent": silent,
    }
    await _set_up(pair, receiver)

    began = time.monotonic()
    weather = Weather(pair, redis_url)
    accepted = await _send_all(pair, weather)
    await receiver.until(lambda: sum(arrival.path == "/warehouse" for arrival in receiver.arrivals) >= 12)
    assert not receiver.successes("/warehouse")
    recovered.set()
    await pair.settled(seconds=75)
    print(f"sent and settled in {time.monotonic() - began:.1f} s: {len(receiver.arrivals)} requests arrived")

    assert len(accepted) == len(PARTNERS) * EVENTS
    assert numbering(accepted) == {}
    assert changed(receiver.arrivals, accepted) == []
    assert lanes_violations(receiver.arrivals, repeats_explained=1) == {}
    for destination in GOOD:
        assert _delivered(receiver.at(f"/{destination}")) == {event.id for event in _owed(destination, accepted)}
    assert _attempts(receiver.at("/legacy")) == {2}
    assert await _listed(pair) == Counter(_fate(event) for event in accepted)
    assert await _parked(pair) == {
        (event.id, destination, "attempts_exhausted")
        for destination in ("legacy", "silent")
        for event in _owed(destination, accepted)
    }


async def _set_up(product: Product, receiver: Receiver) -> None:
    """A few commands at a time: each is a process of half a second."""
    commands: list[tuple[str, ...]] = [("partner", "add", partner) for partner in PARTNERS]
    commands += [("destination", "add", name, receiver.url(f"/{name}"), *how) for name, how in DESTINATIONS.items()]
    await _run_all(product, commands)
    types = {"silent": ("--types", RARE)}
    await _run_all(
        product,
        [
            ("subscribe", who, where, *types.get(where, ()))
            for where, partners in SUBSCRIBERS.items()
            for who in partners
        ],
    )


async def _run_all(product: Product, commands: list[tuple[str, ...]]) -> None:
    left = iter(commands)

    async def run() -> None:
        for command in left:
            await product.cli(*command)

    await asyncio.gather(*(run() for _ in range(3)))


async def _send_all(product: Product, weather: Weather) -> list[Accepted]:
    """Each partner sends one event after the other, all partners at once."""
    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(sending(partner, product.ingest_port)) for partner in PARTNERS]
        await asyncio.gather(*(_send(sender, weather) for sender in senders))
        return [event for sender in senders for event in sender.accepted]


async def _send(sender: Sender, weather: Weather) -> None:
    for number in range(EVENTS):
        kind = "order.changed" if number % RARE_EVERY else RARE
        body = json.dumps({"type": kind, "number": number, "noise": os.urandom(number % 97).hex()}).encode()
        await sender.send(body, JSON, kind=kind)
        await weather.after()


def _owed(destination: str, accepted: list[Accepted]) -> list[Accepted]:
    return [
        event
        for event in accepted
        if event.partner in SUBSCRIBERS[destination] and (destination != "silent" or event.kind == RARE)
    ]


def _fate(event: Accepted) -> tuple[str, str]:
    """The state of an event is that of its least finished delivery."""
    is_parked = any(event in _owed(destination, [event]) for destination in ("legacy", "silent"))
    return event.partner, "parked" if is_parked else "delivered"


def _delivered(arrivals: list[Arrival]) -> set[str]:
    return {arrival.id for arrival in arrivals if arrival.is_success}


def _attempts(arrivals: list[Arrival]) -> set[int]:
    """How often events were tried, one extra request forgiven where the killed worker had one in flight."""
    tried = Counter(arrival.id for arrival in arrivals)
    lanes = {arrival.partner for arrival in arrivals}
    more = [number for number in tried.values() if number != 2]
    assert len(more) <= len(lanes), more
    assert set(more) <= {3}, more
    return set(tried.values()) - {3}


async def _listed(product: Product) -> Counter[tuple[str, str]]:
    """Partner and state of every event that the product lists."""
    return Counter((row["partner"], row["state"]) for row in await product.ask("event", "list", "--limit", "10000"))


async def _parked(product: Product) -> set[tuple[str, str, str]]:
    return {(row["id"], row["destination"], row["park_reason"]) for row in await product.ask("parked")}
