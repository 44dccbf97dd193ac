"""One run: traffic, weather and people at work, the wait until everything has settled, and the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos.book import Book, read_book, wait_until_settled
from tests.chaos.checker import Seen, examine, repeats
from tests.chaos.faults import storm
from tests.chaos.people import People
from tests.chaos.plan import Plan
from tests.chaos.stage import Stage
from tests.chaos.town import Gusts, Mail, behaviours, send_all
from tests.raw_http import ask, head

CALM_SECONDS = 60.0  # after the last fault: for what was sent to be acknowledged
SETTLE_SECONDS = 90.0  # then, for everything to be delivered or parked
SHOW_SECONDS = 5.0  # until gauges and totals tell what is now
STEP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    violations: dict[str, list[str]]
    figures: dict[str, Any]

    @property
    def is_good(self) -> bool:
        return not self.violations


async def play(plan: Plan, stage: Stage) -> Outcome:
    """The run of the plan, on a stage where everything before it has settled."""
    dice, arrived, gusts, mail = random.Random(plan.seed), len(stage.receiver.arrivals), Gusts(), Mail(str(plan.seed))
    stage.receiver.behaviours |= behaviours(random.Random(dice.getrandbits(32)), gusts)
    stage.happened = []
    before = await _book(stage)
    address, since = f"http://127.0.0.1:{stage.destinations.port}/ledger", datetime.now(UTC).isoformat()
    people = People(stage.desk, mail, random.Random(dice.getrandbits(32)), since, address)
    began = time.monotonic()
    await _weather(stage, plan, gusts, people, dice)
    calm = time.monotonic()
    unsettled = await _settle(stage, people)
    settled = time.monotonic()
    trouble = {"everything_settles": unsettled, "everything_is_ready_again": [] if unsettled else await _unready(stage)}
    while True:
        book = (await _book(stage)).since(before)
        arrivals = stage.receiver.arrivals[arrived:]
        seen = Seen(arrivals, mail, stage.happened, book, people.deeds, people.bans)
        violations = {name: bad for name, bad in trouble.items() if bad} | examine(seen)
        if not violations or time.monotonic() > settled + SHOW_SECONDS:
            break
        await asyncio.sleep(STEP_SECONDS)
    if violations:
        _keep(stage, plan, seen)
    return Outcome(plan, violations, _figures(seen, calm - began, settled - calm))


async def _weather(stage: Stage, plan: Plan, gusts: Gusts, people: People, dice: random.Random) -> None:
    """Everybody has sent everything, all faults are over, and what people paused goes on."""
    blowing = asyncio.create_task(gusts.come_and_go(random.Random(dice.getrandbits(32))))
    sending = send_all(stage.edge.port, plan.seconds, random.Random(dice.getrandbits(32)), people.mail)
    try:
        async with asyncio.timeout(plan.seconds + CALM_SECONDS):
            await asyncio.gather(sending, storm(stage, plan), people.work(time.monotonic() + plan.seconds))
    finally:
        blowing.cancel()
        await asyncio.wait([blowing])


async def _settle(stage: Stage, people: People) -> list[str]:
    """Nothing waits; what does if that takes too long. People release what holds its lane."""
    url = stage.servers.url_of("hookyard")
    waiting = asyncio.create_task(
        asyncio.to_thread(wait_until_settled, url, SETTLE_SECONDS, lambda: stage.product.is_running)
    )
    while not (await asyncio.wait([waiting], timeout=STEP_SECONDS))[0]:
        await people.release()
    return [left] if (left := await waiting) else []


async def _book(stage: Stage) -> Book:
    metrics = await ask(stage.product.ops_port, head("/metrics", method="GET"))
    return await asyncio.to_thread(read_book, stage.servers.url_of("hookyard"), metrics.body.decode())


async def _unready(stage: Stage) -> list[str]:
    """Ports that do not say they are ready soon."""
    found = []
    for name, port in (("ingest", stage.product.ingest_port), ("ops", stage.product.ops_port)):
        answer = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while (answer := await ask(port, head("/health/ready", method="GET"))).status != 200:
                    await asyncio.sleep(0.2)
                continue
        found.append(f"{name}: {answer}")
    return found


def _figures(seen: Seen, weather: float, settling: float) -> dict[str, Any]:
    states = Counter(row.state for row in seen.book.deliveries)
    outcomes = Counter(row.outcome for row in seen.book.attempts)
    return {
        "sent": len(seen.mail.posted),
        "acknowledged": seen.mail.acknowledged,
        "stored": len(seen.book.events),
        "delivered": states["delivered"],
        "parked": states["parked"],
        "discarded": states["discarded"],
        "requests": len(seen.arrivals),
        "repeats": repeats(seen),
        "lost": outcomes["lost"],
        "interrupted": outcomes["interrupted"],
        "commands": len(seen.deeds),
        "weather_seconds": round(weather, 1),
        "settling_seconds": round(settling, 1),
    }


def _keep(stage: Stage, plan: Plan, seen: Seen) -> None:
    """What the product said, and what was seen, goes where it can be read after the run."""
    kept = Path(tempfile.mkdtemp(prefix=f"hookyard-chaos-seed-{plan.seed}-"))
    for log in stage.product.folder.glob("up-*.log"):
        shutil.copy(log, kept)
    told = [*seen.happened, *seen.deeds, *seen.book.subscriptions, *seen.book.attempts, *seen.arrivals]
    Path(kept, "seen.txt").write_text("\n".join(map(repr, told)))
    print(f"what the product said and what was seen: {kept}")
