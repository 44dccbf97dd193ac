"""Whose turn it is: fair turns among destinations, and among the lanes of each, before anything is claimed.

Admission (pool, concurrency, breaker, rate) precedes the claim and costs nobody a wait in a slot: a destination that
may not go steps out of the ring and comes back when a slot, a time, a probe or a change of configuration lets it.
What is decided here is this process's share; the claim checks again for the whole system.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from delivery.breaker import Breaker
from delivery.pool import Pool
from domain.destinations import Destination
from workers.lane import NEVER, Entry, Lane

FULL_PAUSE_SECONDS = 0.05  # another worker holds the slots: look again
PROVEN_SECONDS = 30.0  # a success so recent lets a destination have more than its part of half of the pool
TURN_PAUSE_SECONDS = 0.03  # fewer slots than workers: leave it to the others for a moment


class Begin(Protocol):
    """Begins an attempt of the entry; a probe has its token already."""

    def __call__(self, turnstile: "Turnstile", lane: Lane, entry: Entry, probe: UUID | None) -> None: ...


class Turnstile:
    """One destination in this worker: its lanes that want to go, its slots in use, its breaker."""

    __slots__ = ("blocked_until", "breaker", "id", "in_ring", "lanes", "others", "probe", "succeeded_at", "timer")

    def __init__(self, destination_id: int, breaker: Breaker) -> None:
        self.id = destination_id
        self.breaker = breaker
        self.lanes: deque[Lane] = deque()
        self.in_ring = False
        self.blocked_until = 0.0
        self.probe: UUID | None = None  # the token of a probe that is ours to send
        self.others = 0  # other workers that own lanes to this destination
        self.succeeded_at = -PROVEN_SECONDS
        self.timer: asyncio.TimerHandle | None = None

    def cap(self, destination: Destination) -> int:
        """Attempts this worker may have in flight there: its share of the concurrency, less while the breaker ramps
        up.
        """
        return min(-(-destination.concurrency // (self.others + 1)), self.breaker.concurrency)

    def is_proven(self, now: float) -> bool:
        """Whether it had a success recently."""
        return now - self.succeeded_at < PROVEN_SECONDS


class Turns:
    """The ring. `begin` starts an attempt; `find` gives a destination's settings in force; `probe_wanted` asks for a
    probe.
    """

    def __init__(
        self,
        pool: Pool,
        begin: Begin,
        find: Callable[[int], Destination | None],
        probe_wanted: Callable[[Turnstile], None],
        make_breaker: Callable[[int], Breaker],
        is_paused: Callable[[Lane], bool],
        may_start: Callable[[], bool],
    ) -> None:
        self._pool, self._begin, self._find, self._probe_wanted = pool, begin, find, probe_wanted
        self._make_breaker, self._is_paused, self._may_start = make_breaker, is_paused, may_start
        self._ring: deque[Turnstile] = deque()
        self._starved: dict[Turnstile, None] = {}  # kept out by the pool, not by themselves; first come, first served
        self._one_alone = False  # a suspect is under way, in a process of its own: one at a time
        self._suspects: dict[Lane, None] = {}  # lanes whose candidate waits for that to end
        self.turnstiles: dict[int, Turnstile] = {}
        self._lane_timers: dict[tuple[int, int], asyncio.TimerHandle] = {}
        self._pumping: asyncio.Handle | None = None
        self._closed = False

    def turnstile(self, destination_id: int) -> Turnstile:
        """The destination's, made when first needed."""
        found = self.turnstiles.get(destination_id)
        if found is None:
            found = self.turnstiles[destination_id] = Turnstile(destination_id, self._make_breaker(destination_id))
        return found

    @property
    def waiting(self) -> int:
        """Lanes that want to go and may not yet."""
        return sum(len(turnstile.lanes) for turnstile in self.turnstiles.values()) + len(self._suspects)

    def want(self, lane: Lane) -> None:
        """The lane gets its turn as soon as it has a candidate and is admitted."""
        self._want(lane, asyncio.get_running_loop().time())

    def _want(self, lane: Lane, now: float) -> None:
        if lane.wants or self._is_paused(lane):
            return
        if lane.candidate(now) is None:
            self._wait_until_due(lane, now)
            return
        lane.wants = True
        turnstile = self.turnstile(lane.key[1])
        turnstile.lanes.append(lane)
        self.wake(turnstile)

    def wake(self, turnstile: Turnstile) -> None:
        """It is asked again whether it may go."""
        if turnstile.lanes and not turnstile.in_ring:
            turnstile.in_ring = True
            self._ring.append(turnstile)
        self._pump_soon()

    def wake_all(self) -> None:
        """After a change of configuration, or of what this worker owns."""
        for turnstile in self.turnstiles.values():
            self.wake(turnstile)

    def release(self, turnstile: Turnstile) -> None:
        """A slot there is free again."""
        self._pool.release(turnstile.id)
        destination = self._find(turnstile.id)
        if turnstile.others and destination is not None and destination.concurrency <= turnstile.others:
            pause = TURN_PAUSE_SECONDS * (1 + random.random())  # noqa: S311 - spreads turns, keeps no secret
            turnstile.blocked_until = asyncio.get_running_loop().time() + pause
        starved, self._starved = self._starved, {}
        for other in starved:
            self.wake(other)
        self.wake(turnstile)

    def release_alone(self) -> None:
        """The next suspect may go: first one whose destination works, so that those that hang hold up each other."""
        self._one_alone = False
        waiting, self._suspects = self._suspects, {}
        now = asyncio.get_running_loop().time()
        for lane in sorted(waiting, key=lambda lane: not self.turnstile(lane.key[1]).is_proven(now)):
            self._want(lane, now)

    def block(self, turnstile: Turnstile, seconds: float) -> None:
        """It does not go before that."""
        loop = asyncio.get_running_loop()
        turnstile.blocked_until = max(turnstile.blocked_until, loop.time() + seconds)

    def close(self) -> None:
        """Nothing is begun any more."""
        self._closed = True
        for turnstile in self.turnstiles.values():
            if turnstile.timer is not None:
                turnstile.timer.cancel()
        for timer in self._lane_timers.values():
            timer.cancel()
        self._ring.clear()
        if self._pumping is not None:
            self._pumping.cancel()

    def _pump_soon(self) -> None:
        """Once per turn of the loop: what became free and what wants to go are settled together."""
        if self._pumping is None and not self._closed:
            self._pumping = asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = None
        if not self._may_start():
            return
        now = asyncio.get_running_loop().time()
        while self._ring:
            turnstile = self._ring.popleft()
            turnstile.in_ring = False
            if turnstile.lanes and self._may_go(turnstile, now):
                self._go(turnstile, turnstile.lanes.popleft(), now)
                if turnstile.lanes and not turnstile.in_ring:
                    turnstile.in_ring = True
                    self._ring.append(turnstile)

    def _may_go(self, turnstile: Turnstile, now: float) -> bool:
        destination = self._find(turnstile.id)
        if destination is None or destination.state != "active":
            return False  # a change of configuration wakes it
        if turnstile.blocked_until > now:
            self._wake_at(turnstile, turnstile.blocked_until)
            return False
        probing = turnstile.probe is not None
        if turnstile.breaker.row.state != "closed" and not probing:
            self._probe_wanted(turnstile)
            return False
        # A probe goes out alone: whatever else is in flight there was admitted before the breaker opened.
        cap = destination.concurrency if probing else turnstile.cap(destination)
        if self._pool.try_admit(turnstile.id, concurrency=cap, proven=turnstile.is_proven(now)):
            return True
        if self._pool.in_flight(turnstile.id) < cap:
            self._starved[turnstile] = None  # any release wakes it
        return False

    def _go(self, turnstile: Turnstile, lane: Lane, now: float) -> None:
        """The lane's candidate begins with the slot just admitted, or the slot goes back.

        One `now` for all that a pump decides: a lane that wanted to go at a later one would be asked for ever.
        """
        lane.wants = False
        entry = None if self._is_paused(lane) else lane.candidate(now)
        if entry is None:
            self._pool.release(turnstile.id)
            self._want(lane, now)
            return
        if entry.delivery.is_suspect and self._one_alone:
            self._pool.release(turnstile.id)
            self._suspects[lane] = None
            return
        self._one_alone |= entry.delivery.is_suspect
        probe, turnstile.probe = turnstile.probe, None
        lane.begin(entry)
        self._begin(turnstile, lane, entry, probe)
        self._want(lane, now)

    def _wake_at(self, turnstile: Turnstile, moment: float) -> None:
        if turnstile.timer is not None:
            turnstile.timer.cancel()
        loop = asyncio.get_running_loop()
        turnstile.timer = loop.call_at(moment, self.wake, turnstile)

    def _wait_until_due(self, lane: Lane, now: float) -> None:
        due = lane.next_due(now)
        if (timer := self._lane_timers.pop(lane.key, None)) is not None:
            timer.cancel()
        if due != NEVER:
            self._lane_timers[lane.key] = asyncio.get_running_loop().call_at(due, self._due, lane)

    def _due(self, lane: Lane) -> None:
        self._lane_timers.pop(lane.key, None)
        self.want(lane)
