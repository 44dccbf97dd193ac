"""This worker's view of the destinations' gates: evidence goes in, breakers open, one probe goes out, the poll
corrects.

The row is the truth (storage/gates.py); what is kept here saves asking it before every attempt.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

from delivery import breaker as breakers
from delivery.breaker import Row
from delivery.classify import Verdict
from domain.destinations import Destination
from storage import gates
from storage.database import Connection
from storage.errors import StorageUnavailable
from workers.turns import Turns, Turnstile

PROBE_SLACK = timedelta(seconds=5)  # beyond the probe's own budget, for its claim and its outcome
AGAIN_SECONDS = 0.5  # while the database is away


class Gates:
    """Keeps the breakers of `turns` in step with their rows. `on_change` is told of each change of state, `now` is the
    database's time."""

    def __init__(
        self,
        connection: Connection,
        turns: Turns,
        find: Callable[[int], Destination | None],
        spawn: Callable[[Coroutine[Any, Any, object]], None],
        on_change: Callable[[int, str], None],
        now: Callable[[], datetime],
    ) -> None:
        self._connection, self._turns, self._find, self._spawn = connection, turns, find, spawn
        self._on_change, self.now = on_change, now
        self._asking: dict[int, asyncio.Event] = {}  # set when the breaker's state has changed meanwhile
        self._opening: set[int] = set()  # breakers that are being opened here: the poll must not close them again

    async def refresh(self) -> None:
        """Every breaker here is as its row says. Raises: StorageUnavailable."""
        turnstiles = self._turns.turnstiles
        doubtful = [turnstile.id for turnstile in turnstiles.values() if turnstile.breaker.row.state != "closed"]
        for destination_id, row in (await self._stored(doubtful)).items():
            if destination_id not in self._opening:
                self._follow(self._turns.turnstile(destination_id), row)

    def observe(self, turnstile: Turnstile, verdict: Verdict, probe: UUID | None) -> None:
        """What an attempt's end says of the destination."""
        if probe is not None:
            self._spawn(self._end_probe(turnstile, probe, verdict))
            return
        turnstile.breaker.record(verdict.evidence)
        if turnstile.breaker.should_open:
            row = breakers.opened(turnstile.breaker.row, self.now())
            self._follow(turnstile, row)
            self._spawn(self._save_opening(turnstile, row))

    async def _save_opening(self, turnstile: Turnstile, row: Row) -> None:
        """The stored breaker is open: by this evidence, or by somebody else's.

        The version known here may be old (a closed breaker is not polled), so whoever loses reads and tries again.
        """
        self._opening.add(turnstile.id)
        try:
            while turnstile.breaker.row is row:
                try:
                    if await gates.change(self._connection, _values(turnstile, row)):
                        return
                    stored = (await self._stored([turnstile.id]))[turnstile.id]
                    if stored.state != "closed":
                        self._follow(turnstile, stored)
                        return
                    row = breakers.opened(stored, self.now())
                    self._follow(turnstile, row)
                except StorageUnavailable:
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._opening.discard(turnstile.id)

    async def _stored(self, also: Collection[int]) -> dict[int, Row]:
        """The rows of breakers that are not closed, and of these destinations. Raises: StorageUnavailable."""
        return {
            destination_id: Row(cast(breakers.State, state), opened, token, until, closed, version)
            for destination_id, state, opened, token, until, closed, version in await gates.read(self._connection, also)
        }

    def want_probe(self, turnstile: Turnstile) -> None:
        """A lane waits behind a breaker: a probe is asked for when the reset time is over."""
        if turnstile.id not in self._asking:
            changed = self._asking[turnstile.id] = asyncio.Event()
            self._spawn(self._ask_for_probe(turnstile, changed))

    async def _ask_for_probe(self, turnstile: Turnstile, changed: asyncio.Event) -> None:
        try:
            due = turnstile.breaker.probe_at
            seconds = max(0.02, (due - self.now()).total_seconds()) if due is not None else 0.1
            # A probe under way is due to be taken over only after its whole budget; once it has failed, far sooner.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), seconds)
            destination = self._find(turnstile.id)
            due = turnstile.breaker.probe_at
            if destination is None or due is None or due > self.now() or not turnstile.lanes:
                return
            token = uuid4()
            row = breakers.probing(turnstile.breaker.row, token, self.now() + destination.timeout + PROBE_SLACK)
            if await self._change(turnstile, row):
                self._follow(turnstile, row)
                turnstile.probe = token
        finally:
            del self._asking[turnstile.id]
            self._turns.wake(turnstile)

    async def _end_probe(self, turnstile: Turnstile, token: UUID, verdict: Verdict) -> None:
        if turnstile.breaker.row.probe == token:
            row = turnstile.breaker.after_probe(verdict, self.now())
            if await self._change(turnstile, row):
                self._follow(turnstile, row)
        self._turns.wake(turnstile)

    async def _change(self, turnstile: Turnstile, row: Row) -> bool:
        """Whether the stored row is this one now. While the database is away nobody changes it, and the poll will
        tell.
        """
        with contextlib.suppress(StorageUnavailable):
            return await gates.change(self._connection, _values(turnstile, row))
        return False

    def _follow(self, turnstile: Turnstile, row: Row) -> None:
        before = turnstile.breaker.row.state
        turnstile.breaker.observe(row)
        if turnstile.breaker.row.state != before:
            self._on_change(turnstile.id, turnstile.breaker.row.state)
            if (asking := self._asking.get(turnstile.id)) is not None:
                asking.set()
            self._turns.wake(turnstile)


def _values(turnstile: Turnstile, row: Row) -> gates.GateRow:
    return turnstile.id, row.state, row.opened_at, row.probe, row.probe_until, row.closed_at, row.version
