"""Watching workers from inside: waiting until they know, own, or have come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from domain.events import Place
from storage import replays
from storage.events import Filter
from storage.partners import Partner
from storage.requests import Counts
from tests.pipeline import ACTOR, Pipeline, Running
from tests.sink import Request
from workers.tenure import Tenure

UNDISPATCHED = "SELECT 1 FROM partner_heads JOIN partner_tails USING (partner_id) WHERE last_seq > cursor"


class Gate:
    """A destination's answer that waits until the test lets it go."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.open, self.reached = status, asyncio.Event(), asyncio.Event()

    async def __call__(self, request: Request) -> int:
        self.reached.set()
        await self.open.wait()
        return self.status


class Crowd:
    """A destination that takes its time (or waits for a gate), and the most requests that were there at once."""

    def __init__(self, takes: float | Gate) -> None:
        self.takes, self.now, self.most = takes, 0, 0

    async def __call__(self, request: Request) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await (self.takes(request) if isinstance(self.takes, Gate) else asyncio.sleep(self.takes))
        finally:
            self.now -= 1
        return 200


async def until(condition: Callable[[], Any], seconds: float = 10, steady_seconds: float = 0) -> None:
    """The condition holds, for so long without a break."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    async with asyncio.timeout(seconds):
        while not condition() or loop.time() - since < steady_seconds:
            if not condition():
                since = loop.time()
            await asyncio.sleep(0.02)


def tenure_of(running: Running) -> Tenure:
    tenure = running.worker._tenure
    assert tenure is not None
    return tenure


def owned(running: Running) -> int:
    """Shards that this worker believes to own."""
    tenure = running.worker._tenure
    return len(tenure.epochs) if tenure is not None else 0


async def ready(*workers: Running) -> None:
    """Each owns something."""
    await until(lambda: all(map(owned, workers)))


async def apart(pipeline: Pipeline, n: int = 2, each: int = 1) -> list[Running]:
    """n workers that share, each of which owns so many of the partners at least."""
    workers = [pipeline.start_worker(f"w{m}") for m in range(n)]
    query = """SELECT count(*) FROM partners JOIN shards USING (shard) WHERE owner IS NOT NULL
               GROUP BY owner HAVING count(*) >= :each"""
    await until(lambda: len(pipeline.sql(query, each=each)) == n and all(map(owned, workers)))
    return workers


def spread(pipeline: Pipeline, shops: list[Partner], n: int) -> list[Partner]:
    """The partners, moved to shards so far from each other that n workers own about as many of them each."""
    moved = [replace(shop, shard=at % n * (64 // n)) for at, shop in enumerate(shops)]
    for shop in moved:
        pipeline.sql("UPDATE partners SET shard = :shard WHERE id = :id", shard=shop.shard, id=shop.id)
    return moved


async def kill(running: Running) -> None:
    """As by SIGKILL: nothing is drained, recorded or given back."""
    running.task.cancel()
    await asyncio.wait([running.task])


async def quiet(pipeline: Pipeline) -> None:
    """Nothing moves: all is dispatched and known, and no request has come for a while."""
    living = [running for running in pipeline.workers if not running.task.done()]
    await ready(*living)
    tenures = list(map(tenure_of, living))
    seen = -1

    def is_quiet() -> bool:
        nonlocal seen
        before, seen = seen, len(pipeline.sink.requests)
        lanes = [lane for tenure in tenures for lane in tenure.feed.lanes.values()]
        return (
            before == seen
            and not any(tenure.journal.depth for tenure in tenures)
            and not any(lane.should_read or lane.reading for lane in lanes)
            and not pipeline.sql(UNDISPATCHED)
        )

    await until(is_quiet, steady_seconds=0.3)


async def heard(pipeline: Pipeline) -> None:
    """The owners have taken note of what people changed, and read it."""
    await until(lambda: pipeline.sql("SELECT count(*) FROM nudges") == [(0,)])
    await quiet(pipeline)


async def configured(pipeline: Pipeline) -> None:
    """The workers have the configuration that is in force."""
    ((version,),) = pipeline.sql("SELECT config_version FROM installation")
    await until(lambda: all(r.worker._configuration.snapshot.version >= version for r in pipeline.workers))


async def ask(pipeline: Pipeline, kind: Any, *sequences: int, **where: Any) -> Counts:
    """A person's replay or discard of these sequences (of the only partner), or of a selection."""
    rows = pipeline.sql("SELECT partner_id, seq, received_at FROM events WHERE seq = ANY(:s)", s=list(sequences))
    places = {row[1]: Place(*row) for row in rows}
    selection = replays.Selection(tuple(places[sequence] for sequence in sequences), Filter(**where), {})
    return await asyncio.to_thread(replays.run, pipeline.store, kind, selection, actor=ACTOR, why="a test")
