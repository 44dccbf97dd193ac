"""One run: traffic under weather, the wait until everything has settled, and the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.acceptance.receiver import Receiver, listening_receiver
from tests.chaos.book import read_book, wait_until_settled
from tests.chaos.checker import Seen, examine, repeats
from tests.chaos.faults import storm
from tests.chaos.plan import Plan
from tests.chaos.stage import Stage, standing
from tests.chaos.town import Gusts, Mail, behaviours, commands, send_all
from tests.raw_http import ask, head
from tests.servers import Servers

KNOWN_SECONDS = 2.0  # until a new configuration is in force everywhere
CALM_SECONDS = 60.0  # after the last fault: for what was sent to be acknowledged
SETTLE_SECONDS = 90.0  # then, for everything to be delivered or parked
SHOW_SECONDS = 2.5  # until gauges and totals tell what is now


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    violations: dict[str, list[str]]
    figures: dict[str, Any]

    @property
    def is_good(self) -> bool:
        return not self.violations


async def play(plan: Plan, servers: Servers) -> Outcome:
    """The run of the plan, on servers that are this run's own."""
    dice = random.Random(plan.seed)
    gusts = Gusts()
    async with listening_receiver() as receiver, standing(servers, plan.max_connections) as stage:
        receiver.behaviours |= behaviours(random.Random(dice.getrandbits(32)), gusts)
        await stage.set_up(commands(receiver))
        await asyncio.sleep(KNOWN_SECONDS)
        began = time.monotonic()
        mail = await _weather(stage, plan, gusts, dice)
        calm = time.monotonic()
        unsettled = await asyncio.to_thread(
            wait_until_settled, servers.url_of("hookyard"), SETTLE_SECONDS, lambda: stage.product.is_running
        )
        settled = time.monotonic()
        unready = [] if unsettled else await _unready(stage)
        await asyncio.sleep(SHOW_SECONDS)
        metrics = await ask(stage.product.ops_port, head("/metrics", method="GET"))
        book = await asyncio.to_thread(read_book, servers.url_of("hookyard"), metrics.body.decode())
        seen = Seen(list(receiver.arrivals), mail, stage.happened, book)
        violations = {"everything_settles": [unsettled]} if unsettled else {}
        violations |= {"everything_is_ready_again": unready} if unready else {}
        violations |= examine(seen)
        if violations:
            _keep_log(stage, plan)
    return Outcome(plan, violations, _figures(seen, receiver, calm - began, settled - calm))


async def _weather(stage: Stage, plan: Plan, gusts: Gusts, dice: random.Random) -> Mail:
    """Everybody has sent everything, and all faults are over."""
    blowing = asyncio.create_task(gusts.come_and_go(random.Random(dice.getrandbits(32))))
    try:
        async with asyncio.timeout(plan.seconds + CALM_SECONDS):
            sending = send_all(stage.product.ingest_port, plan.seconds, random.Random(dice.getrandbits(32)))
            mail, _ = await asyncio.gather(sending, storm(stage, plan))
    finally:
        blowing.cancel()
        await asyncio.wait([blowing])
    return mail


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


def _figures(seen: Seen, receiver: Receiver, weather: float, settling: float) -> dict[str, Any]:
    states = Counter(row.state for row in seen.book.deliveries)
    return {
        "sent": len(seen.mail.posted),
        "acknowledged": seen.mail.acknowledged,
        "stored": len(seen.book.events),
        "delivered": states["delivered"],
        "parked": states["parked"],
        "requests": len(receiver.arrivals),
        "repeats": repeats(seen),
        "lost": sum(row.outcome == "lost" for row in seen.book.attempts),
        "interrupted": sum(row.outcome == "interrupted" for row in seen.book.attempts),
        "weather_seconds": round(weather, 1),
        "settling_seconds": round(settling, 1),
    }


def _keep_log(stage: Stage, plan: Plan) -> None:
    """What the product said goes where it can be read after the run."""
    for log in stage.product.folder.glob("up-*.log"):
        kept = log.rename(f"/tmp/hookyard-chaos-{plan.seed}-{log.name}")
        print(f"the product's log: {kept}")
