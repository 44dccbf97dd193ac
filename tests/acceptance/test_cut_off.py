"""Network faults between machines: a worker cut off from the servers but not from its destinations, and the other way
round. Packets vanish; nothing is refused, and no connection ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.receiver import fine
from tests.chaos.book import read_book, wait_until_settled
from tests.chaos.checker import Seen, examine
from tests.chaos.hosts import Country, Host, Network, NotAllowed, country, standing_across
from tests.chaos.run import SETTLE_SECONDS, SHOW_SECONDS
from tests.chaos.stage import Happened, Stage
from tests.chaos.town import HOLDING, SUBSCRIPTIONS, Gusts, Mail, behaviours, send_all
from tests.raw_http import ask, head
from tests.servers import Servers

SEED = 3
SECONDS = 9.0
CUTS: tuple[tuple[float, int, Network, float], ...] = (
    (1.0, 0, "servers", 5.0),  # after so many seconds, which host, from what, for how long: more than a lease
    (3.0, 1, "destinations", 3.0),
)
TOUCHES: dict[Network, frozenset[str]] = {
    "servers": frozenset({"worker"}),
    "destinations": frozenset({"worker", "destinations"}),
}


@pytest.fixture
def land() -> Iterator[Country]:
    """Two hosts besides home. Skips where they cannot be had."""
    try:
        with country(("a", "b")) as built:
            yield built
    except NotAllowed as problem:
        pytest.skip(f"no network namespaces here: {problem}")


@pytest.fixture
def patient_town(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is joined to the destination that gives up after three attempts: a cut uses them up."""
    for pair in [pair for pair in SUBSCRIPTIONS if pair[1] == "picky"]:
        monkeypatch.delitem(SUBSCRIPTIONS, pair)


@pytest.mark.slow
@pytest.mark.usefixtures("patient_town")
async def test_everything_holds_where_a_worker_is_cut_off_from_servers_and_another_from_destinations(
    land: Country, own_servers: Servers
) -> None:
    async with standing_across(own_servers, land) as stage:
        dice, mail = random.Random(SEED), Mail(str(SEED))
        stage.receiver.behaviours |= behaviours(dice, Gusts()) | {f"/{HOLDING}": fine}
        began = time.monotonic()
        await asyncio.gather(
            send_all(stage.edge.port, SECONDS, dice, mail),
            *(cut(stage, began + at, land.hosts[host], network, span) for at, host, network, span in CUTS),
        )
        url = own_servers.url_of("hookyard")
        left = await asyncio.to_thread(wait_until_settled, url, SETTLE_SECONDS, lambda: stage.product.is_running)
        assert left == ""
        violations = await verdict(stage, mail)
        logs = {host.name: (stage.product.folder / f"{host.name}.log").read_text() for host in land.hosts}

    assert violations == {}
    assert mail.acknowledged > 100
    assert "owner.lease_lost" in logs[land.hosts[0].name], logs  # the first was succeeded while it was cut off,
    assert "owner.lease_lost" not in logs[land.hosts[1].name], logs  # the other went on owning


async def cut(stage: Stage, at: float, host: Host, network: Network, seconds: float) -> None:
    await asyncio.sleep(at - time.monotonic())
    began_at = time.monotonic()
    host.pull_out(network)
    await asyncio.sleep(seconds)
    host.plug_in(network)
    stage.happened.append(Happened(f"cut off from {network}", TOUCHES[network], began_at, time.monotonic()))


async def verdict(stage: Stage, mail: Mail) -> dict[str, Any]:
    """The checker's, once gauges and totals tell what is now."""
    deadline = time.monotonic() + SHOW_SECONDS
    while True:
        metrics = await ask(stage.product.ops_port, head("/metrics", method="GET"))
        book = await asyncio.to_thread(read_book, stage.servers.url_of("hookyard"), metrics.body.decode())
        violations = examine(Seen(list(stage.receiver.arrivals), mail, stage.happened, book))
        if not violations or time.monotonic() > deadline:
            return violations
        await asyncio.sleep(0.5)
