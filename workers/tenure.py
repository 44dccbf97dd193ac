"""One lease's life: the shards held under one owner token, and everything that is done under it.

A tenure ends whole. When the lease is lost (or a defect shows), what runs is abandoned and nothing more is written
under its token; the worker then begins a new one, which takes up its lanes from the database like any successor
would.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from delivery.alone import Alone
from delivery.breaker import Breaker
from delivery.client import Client
from delivery.clock import boot_seconds
from delivery.pool import Pool
from domain.destinations import Destination
from storage import gates as gate_rows
from storage import lanes as storage
from storage import leases
from storage.configuration import Configuration
from storage.database import Connection
from storage.ending import end
from storage.errors import LeaseLost, StorageUnavailable
from storage.hints import Listener
from storage.lanes import Open
from storage.outage import Outage
from workers.attempts import Attempts
from workers.feed import ENTRIES, Feed
from workers.gates import Gates
from workers.journal import CAPACITY, Journal
from workers.lane import Lane
from workers.metrics import Metrics
from workers.turns import Turns

POLL_SECONDS = 1.0  # for what no hint announced
NUDGE_SECONDS = 0.5  # for what people changed, and for breakers
COMPARE_SECONDS = 5.0  # for what was dispatched and nobody here has heard of
SHARED_SECONDS = 2.0  # for who else sends to a destination
SUSPEND_SECONDS = 10.0
DRAIN_RATE_SECONDS = 5.0
HEADS_SECONDS = 5.0
HEADS_BEHIND = 500  # deliveries that left an unordered lane before its head is looked up again
FLUSH_SECONDS = 4.0
RESET = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Means:
    """What a tenure works with and does not own."""

    database_url: str
    name: str
    predecessors: str | None  # how the names of workers begin whose processes are gone
    lease: timedelta
    configuration: Configuration
    listener: Listener
    client: Client
    alone: Callable[[], AbstractAsyncContextManager[Alone]]  # a process for one attempt
    pool_size: int
    metrics: Metrics
    withheld: Callable[[str, dict[str, str]], frozenset[bytes]]
    suspend: Callable[[int, str], Awaitable[None]]  # a destination, and why
    outage: Outage
    log: Any


class Tenure:
    """Runs until its lease is lost or it is told to stop."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self.token = uuid4()
        self._lease = Connection(means.database_url, "hookyard worker lease")  # behind nothing else
        self._owner = Connection(means.database_url, "hookyard worker owner")
        # A dispatch need not be flushed: the claims that follow from it are, and it before them. Where a crash of the
        # server undoes one, the cursor has not moved either.
        self._reads = Connection(means.database_url, "hookyard worker log", durable=False)
        self._writes = Connection(means.database_url, "hookyard worker journal")
        self.epochs: dict[int, int] = {}
        self.living = 0
        self._draining: set[int] = set()
        self._lease_ends = 0.0  # boot_seconds
        self._crash: BaseException | None = None
        self._crashed = asyncio.Event()
        self._suspending: set[int] = set()
        self._missed_nudges = False
        self._drain_rates: dict[int, float] = {}  # events per second, by partner
        self._wire()

    def _wire(self) -> None:
        means = self._means
        self.pool = Pool(means.pool_size)
        self.journal = Journal(self._writes, self.token, on_batch=means.metrics.batch, outage=means.outage)
        self.feed = Feed(self._reads, self.token, self._shard_of, self._ready, self._foreign)
        self.attempts = Attempts(
            client=means.client,
            alone=means.alone,
            journal=self.journal,
            feed=self.feed,
            snapshot=lambda: means.configuration.snapshot,
            now=means.configuration.now,
            lease_ends=lambda: self._lease_ends,
            withheld=means.withheld,
            on_gone=lambda destination_id: self._suspend(destination_id, "answered 410 Gone"),
            on_crash=self._on_crash,
            metrics=means.metrics,
            log=means.log,
        )
        self.turns = Turns(
            self.pool,
            self.attempts.begin,
            self._find,
            lambda turnstile: self.gates.want_probe(turnstile),
            self._breaker,
            self._is_paused,
            self._may_start,
        )
        self.gates = Gates(
            self._owner, self.turns, self._find, self.attempts.spawn, self._breaker_changed, means.configuration.now
        )
        self.attempts.turns, self.attempts.gates = self.turns, self.gates

    # --- life -----------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event, drain_seconds: float) -> None:
        """Until stopped, drained and given back. Raises: LeaseLost."""
        loops = [
            asyncio.create_task(work, name=name)
            for name, work in {
                "lease": self._every(min(2.0, self._means.lease.total_seconds() / 4), self._tend),
                "hints": self._listen(),
                "dispatch": self.feed.dispatch_for_ever(),
                "reads": self.feed.read_for_ever(),
                "poll": self._every(POLL_SECONDS, self._poll),
                "tails": self._every(COMPARE_SECONDS, self._compare),
                "nudges": self._every(NUDGE_SECONDS, self._look_around),
                "shared": self._every(SHARED_SECONDS, self._see_others),
                "suspend": self._every(SUSPEND_SECONDS, self._suspend_the_failing),
                "rates": self._every(DRAIN_RATE_SECONDS, self._tell_drain_rates),
                "heads": self._every(HEADS_SECONDS, self._advance_heads),
            }.items()
        ]
        ends = [asyncio.create_task(stop.wait()), asyncio.create_task(self._crashed.wait())]
        try:
            await asyncio.wait([*loops, *ends], return_when=asyncio.FIRST_COMPLETED)
            for task in loops:
                if task.done():
                    self._on_crash(task.exception() or RuntimeError(f"{task.get_name()} ended"))
            if self._crash is None:
                await self._leave(loops, drain_seconds)
            if self._crash is not None:
                raise self._crash
        finally:
            await self._end([*loops, *ends])

    async def _leave(self, loops: list["asyncio.Task[None]"], drain_seconds: float) -> None:
        """Nothing new is begun, what runs comes to its end, the shards are free for others."""
        self.turns.close()
        await self.attempts.stop(drain_seconds)
        await end(loops)
        # Without a database the lease ends by itself, and what was not recorded is rescued by a successor.
        with contextlib.suppress(TimeoutError, StorageUnavailable):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self.journal.close()
                await leases.give_back(self._owner, self.token)

    async def _end(self, tasks: list["asyncio.Task[Any]"]) -> None:
        self.turns.close()
        self.attempts.abandon()
        self.journal.abandon()
        await end(tasks)
        await self.attempts.wait()
        await self.feed.close()
        for connection in (self._lease, self._owner, self._reads, self._writes):
            await connection.close()

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Again and again; an absent database is waited for."""
        task = asyncio.current_task()
        name = task.get_name() if task is not None else ""
        while True:
            try:
                await work()
                self._means.outage.passed(name)
            except StorageUnavailable as problem:
                self._means.outage.met(name, problem)
            await asyncio.sleep(seconds)

    # --- the lease ------------------------------------------------------------------------------------

    async def _tend(self) -> None:
        asked_at = boot_seconds()
        means = self._means
        first = not self._lease_ends
        lease = await leases.tend(
            self._lease, self.token, means.name, means.lease, first=first, dead=means.predecessors
        )
        self._lease_ends = asked_at + means.lease.total_seconds()
        self.living = lease.living
        gained = [shard for shard in lease.epochs if shard not in self.epochs]
        opened = await storage.open_lanes(self._owner, gained) if gained else []
        self.epochs = lease.epochs  # only now: what is gained counts as gained once its lanes are known
        means.metrics.shards_owned.set(len(self.epochs))
        if gained:
            means.log.info("owner.gained", shards=len(gained), owned=len(self.epochs), living=lease.living)
            self.feed.open(opened)
            await self._poll()
        await self._share_out(lease.share)
        self.turns.wake_all()

    async def _share_out(self, share: int) -> None:
        """Shards beyond the fair share are drained, and given back once nothing of them is in flight."""
        self._draining &= set(self.epochs)
        excess = len(self.epochs) - share - len(self._draining)
        busy = {lane.shard for lane in self.feed.lanes.values() if lane.is_busy}
        for shard in sorted(
            self.epochs, key=lambda shard: (shard in busy, -shard)
        ):  # the idle first: they stall nobody
            if excess > 0 and shard not in self._draining:
                self._draining.add(shard)
                excess -= 1
        free = self._draining - busy
        if free:
            self.feed.leave(free)
            for shard in free:
                del self.epochs[shard]
            self._draining -= free
            await leases.give_back(self._owner, self.token, sorted(free))
            self._means.log.info("owner.gave_back", shards=len(free), owned=len(self.epochs))

    def _may_start(self) -> bool:
        return boot_seconds() < self._lease_ends

    @property
    def is_in_force(self) -> bool:
        """Whether it may act, and owns what it should."""
        return self._may_start() and (bool(self.epochs) or self.living > self._means.configuration.snapshot.shards)

    @property
    def is_connected(self) -> bool:
        """Whether the database answered the last time."""
        return self._owner.available

    # --- looking around -------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Once per dispatch: what is announced meanwhile is heard together."""
        while True:
            self.feed.announce(await self._means.listener.hear(self.epochs.keys() - self._draining))
            await self.feed.dispatched()

    async def _poll(self) -> None:
        self.feed.announce(dict.fromkeys(await storage.undispatched(self._owner, self.token), 0))

    async def _compare(self) -> None:
        self.feed.compare(await storage.tails(self._owner, self.token))

    async def _look_around(self) -> None:
        try:
            nudged = await storage.nudged(self._owner, self.token)
            if self._missed_nudges:
                nudged = await storage.open_lanes(self._owner, self.epochs)
        except StorageUnavailable:
            self._missed_nudges = True  # they may have been taken out, and the answer lost
            raise
        self._missed_nudges = False
        self.feed.open(nudged)
        await self.gates.refresh()

    async def _see_others(self) -> None:
        owners = await gate_rows.shared(self._owner) if self.living > 1 else {}
        for turnstile in self.turns.turnstiles.values():
            turnstile.others = owners.get(turnstile.id, 1) - 1

    async def _suspend_the_failing(self) -> None:
        for destination_id in await gate_rows.failing_too_long(self._owner):
            self._suspend(destination_id, "every attempt failed for longer than its --suspend-after")

    async def _tell_drain_rates(self) -> None:
        """How fast each partner's backlog drains, for Retry-After: half of what was, half of the last seconds."""
        settled, self.attempts.settled = self.attempts.settled, Counter()
        for partner_id in settled.keys() | self._drain_rates.keys():
            now = settled[partner_id] / DRAIN_RATE_SECONDS
            self._drain_rates[partner_id] = (self._drain_rates.get(partner_id, now) + now) / 2
        if self._drain_rates:
            await storage.tell_drain_rates(self._owner, self._drain_rates)
        self._drain_rates = {partner_id: rate for partner_id, rate in self._drain_rates.items() if rate > 0.01}

    async def _advance_heads(self) -> None:
        """Reading on in an unordered lane starts near its first open delivery."""
        behind = [key for key, n in self.attempts.overtaking.items() if n >= HEADS_BEHIND]
        if behind:
            await storage.advance_heads(self._reads, self.token, behind)
        for key in behind:
            del self.attempts.overtaking[key]

    def _suspend(self, destination_id: int, why: str) -> None:
        if destination_id not in self._suspending:
            self._suspending.add(destination_id)
            self.attempts.spawn(self._suspend_now(destination_id, why))

    async def _suspend_now(self, destination_id: int, why: str) -> None:
        try:
            await self._means.suspend(destination_id, why)
            self._means.outage.passed("suspension")
        except StorageUnavailable as problem:
            self._means.outage.met("suspension", problem)
        finally:
            self._suspending.discard(destination_id)

    def configuration_changed(self) -> None:
        """Limits in force here are the new ones; what was held may go."""
        for turnstile in self.turns.turnstiles.values():
            destination = self._find(turnstile.id)
            if destination is not None:
                turnstile.breaker.adjust(
                    failures=destination.breaker_failures,
                    reset=destination.breaker_reset,
                    concurrency=destination.concurrency,
                )
        for lane in self.feed.lanes.values():
            self.turns.want(lane)
        self.turns.wake_all()

    def show(self) -> None:
        """The gauges tell what is now."""
        metrics, pool = self._means.metrics, self.pool
        metrics.pool_active.set(pool.active)
        metrics.pool_waiting.set(self.turns.waiting)
        metrics.pool_size.set(pool.size)
        metrics.shards_owned.set(len(self.epochs))
        metrics.queue("journal", self.journal.depth, CAPACITY)
        metrics.queue("lanes", self.feed.entries, ENTRIES)

    # --- what the parts ask ---------------------------------------------------------------------------

    def _find(self, destination_id: int) -> Destination | None:
        return self._means.configuration.snapshot.destinations_by_id.get(destination_id)

    def _shard_of(self, partner_id: int) -> int | None:
        partner = self._means.configuration.snapshot.partners_by_id.get(partner_id)
        return partner.shard if partner is not None and partner.shard in self.epochs else None

    def _is_paused(self, lane: Lane) -> bool:
        if lane.shard in self._draining or lane.shard not in self.epochs:
            return True
        partner = self._means.configuration.snapshot.partners_by_id.get(lane.key[0])
        return partner is None or partner.state == "paused"

    def _breaker(self, destination_id: int) -> Breaker:
        found = self._find(destination_id)
        name = found.name if found is not None else str(destination_id)
        failures, reset, concurrency = (5, RESET, 1) if found is None else _limits(found)
        return Breaker(name, failures=failures, reset=reset, concurrency=concurrency)

    def _breaker_changed(self, destination_id: int, state: str) -> None:
        destination = self._find(destination_id)
        name = destination.name if destination is not None else destination_id
        self._means.log.warning("breaker.changed", destination=name, state=state)

    def _ready(self, lane: Lane) -> None:
        self.turns.want(lane)

    def _foreign(self, lane: Lane, row: Open) -> None:
        self.attempts.rescue(lane, row)

    def _on_crash(self, problem: BaseException) -> None:
        if self._crash is None or isinstance(self._crash, LeaseLost):
            self._crash = problem
        self._crashed.set()


def _limits(destination: Destination) -> tuple[int, timedelta, int]:
    return destination.breaker_failures, destination.breaker_reset, destination.concurrency
