"""The database's clock decides: processes whose wall clocks jump an hour either way change nothing but log lines."""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.invariants import changed, lanes_violations, numbering
from tests.acceptance.product import Product
from tests.acceptance.receiver import Arrival, Receiver, Say
from tests.acceptance.sender import JSON, Sender, sending
from tests.sink import listening_sink

SHIM = Path(__file__).parents[1] / "clocks"
HOUR = 3600
JUMPS: tuple[dict[str, int], ...] = (
    {"worker-0": HOUR, "ingest-0": HOUR, "jobs-0": HOUR, "ops-0": HOUR, "others": HOUR},
    {"worker-0": -HOUR, "worker-1": HOUR, "ingest-0": -HOUR, "jobs-0": -HOUR, "others": -HOUR},
    {},
)
BACKOFF = ("--retry-base", "200ms", "--retry-factor", "1", "--breaker-failures", "1000")
KEY = secrets.token_bytes(32)
SLACK_SECONDS = 30.0  # for a machine that is busy; far from an hour


class Clocks:
    """The wall clocks of a product's processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def jump(self, seconds_by_slot: dict[str, int]) -> None:
        """From now on they are wrong by so much; all others are right."""
        for file in self.folder.iterdir():
            file.unlink()
        for slot, seconds in seconds_by_slot.items():
            new = self.folder / "new"
            new.write_text(str(seconds))
            new.rename(self.folder / slot)


@pytest.fixture
def clocks() -> Iterator[Clocks]:
    with tempfile.TemporaryDirectory(prefix="hookyard-test-") as name:
        yield Clocks(Path(name))


@pytest.fixture
def product(database_url: str, redis_url: str, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    """Two workers, on servers whose clocks are right."""
    monkeypatch.setenv("PYTHONPATH", str(SHIM))
    monkeypatch.setenv("WRONG_CLOCKS", str(clocks.folder))
    with tempfile.TemporaryDirectory(prefix="hookyard-test-") as name:
        made = Product(
            Path(name),
            DATABASE_URL=database_url,
            REDIS_URL=redis_url,
            MASTER_KEY=base64.b64encode(secrets.token_bytes(32)).decode(),
            ALLOW_NETWORKS="127.0.0.0/8",
            WORKER_PROCESSES="2",
            LEASE_SECONDS="2",
        )
        try:
            yield made.start()
        finally:
            made.destroy()


@pytest.mark.slow
async def test_clocks_that_jump_an_hour_change_nothing(product: Product, clocks: Clocks, receiver: Receiver) -> None:
    receiver.behaviours["/flaky"] = every_third_attempt_succeeds
    began = datetime.now(UTC)
    await product.cli("partner", "add", "acme", "--verify", "standard", "--secret", secret())
    for name in ("ledger", "flaky"):
        await product.cli("destination", "add", name, receiver.url(f"/{name}"), *BACKOFF)
        await product.cli("subscribe", "acme", name)
    async with sending("acme", product.ingest_port) as sender:
        for number, jump in enumerate(JUMPS):
            await send(sender, f"before-{number}")
            clocks.jump(jump)  # with retries due and a lease held
            await send(sender, f"after-{number}")
            again = await sender.post(b"before-0-0", JSON, *signed("before-0-0", b"before-0-0"))
            assert (again.status, again.json["duplicate"]) == (202, True)
            await product.settled("acme", seconds=SLACK_SECONDS)

    assert (numbering(sender.accepted), changed(receiver.arrivals, sender.accepted)) == ({}, [])
    assert lanes_violations(receiver.arrivals) == {}
    for path in ("/ledger", "/flaky"):
        assert receiver.successes(path) == [event.sequence for event in sender.accepted]
    assert max(abs(skew(arrival)) for arrival in receiver.arrivals) < SLACK_SECONDS
    assert not any("lease_lost" in line or "lost" in line for line in product.lines)
    for event in sender.accepted[:: len(sender.accepted) - 1]:
        assert all(
            began < moment < datetime.now(UTC) for moment in moments(await product.ask("event", "show", event.id))
        )
    await dates_are_waited_for_and_the_doctor_tells_of_the_clock(product, clocks)


async def dates_are_waited_for_and_the_doctor_tells_of_the_clock(product: Product, clocks: Clocks) -> None:
    """The date of a `Retry-After`, by a clock that is right; and a command whose clock is as wrong as the worker's."""
    async with listening_sink() as sink, sending("bolt", product.ingest_port) as sender:
        await product.lane("bolt", "shop", sink.url("/shop"), *BACKOFF)
        for hours, way in ((1, "ahead of"), (-1, "behind")):
            clocks.jump(dict.fromkeys(("worker-0", "worker-1", "others"), hours * HOUR))
            due = datetime.now(UTC) + timedelta(seconds=4)
            sink.headers["/shop"] = f"Retry-After: {format_datetime(due, usegmt=True)}\r\n"
            sink.steps["/shop"] = [503]
            seen = len(sink.requests)
            await sender.send(b"{}")
            await sink.until(lambda seen=seen: len(sink.requests) == seen + 2, seconds=SLACK_SECONDS)  # type: ignore[misc]
            assert datetime.now(UTC) >= due - timedelta(seconds=1.5)  # the date is in whole seconds

            told = await asyncio.to_thread(product.run, "doctor", "--json")
            (clock,) = [finding for finding in told.document["findings"] if finding["check"] == "clocks"]
            assert (told.code, clock["ok"]) == (1, False)
            assert f"this machine is 1:00:00 {way} the database" in clock["message"]


def secret() -> str:
    return "whsec_" + base64.b64encode(KEY).decode()


def signed(identity: str, body: bytes) -> list[str]:
    """What proves that the partner, whose clock is right, sent it just now."""
    stamp = int(time.time())
    digest = base64.b64encode(hmac.digest(KEY, f"{identity}.{stamp}.".encode() + body, "sha256")).decode()
    return [f"webhook-id: {identity}", f"webhook-timestamp: {stamp}", f"webhook-signature: v1,{digest}"]


async def send(sender: Sender, name: str) -> None:
    for number in range(3):
        identity = f"{name}-{number}"
        await sender.send(identity.encode(), JSON, *signed(identity, identity.encode()))


def every_third_attempt_succeeds(arrival: Arrival) -> Say:
    return Say(200 if arrival.attempt % 3 == 0 else 503)


def skew(arrival: Arrival) -> float:
    """By how many seconds the time it was signed with is off."""
    came_at = time.time() - time.monotonic() + arrival.began_at
    return float(dict(arrival.headers)["webhook-timestamp"]) - came_at


def moments(event: dict[str, Any]) -> list[datetime]:
    """When it was received, and when its attempts began."""
    attempts = [attempt for delivery in event["deliveries"] for attempt in delivery["attempts"]]
    return [datetime.fromisoformat(text) for text in (event["received_at"], *(a["started_at"] for a in attempts))]
