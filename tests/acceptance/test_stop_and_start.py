"""The system stops, dies, loses parts and starts again; nothing is lost, nothing is left behind, order is kept."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial
from itertools import count, pairwise

import pytest

from tests.acceptance.invariants import changed, lanes_violations, numbering
from tests.acceptance.product import Product, until
from tests.acceptance.receiver import Receiver, Say, fine, silent
from tests.acceptance.sender import Sender, sending
from tests.raw_http import ask, head

POLICY = ("--retry-base", "50ms", "--retry-cap", "500ms", "--breaker-failures", "1000")
STOP_SECONDS = 35
EFFECTIVE_SECONDS = 2.0
SERVERS = ("valkey", "postgres")


@pytest.mark.slow
async def test_a_stop_drains_and_the_next_start_carries_on(own_product: Product, receiver: Receiver) -> None:
    product = own_product
    await asyncio.to_thread(product.start)
    receiver.behaviours |= {"/slow": lambda _: Say(200, after_seconds=3), "/mute": silent}
    await asyncio.gather(
        product.lane("bakery", "slow", receiver.url("/slow"), *POLICY),
        product.lane("florist", "mute", receiver.url("/mute"), "--timeout", "5m", *POLICY),
    )
    async with sending("bakery", product.ingest_port) as bakery, sending("florist", product.ingest_port) as florist:
        for _ in range(5):
            await bakery.send(b'{"bread": 1}')
            await florist.send(b'{"roses": 1}')
    await receiver.until(lambda: len(receiver.arrivals) == 2)

    seconds = await asyncio.to_thread(product.stop, signal.SIGTERM)
    assert product.process
    assert product.process.returncode == 0
    assert seconds < STOP_SECONDS
    assert product.survivors() == []
    slow, mute = receiver.at("/slow"), receiver.at("/mute")
    assert [(arrival.sequence, arrival.status) for arrival in slow] == [(1, 200)]  # finished; no other was begun
    assert [(arrival.sequence, arrival.status) for arrival in mute] == [(1, None)]  # interrupted

    receiver.behaviours |= {"/slow": fine, "/mute": fine}
    await asyncio.to_thread(product.start)
    await product.settled()
    assert receiver.successes("/slow") == receiver.successes("/mute") == [1, 2, 3, 4, 5]
    assert len(receiver.at("/slow")) == 5
    assert len(receiver.at("/mute")) == 6
    assert await product.ask("parked") == []
    shown = await product.ask("event", "show", florist.accepted[0].id)
    (delivery,) = shown["deliveries"]
    assert [attempt["outcome"] for attempt in delivery["attempts"]] == ["interrupted", "success"]
    assert changed(receiver.arrivals, bakery.accepted + florist.accepted) == []
    assert lanes_violations(receiver.arrivals) == {}


@pytest.mark.slow
async def test_a_killed_supervisor_takes_all_with_it_and_loses_nothing(
    own_product: Product, receiver: Receiver
) -> None:
    product = own_product
    await asyncio.to_thread(product.start)
    receiver.behaviours["/shelf"] = lambda _: Say(200, after_seconds=0.02)
    await product.lane("bakery", "shelf", receiver.url("/shelf"), "--timeout", "1s", *POLICY)
    async with sending("bakery", product.ingest_port) as bakery:
        for number in range(100):
            await bakery.send(b'{"bread": %d}' % number)
        posting = asyncio.create_task(_insist_for_ever(bakery))
        await receiver.until(lambda: len(receiver.arrivals) > 20)

        await asyncio.to_thread(product.stop, signal.SIGKILL)
        await asyncio.to_thread(until, lambda: not product.survivors(), 5, lambda: f"alive: {product.survivors()}")
        await asyncio.to_thread(product.start)
        known = len(bakery.accepted)
        await receiver.until(lambda: len(bakery.accepted) > known + 5)
        posting.cancel()
        await asyncio.wait([posting])
    await product.settled()

    assert numbering(bakery.accepted) == {}
    assert {event.id for event in bakery.accepted} <= {a.id for a in receiver.arrivals if a.is_success}
    assert await product.ask("parked") == []
    assert lanes_violations(receiver.arrivals, repeats_explained=1) == {}


async def test_a_second_up_on_the_same_data_is_refused_in_one_line(product: Product) -> None:
    process = product.launch()
    try:
        assert await asyncio.to_thread(process.wait, 15) == 1
    finally:
        process.kill()
    (line,) = product.lines
    assert line.startswith("hookyard: ")
    assert "already running" in line
    assert product.is_running


@pytest.mark.slow
async def test_every_killed_process_comes_back_and_events_flow(product: Product, receiver: Receiver) -> None:
    await product.lane("kiosk", "stand", receiver.url("/stand"), "--timeout", "1s", *POLICY)
    async with sending("kiosk", product.ingest_port) as kiosk:
        await kiosk.send(b'{"paper": 0}')
        for role in ("ingest", "worker", "jobs", "ops", *SERVERS):
            old = product.kill(role)
            await asyncio.to_thread(until, partial(_is_new, product, role, old), 15, partial(str, role))
            sent = await kiosk.insist(b'{"paper": "%s"}' % role.encode(), f"msg_{role}")
            await receiver.until(partial(_has_delivered, receiver, sent.id))
    assert numbering(kiosk.accepted) == {}
    assert changed(receiver.arrivals, kiosk.accepted) == []
    assert lanes_violations(receiver.arrivals, repeats_explained=6) == {}
    await _ready(product)


async def test_what_is_made_at_run_time_is_effective_within_two_seconds(product: Product, receiver: Receiver) -> None:
    await product.cli("partner", "add", "pop-up")
    await product.cli("destination", "add", "stall", receiver.url("/stall"), *POLICY)
    async with sending("pop-up", product.ingest_port) as pop_up:
        await pop_up.send(b'{"nobody": "is subscribed"}')  # fails where it is not known within two seconds
        await product.cli("subscribe", "pop-up", "stall")
        await pop_up.send(b'{"number": 2}')
        await receiver.until(lambda: receiver.successes("/stall") == [2], EFFECTIVE_SECONDS)

        await product.cli("destination", "edit", "stall", "--url", receiver.url("/hall"))
        await _arriving_at("/hall", pop_up, receiver)
        await product.cli("destination", "pause", "stall")
        await asyncio.sleep(EFFECTIVE_SECONDS)  # by then it must hold, and not before
        seen = len(receiver.arrivals)
        waiting = await pop_up.send(b'{"while": "paused"}')
        assert (await product.ask("event", "show", waiting.id))["state"] in ("received", "queued")
        assert len(receiver.arrivals) == seen
        await product.cli("destination", "resume", "stall")
        await receiver.until(lambda: receiver.arrivals[-1].id == waiting.id, EFFECTIVE_SECONDS)
        await product.cli("partner", "remove", "pop-up", "--yes")
        await _until_refused(pop_up)
    assert lanes_violations(receiver.arrivals) == {}


async def test_a_destination_that_recovers_is_probed_after_its_breaker_reset_and_no_later(
    product: Product, receiver: Receiver
) -> None:
    recovered = asyncio.Event()
    receiver.behaviours["/clinic"] = lambda _: Say(200 if recovered.is_set() else 500)
    await product.cli(
        "destination", "add", "clinic", receiver.url("/clinic"), "--breaker-reset", "500ms", "--retry-base", "10ms",
        "--retry-cap", "20ms", "--breaker-failures", "3", "--max-attempts", "1000",
    )  # fmt: skip
    partners = ("ward-a", "ward-b", "ward-c")
    for partner in partners:  # lanes that all want to be the probe
        await product.cli("partner", "add", partner)
        await product.cli("subscribe", partner, "clinic")
    for partner in partners:
        async with sending(partner, product.ingest_port) as ward:
            await ward.send(b"{}")
            await ward.send(b"{}")

    await receiver.until(lambda: len(receiver.arrivals) >= 12)
    probes = receiver.arrivals[-6:]  # one at a time, a reset apart
    assert all(after.began_at - before.began_at > 0.4 for before, after in pairwise(probes))
    recovered.set()
    await receiver.until(lambda: len(receiver.successes("/clinic")) == 6, seconds=5)
    assert lanes_violations(receiver.arrivals) == {}


async def _insist_for_ever(sender: Sender) -> None:
    """As a partner's client does, through whatever happens."""
    for number in count(1):
        await sender.insist(b'{"more": %d}' % number, f"msg_{number}", seconds=60)
        await asyncio.sleep(0.01)


async def _arriving_at(path: str, sender: Sender, receiver: Receiver) -> None:
    """Within the time that a change may take, what is sent arrives there."""
    deadline = time.monotonic() + EFFECTIVE_SECONDS
    while receiver.arrivals[-1].path != path:
        assert time.monotonic() < deadline, f"nothing arrives at {path}"
        sent = await sender.send(b"{}")
        await receiver.until(partial(_has_delivered, receiver, sent.id))


async def _until_refused(sender: Sender) -> None:
    deadline = time.monotonic() + EFFECTIVE_SECONDS
    while (answer := await sender.post(b"{}")).status != 404:
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)


def _has_delivered(receiver: Receiver, event: str) -> bool:
    return any(arrival.id == event and arrival.is_success for arrival in receiver.arrivals)


def _is_new(product: Product, role: str, old: int) -> bool:
    return any(pid != old for pid in product.processes(role))


async def _ready(product: Product) -> None:
    """Both ports say so."""
    async with asyncio.timeout(30):
        for port in (product.ingest_port, product.ops_port):
            while (await ask(port, head("/health/ready", method="GET"))).status != 200:
                await asyncio.sleep(0.1)
