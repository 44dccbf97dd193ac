"""A destination's breaker as one process sees it: its evidence here, the shared row, and who may try.

The row is the truth: one per destination, changed elsewhere by compare-and-set on its version, and shown to `observe`.
pybreaker carries the states and notices their changes, by its storage and listener interfaces over that row; it never
guards a call, because it counts consecutive failures only, reads the wall clock and knows no asyncio. Evidence, probe
and ramp are ours:

* closed: opens when N of the last 2N−1 outcomes that say something were bad (N in a row is the special case);
* open: nothing goes out until the reset time has passed; then whoever turns the row to half-open has the one probe;
* half-open: nothing else goes out; a probe nobody answers for by its expiry may be taken over;
* closed again: one at a time at first, one more after each success, up to the destination's concurrency.
"""

from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

import pybreaker

from delivery.classify import Evidence, Meaning, Verdict

State = Literal["closed", "half_open", "open"]

UNTRIED = frozenset({Meaning.INTERRUPTED, Meaning.WITHDRAWN, Meaning.CRASHED, Meaning.UNDELIVERABLE})
"""Endings of a probe that leave its question open."""

_TO_PYBREAKER: dict[State, str] = {
    "closed": pybreaker.STATE_CLOSED,
    "half_open": pybreaker.STATE_HALF_OPEN,
    "open": pybreaker.STATE_OPEN,
}


@dataclass(frozen=True, slots=True)
class Row:
    """The breaker as it is stored. Times are the database's."""

    state: State = "closed"
    opened_at: datetime | None = None
    probe: UUID | None = None  # the token of the probe under way
    probe_until: datetime | None = None  # then it counts as lost
    closed_at: datetime | None = None  # after a probe's success: the ramp began
    version: int = 0


def opened(row: Row, now: datetime) -> Row:
    """Open from now on: enough bad outcomes, or a probe that failed."""
    return Row("open", now, version=row.version + 1)


def probing(row: Row, token: UUID, until: datetime) -> Row:
    """Half-open: the holder of the token makes the one attempt, and answers for it until then."""
    return replace(row, state="half_open", probe=token, probe_until=until, version=row.version + 1)


def closed(row: Row, now: datetime) -> Row:
    """Closed: the probe succeeded, or a person reset the breaker."""
    return Row("closed", closed_at=now, version=row.version + 1)


class Breaker:
    """One destination's breaker in this process."""

    __slots__ = ("_breaker", "_limit", "_outcomes", "_ramp", "_reset", "_storage", "_threshold")

    def __init__(
        self,
        name: str,
        *,
        failures: int,
        reset: timedelta,
        concurrency: int,
    ) -> None:
        self._threshold = failures
        self._reset = reset
        self._limit = concurrency
        self._outcomes: deque[bool] = deque(maxlen=2 * failures - 1)  # True: bad
        self._ramp: int | None = None
        self._storage = _RowStorage(name)
        self._breaker = pybreaker.CircuitBreaker(
            failures, reset.total_seconds(), state_storage=self._storage, listeners=[_Afresh(self)], name=name
        )

    @property
    def row(self) -> Row:
        """The row as last observed."""
        return self._storage.row

    def observe(self, row: Row) -> None:
        """Adopts the row; a change of state begins afresh. An older version than the known is ignored."""
        if row.version < self.row.version:
            return
        self._storage.row = row
        _ = self._breaker.state  # pybreaker compares with the state it knew and tells its listener

    def begin_afresh(self) -> None:
        """What was held against the destination is forgotten; after a probe's success the ramp begins."""
        self._outcomes.clear()
        self._ramp = 1 if self.row.state == "closed" and self.row.closed_at is not None else None

    def adjust(self, *, failures: int, reset: timedelta, concurrency: int) -> None:
        """The destination was edited."""
        if failures != self._threshold:
            self._outcomes = deque(self._outcomes, maxlen=2 * failures - 1)
        self._threshold, self._reset, self._limit = failures, reset, concurrency
        self._breaker.fail_max, self._breaker.reset_timeout = failures, reset.total_seconds()

    def record(self, evidence: Evidence) -> None:
        """An ordinary attempt has ended. What ends while the breaker is not closed says nothing new."""
        if evidence is Evidence.NONE or self.row.state != "closed":
            return
        self._outcomes.append(evidence is Evidence.BAD)
        if self._ramp is not None:
            self._ramp = 1 if evidence is Evidence.BAD else self._ramp + 1
            self._ramp = None if self._ramp >= self._limit else self._ramp

    @property
    def should_open(self) -> bool:
        """The evidence here asks to turn the row to `opened`."""
        return self.row.state == "closed" and sum(self._outcomes) >= self._threshold

    def after_probe(self, verdict: Verdict, now: datetime) -> Row:
        """The row to save once the probe has ended.

        An answer about the event alone shows that the destination lives; a probe that never ended says nothing, and
        the next may go out at once.
        """
        if verdict.meaning in UNTRIED:
            return Row("open", self.row.opened_at, version=self.row.version + 1)
        return opened(self.row, now) if verdict.evidence is Evidence.BAD else closed(self.row, now)

    @property
    def probe_at(self) -> datetime | None:
        """When a probe may go out, while the breaker is not closed."""
        row = self.row
        if row.state == "half_open":
            return row.probe_until
        return row.opened_at + self._reset if row.state == "open" and row.opened_at is not None else None

    @property
    def concurrency(self) -> int:
        """Attempts allowed at once here: the limit, or less while the ramp lasts."""
        return self._limit if self._ramp is None else min(self._ramp, self._limit)


class _Afresh(pybreaker.CircuitBreakerListener):
    """What a change of state means here."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker

    def state_change(
        self,
        cb: pybreaker.CircuitBreaker,  # noqa: ARG002 - pybreaker's signature
        old_state: pybreaker.CircuitBreakerState | None,  # noqa: ARG002
        new_state: pybreaker.CircuitBreakerState,  # noqa: ARG002
    ) -> None:
        self._breaker.begin_afresh()


class _RowStorage(pybreaker.CircuitBreakerStorage):
    """The row in pybreaker's terms. It is only read: the row is changed by compare-and-set, not by pybreaker."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.row = Row()

    @property
    def state(self) -> str:
        return _TO_PYBREAKER[self.row.state]

    @state.setter
    def state(self, state: str) -> None:
        """Not pybreaker's to say."""

    @property
    def counter(self) -> int:
        return 0

    @property
    def success_counter(self) -> int:
        return 0

    @property
    def opened_at(self) -> datetime | None:
        return self.row.opened_at

    @opened_at.setter
    def opened_at(self, moment: datetime) -> None:
        """Not pybreaker's to say."""
