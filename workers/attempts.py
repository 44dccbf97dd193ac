"""One attempt from its claim to its record: claim, send, ask the state machine, journal; and the rescue of those whose
worker vanished.

The lane's next claim is submitted in the same turn of the loop as the outcome before it, so both share a commit.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID, uuid4

from delivery.alone import Alone
from delivery.classify import Evidence, Meaning, Verdict, classify
from delivery.client import Client
from delivery.clock import boot_seconds
from delivery.errand import Done, Errand, run
from delivery.exchange import Exchange, Outcome
from delivery.request import Subject
from domain import lifecycle
from domain.destinations import Destination
from domain.events import event_id, unpack_headers
from domain.lifecycle import Delivery, Fact, ParkReason, Policy, State, transition
from domain.retry import retry_after, retry_in
from storage import lanes as storage
from storage.configuration import Snapshot
from storage.errors import BadData, LeaseLost, StorageUnavailable
from storage.lanes import Begun, Claim, LaneKey, Open, Saved
from workers.feed import Feed
from workers.gates import Gates
from workers.journal import Item, Journal
from workers.lane import Entry, Lane
from workers.metrics import Metrics
from workers.turns import FULL_PAUSE_SECONDS, Turns, Turnstile

SET_ASIDE_SECONDS = 30.0  # a lane in which our own code failed
NOT_PASSED_ON = "headers not passed on (not printable ASCII, or a name that passes for another)"
RECORD_SECONDS = 3.0  # for the records of attempts that a stop interrupted
GONE_PAUSE_SECONDS = 2.0  # until the configuration in force says that it is suspended
EVIDENCE = {Evidence.GOOD: 1, Evidence.NONE: 0, Evidence.BAD: -1}
START_GRACE_SECONDS = 2.0
"""An attempt may start so long after its claim first went to the database; its successor waits this and the timeout."""


@dataclass(slots=True)
class Flight:
    """An attempt that was begun."""

    lane: Lane
    entry: Entry
    turnstile: Turnstile
    probe: UUID | None
    token: UUID
    item: Item
    destination: Destination
    goes_alone: bool
    alone: Alone | None = None  # the process of its own that makes it
    holds_slot: bool = True


class Attempts:
    """The attempts of one lease."""

    def __init__(
        self,
        *,
        client: Client,
        alone: Callable[[], AbstractAsyncContextManager[Alone]],
        journal: Journal,
        feed: Feed,
        snapshot: Callable[[], Snapshot],
        now: Callable[[], datetime],
        lease_ends: Callable[[], float],
        withheld: Callable[[str, dict[str, str]], frozenset[bytes]],
        on_gone: Callable[[int], None],
        on_crash: Callable[[BaseException], None],
        metrics: Metrics,
        log: Any,
    ) -> None:
        self._client, self._alone, self._journal, self._feed = client, alone, journal, feed
        self._snapshot, self._now = snapshot, now
        self._lease_ends, self._withheld, self._on_gone, self._on_crash = lease_ends, withheld, on_gone, on_crash
        self._metrics, self._log = metrics, log
        self._flights: set[asyncio.Task[object]] = set()
        self._others: set[asyncio.Task[object]] = set()
        self._stopping = False
        self.settled: Counter[int] = Counter()  # deliveries that left their lane, by partner, since last asked
        self.overtaking: Counter[LaneKey] = Counter()  # of these, those of unordered lanes
        self.turns: Turns
        self.gates: Gates

    @property
    def running(self) -> int:
        """Attempts between claim and outcome."""
        return len(self._flights)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs beside the attempts; a stop does not wait for it."""
        self._start(work, self._others)

    def begin(self, turnstile: Turnstile, lane: Lane, entry: Entry, probe: UUID | None) -> None:
        """The entry is claimed and, once that is committed, sent."""
        destination = self._snapshot().destinations_by_id[turnstile.id]
        token = probe or uuid4()
        budget_ms = int((START_GRACE_SECONDS + destination.timeout.total_seconds()) * 1000)
        item = Item(Claim(entry.partner_id, turnstile.id, entry.sequence, entry.received_at, token, budget_ms))
        flight = Flight(lane, entry, turnstile, probe, token, item, destination, entry.delivery.is_suspect)
        fate = None if flight.goes_alone else self._journal.submit(item)
        self._feed.entries -= 1
        self._start(self._fly_safely(flight, fate), self._flights)

    def rescue(self, lane: Lane, row: Open) -> None:
        """The attempt of a vanished worker is written off once its whole budget has passed on this machine's clock."""
        self.spawn(self._rescue(lane, row))

    async def stop(self, seconds: float) -> None:
        """Attempts under way finish within that time or are recorded as interrupted; nothing is in flight then."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self._flights and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._flights, timeout=left)
        self._stopping = True
        for task in self._flights:
            task.cancel()
        if self._flights:
            await asyncio.wait(self._flights, timeout=RECORD_SECONDS)

    def abandon(self) -> None:
        """Whatever runs ends, and nothing of it is recorded: the lease is lost, or all is done."""
        self._stopping = False
        for task in (*self._flights, *self._others):
            task.cancel()

    async def wait(self) -> None:
        """Everything abandoned has ended."""
        if left := self._flights | self._others:
            await asyncio.wait(left, timeout=RECORD_SECONDS)

    # --- one attempt ----------------------------------------------------------------------------------

    async def _fly_safely(self, flight: Flight, fate: "asyncio.Future[Saved | Begun] | None") -> None:
        """A defect met in one delivery sets its lane aside for a while; its neighbours go on."""
        try:
            await (self._fly(flight, fate) if fate is not None else self._fly_alone(flight))
        except LeaseLost:
            raise
        except Exception:  # noqa: BLE001 - else it is met again and again, and costs every lane its wait
            self._log.exception("lane.set_aside", destination=flight.destination.name, sequence=flight.entry.sequence)
            self._release(flight)
            await asyncio.sleep(SET_ASIDE_SECONDS)
            flight.lane.flying.pop(flight.entry.sequence, None)  # what is in flight by the table is then rescued
            self._feed.reread(flight.lane)

    async def _fly_alone(self, flight: Flight) -> None:
        """In a process of its own, which is there before the claim: from then on there is little time to start."""
        async with self._alone() as flight.alone:
            await self._fly(flight, self._journal.submit(flight.item))

    async def _fly(self, flight: Flight, fate: "asyncio.Future[Saved | Begun]") -> None:
        copy = asyncio.ensure_future(self._feed.copy_of(flight.entry)) if flight.entry.copy is None else None
        begun = cast(Begun, await fate)
        if begun.refusal is not None:
            if copy is not None:
                copy.cancel()
            self._refused(flight, begun)
            return
        begun_delivery = transition(flight.entry.delivery, lifecycle.Begun(flight.token), self._policy(flight))
        begun_delivery = begun_delivery._replace(attempts=begun.number)
        exchange, note = await self._exchange(flight, begun.number, copy)
        await self._land(flight, begun_delivery, exchange, note)

    async def _exchange(
        self, flight: Flight, number: int, copy: "asyncio.Task[Any] | None"
    ) -> tuple[Exchange, str | None]:
        """What came of the request; cancelled while stopping it counts as interrupted."""
        try:
            if copy is not None:
                await copy
            return await self._send(flight, number)
        except StorageUnavailable:
            return Exchange(Outcome.WITHDRAWN, 0), None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._stopping or task is None:
                raise
            task.uncancel()
            return Exchange(Outcome.INTERRUPTED, 0, error="the worker was stopped"), None
        except Exception as problem:  # noqa: BLE001 - a defect of ours costs this delivery an attempt, not its neighbours their worker
            self._log.exception("attempt.broken", destination=flight.destination.name)
            return Exchange(Outcome.UNDELIVERABLE, 0, error=f"internal error: {type(problem).__name__}"), None

    async def _send(self, flight: Flight, number: int) -> tuple[Exchange, str | None]:
        entry, copy = flight.entry, flight.entry.copy
        if copy is None:
            return Exchange(Outcome.UNDELIVERABLE, 0, error="the event is no longer stored"), None
        partner = self._snapshot().partners_by_id[entry.partner_id]
        start_by = (flight.item.sent_at or 0.0) + START_GRACE_SECONDS
        subject = Subject(
            event_id(entry.partner_id, entry.sequence, entry.received_at),
            partner.name,
            entry.sequence,
            copy.type,
            unpack_headers(copy.headers),
            copy.body,
            self._withheld(partner.verify, partner.verify_options),
        )
        replay = entry.delivery.replay_id
        errand = Errand(
            subject,
            flight.destination,
            number,
            None if replay is None else f"rpl_{replay}",
            int(self._now().timestamp()),
            start_by,
        )
        done = await self._run(errand, flight.alone)
        dropped = b", ".join(done.dropped).decode("ascii", "replace")
        return done.exchange, f"{NOT_PASSED_ON}: {dropped}"[:500] if dropped else None

    async def _run(self, errand: Errand, alone: Alone | None) -> Done:
        if alone is not None:
            return await alone.run(errand._replace(start_by=min(errand.start_by, self._lease_ends())))
        return await run(errand, self._client, lambda: boot_seconds() < min(errand.start_by, self._lease_ends()))

    async def _land(self, flight: Flight, begun: Delivery, exchange: Exchange, note: str | None) -> None:
        """The outcome is journaled, the slot given back and the lane's next begun, all in one turn of the loop."""
        verdict = classify(exchange, flight.destination.park_on)
        after = transition(begun, self._fact(flight, begun, verdict), self._policy(flight))
        entry, lane = flight.entry, flight.lane
        outcome = storage.Outcome(
            entry.partner_id,
            entry.destination_id,
            entry.sequence,
            entry.received_at,
            after,
            EVIDENCE[verdict.evidence],
            exchange.outcome.value,
            begun.attempts,
            exchange.duration_ms,
            time.monotonic(),
            exchange.status,
            exchange.error,
            note,
            exchange.snippet or None,
        )
        fate = self._journal.submit(Item(outcome))
        self._feed.drop_copy(entry)
        lane.end(entry, after, asyncio.get_running_loop().time())
        lane.unsaved.add(entry.sequence)
        if after.state is State.QUEUED:
            self._feed.entries += 1
        else:
            self.settled[entry.partner_id] += 1
            if not entry.is_strict:  # what it overtook is still before it
                self.overtaking[entry.key] += 1
        self._learn(flight, verdict)
        self._release(flight)
        self._go_on(lane)
        try:
            await self._recorded(flight, outcome, fate)
        finally:
            lane.unsaved.discard(entry.sequence)
            self._feed.read_on(lane)
        if after.state is State.QUEUED:
            self.turns.want(lane)

    def _learn(self, flight: Flight, verdict: Verdict) -> None:
        if verdict.meaning is Meaning.DELIVERED:
            flight.turnstile.succeeded_at = asyncio.get_running_loop().time()
        self.gates.observe(flight.turnstile, verdict, flight.probe)
        if verdict.meaning is Meaning.GONE:
            self.turns.block(flight.turnstile, GONE_PAUSE_SECONDS)
            self._on_gone(flight.destination.id)

    async def _recorded(self, flight: Flight, outcome: storage.Outcome, fate: "asyncio.Future[Saved | Begun]") -> None:
        try:
            saved = cast(Saved, await fate)
        except BadData:  # only its texts can be to blame (P17): the outcome itself must not be lost
            plain = outcome._replace(error="unprintable", note=None, answer=None)
            saved = cast(Saved, await self._journal.submit(Item(plain)))
        if not saved.saved:
            self._feed.reread(flight.lane)
            return
        self._metrics.attempted(self._partner(outcome), flight.destination.name, outcome, saved.lag_ms)
        level = logging.DEBUG if outcome.outcome == "success" else logging.INFO
        if not self._log.is_enabled_for(level):
            return  # a success is seldom told, and what would be told of it costs more than to ask
        self._log.log(
            level,
            "delivery.attempted",
            event_id=event_id(outcome.partner_id, outcome.sequence, outcome.received_at),
            destination=flight.destination.name,
            attempt=outcome.number,
            outcome=outcome.outcome,
            alone=flight.goes_alone or None,
            status=outcome.status,
            error=outcome.error,
            duration_ms=outcome.duration_ms,
            state=outcome.after.state.value,
            park_reason=outcome.after.park_reason,
        )

    def _partner(self, outcome: storage.Outcome) -> str:
        return self._snapshot().partners_by_id[outcome.partner_id].name

    def _refused(self, flight: Flight, begun: Begun) -> None:
        """The claim was not granted: the slot goes back, and what was wrong is looked at."""
        lane, entry, turnstile = flight.lane, flight.entry, flight.turnstile
        # It was due already: what refused it says itself when to come back.
        lane.end(entry, entry.delivery._replace(retry_in=None), asyncio.get_running_loop().time())
        self._feed.entries += 1
        if flight.probe is not None:
            self.gates.observe(turnstile, Verdict(Meaning.WITHDRAWN, Evidence.NONE), flight.probe)
        match begun.refusal:
            case "full":
                self.turns.block(turnstile, FULL_PAUSE_SECONDS)
            case "rate":
                self.turns.block(turnstile, min(1.0, max(0.01, 1 / (flight.destination.rate or 100))))
            case "breaker":
                self.turns.block(turnstile, FULL_PAUSE_SECONDS)
            case "held":
                self.turns.block(turnstile, 0.5)  # the configuration in force here is about to say so too
            case _:
                self._feed.reread(lane)
        self._release(flight)
        self._go_on(lane)

    def _release(self, flight: Flight) -> None:
        if flight.holds_slot:
            flight.holds_slot = False
            self.turns.release(flight.turnstile)
            if flight.goes_alone:
                self.turns.release_alone()

    def _go_on(self, lane: Lane) -> None:
        self._feed.read_on(lane)
        self.turns.want(lane)

    # --- deciding -------------------------------------------------------------------------------------

    def _policy(self, flight: Flight) -> Policy:
        """By the destination's settings as they are now, not as they were at the claim."""
        return self._policy_of(flight.turnstile.id, flight.entry)

    def _policy_of(self, destination_id: int, entry: Entry) -> Policy:
        snapshot = self._snapshot()
        destination = snapshot.destinations_by_id[destination_id]
        closing = None
        if destination_id in snapshot.removed_destinations:
            closing = ParkReason.DESTINATION_REMOVED
        elif destination.state == "suspended":
            closing = ParkReason.DESTINATION_SUSPENDED
        return Policy(destination.max_attempts, destination.on_park == "hold" and entry.lane_key is not None, closing)

    def _fact(self, flight: Flight, begun: Delivery, verdict: Verdict) -> Fact:
        match verdict.meaning:
            case Meaning.DELIVERED:
                return lifecycle.Acknowledged()
            case Meaning.FAILED:
                policy = self._snapshot().destinations_by_id[flight.turnstile.id]
                base, factor, cap = policy.retry_base, policy.retry_factor, policy.retry_cap
                asked = retry_after(verdict.asked, self._now()) if verdict.asked else None
                jitter = random.uniform(-1, 1)  # noqa: S311 - spreads retries, keeps no secret
                return lifecycle.Failed(retry_in(begun.failures + 1, base, factor, cap, jitter, asked))
            case Meaning.REJECTED:
                return lifecycle.Rejected()
            case Meaning.GONE:
                return lifecycle.Gone()
            case Meaning.UNDELIVERABLE:
                return lifecycle.Unsendable()
            case Meaning.CRASHED:
                return lifecycle.Crashed()
            case Meaning.WITHDRAWN:
                return lifecycle.Withdrawn()
            case Meaning.INTERRUPTED:
                return lifecycle.Interrupted()

    # --- rescue ---------------------------------------------------------------------------------------

    async def _rescue(self, lane: Lane, row: Open) -> None:
        await asyncio.sleep(row.budget_ms / 1000)
        entry = lane.flying[row.sequence]
        after = transition(row.delivery, lifecycle.Lost(), self._policy_of(entry.destination_id, entry))
        outcome = storage.Outcome(
            entry.partner_id,
            entry.destination_id,
            entry.sequence,
            entry.received_at,
            after,
            0,
            "lost",
            row.delivery.attempts,
            row.budget_ms,
            time.monotonic(),
            None,
            "its worker vanished; what the destination did is unknown",
            None,
            None,
        )
        saved = cast(Saved, await self._journal.submit(Item(outcome)))
        lane.end(entry, after, asyncio.get_running_loop().time())
        self._feed.entries += after.state is State.QUEUED
        if not saved.saved:
            self._feed.reread(lane)
            return
        destination = self._snapshot().destinations_by_id[entry.destination_id]
        self._metrics.attempted(self._partner(outcome), destination.name, outcome, None)
        self._go_on(lane)

    def _start(self, work: Coroutine[Any, Any, object], tasks: "set[asyncio.Task[object]]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[object]") -> None:
        self._flights.discard(task)
        self._others.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._on_crash(problem)  # a lost lease or a defect ends the tenure; its lanes are taken up anew
