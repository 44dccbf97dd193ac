"""A lane in its owner's memory: what is next, what is out, what waits, and from where to read on.

No I/O and no clock of its own: the owner feeds it what dispatch handed on or what the table has open, asks for the
next candidate, and tells it what became of an attempt. Starting, recovering and falling behind are one code path: a
lane that does not know everything is *behind* and is read on from its position.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from datetime import datetime

from domain.lifecycle import Delivery, State
from storage.lanes import Copy, LaneKey, LaneRead, Open

MAILBOX = 128  # entries kept ahead; the table keeps the rest
LOW_WATER = MAILBOX // 4
MAX_RETRYING = 10_000  # unordered deliveries in backoff that a lane keeps in memory before it stops reading on
NEVER = float("inf")


class Entry:
    """One open delivery. `due` is in seconds of the owner's monotonic clock."""

    __slots__ = ("copy", "delivery", "destination_id", "due", "lane_key", "partner_id", "received_at", "sequence")

    def __init__(
        self,
        key: LaneKey,
        sequence: int,
        received_at: datetime,
        lane_key: int | None,
        delivery: Delivery,
        copy: Copy | None = None,
        due: float = 0.0,
    ) -> None:
        self.partner_id, self.destination_id = key
        self.sequence, self.received_at, self.lane_key = sequence, received_at, lane_key
        self.delivery, self.copy, self.due = delivery, copy, due

    def __lt__(self, other: "Entry") -> bool:
        return (self.due, self.sequence) < (other.due, other.sequence)

    @property
    def key(self) -> LaneKey:
        """The lane's key."""
        return self.partner_id, self.destination_id

    @property
    def is_strict(self) -> bool:
        """Whether everything before it must be settled first."""
        return self.lane_key is not None


FRESH = Delivery()


class Lane:
    """The line of one partner's deliveries to one destination."""

    __slots__ = (
        "behind",
        "ended",
        "flying",
        "held_at",
        "key",
        "missed",
        "position",
        "queue",
        "reading",
        "retrying",
        "saving",
        "shard",
        "stale",
        "tail",
        "wants",
    )

    def __init__(self, key: LaneKey, shard: int) -> None:
        self.key, self.shard = key, shard
        self.queue: deque[Entry] = deque()  # not begun, in sequence
        self.retrying: list[Entry] = []  # unordered ones in backoff, a heap by due time
        self.flying: dict[int, Entry] = {}  # claimed or sent, by sequence; a predecessor's too, until it is rescued
        self.held_at: int | None = None  # a parked delivery with this sequence stops what is strict behind it
        self.tail = -1  # the last sequence dispatched to the lane that is accounted for here
        self.position = -1  # read on after this sequence
        self.behind = True
        self.reading = False
        self.missed = False  # something was dispatched while a read ran
        self.ended: set[int] = set()  # attempts that ended while a read ran: what it saw of them is past
        self.stale = False  # the running read began before the lane was forgotten
        self.saving = 0  # outcomes whose commit is not known
        self.wants = False  # it is in its destination's turns

    def forget(self) -> None:
        """Everything but what is flying is to be read again from the table's head."""
        self.queue.clear()
        self.retrying.clear()
        self.held_at = None
        self.position = self.tail = -1
        self.behind = self.missed = True
        self.stale = self.reading

    def push(
        self, sequence: int, received_at: datetime, previous: int, lane_key: int | None, copy: Copy | None
    ) -> bool:
        """A dispatched delivery is in the mailbox; False: the lane is behind and will read it."""
        if self.behind or previous != self.tail or len(self.queue) >= MAILBOX:
            self.behind = self.missed = True
            return False
        self.queue.append(Entry(self.key, sequence, received_at, lane_key, FRESH, copy))
        self.tail = self.position = sequence
        return True

    @property
    def should_read(self) -> bool:
        """Whether it is behind and has room."""
        return (
            self.behind
            and not self.reading
            and len(self.queue) <= LOW_WATER
            and len(self.retrying) < MAX_RETRYING
            and self.held_at is None
        )

    def begin_read(self) -> int:
        """The sequence to read after."""
        self.reading, self.missed, self.stale = True, False, False
        self.ended.clear()
        return self.position

    def loaded(self, read: LaneRead, limit: int, now: float) -> list[Open]:
        """What was read is queued. Answers attempts in flight that are not ours: a predecessor's, to be rescued."""
        self.reading = False
        foreign: list[Open] = []
        if self.stale:
            return foreign
        for row in read.open:
            self.position = max(self.position, row.sequence)
            if row.sequence in self.flying or row.sequence in self.ended:
                continue
            if row.delivery.state is State.DELIVERING:
                self.flying[row.sequence] = self._entry(row, now)
                foreign.append(row)
            elif row.delivery.holding:
                self.held_at = row.sequence if self.held_at is None else min(self.held_at, row.sequence)
            else:
                self._put(self._entry(row, now), now)
        if len(read.open) < limit and not self.missed:
            self.behind = False
            self.tail = read.tail
            self.position = max(self.position, read.tail)
        return foreign

    def candidate(self, now: float) -> Entry | None:
        """The delivery whose turn it is, if it may begin now."""
        if self.flying and next(iter(self.flying.values())).is_strict:
            return None  # a strict one flies alone, whatever the order of what came later
        if self.retrying and self.retrying[0].due <= now:
            return self.retrying[0]
        if not self.queue:
            return None
        head = self.queue[0]
        return head if not head.is_strict or (head.due <= now and self._is_first(head)) else None

    def behind_by_hold(self, entry: Entry) -> bool:
        """Whether a parked delivery before it stops the lane."""
        return self.held_at is not None and entry.sequence > self.held_at

    def next_due(self, now: float) -> float:
        """When time alone makes a candidate; NEVER if that needs something else."""
        times = [entry.due for entry in self.retrying[:1]]
        if self.queue and self.queue[0].is_strict and self._is_first(self.queue[0]):
            times.append(self.queue[0].due)
        return min((due for due in times if due > now), default=NEVER)

    def begin(self, entry: Entry) -> None:
        """The candidate is flying."""
        if self.retrying and self.retrying[0] is entry:
            heapq.heappop(self.retrying)
        else:
            self.queue.popleft()
        self.flying[entry.sequence] = entry

    def end(self, entry: Entry, after: Delivery, now: float) -> None:
        """The attempt is over (or was refused): back in the line where the delivery is queued, else out of it."""
        self.flying.pop(entry.sequence, None)
        if self.reading:
            self.ended.add(entry.sequence)
        entry.delivery = after
        if after.state is State.QUEUED:
            entry.due = now + after.retry_in.total_seconds() if after.retry_in else 0.0
            self._put(entry, now)
        elif after.holding:
            self.held_at = entry.sequence

    @property
    def is_idle(self) -> bool:
        """Nothing is known or waited for: the lane need not be in memory."""
        return not (
            self.queue or self.retrying or self.flying or self.behind or self.reading or self.held_at is not None
        )

    @property
    def is_busy(self) -> bool:
        """Something of it is under way that nobody else may go on with."""
        return bool(self.flying or self.reading or self.saving)

    def entries(self) -> Iterable[Entry]:
        """Everything in memory."""
        yield from self.queue
        yield from self.retrying
        yield from self.flying.values()

    def _is_first(self, head: Entry) -> bool:
        """Whether nothing that this strict one must wait for is under way, in backoff or holding."""
        earlier_retries = any(entry.sequence < head.sequence for entry in self.retrying)
        return not self.flying and not earlier_retries and not self.behind_by_hold(head)

    def _put(self, entry: Entry, now: float) -> None:
        if not entry.is_strict and entry.due > now:
            heapq.heappush(self.retrying, entry)
        elif self.queue and entry.sequence < self.queue[0].sequence:
            self.queue.appendleft(entry)
        else:
            self.queue.append(entry)

    def _entry(self, row: Open, now: float) -> Entry:
        due = now + row.due_in_ms / 1000 if row.due_in_ms else 0.0
        return Entry(self.key, row.sequence, row.received_at, row.lane_key, row.delivery, None, due)
