"""A lane in its owner's memory: what is next, what is out, what waits, and from where to read on.

No I/O and no clock of its own: the owner feeds it what dispatch handed on or what the table has open, asks for the
next candidate, and tells it what became of an attempt. Starting, recovering and falling behind are one code path: a
lane that does not know everything is *behind* and is read on from its position.

How deliveries wait for each other is theirs, by their `lane_key`: none of them for an unordered one (None), everything
before it for one in the partner's order (0), what came before it with the same key otherwise. Of a key only its eldest
is kept here; of the others no more than that there are some, so thousands of keys cost little and one of them may have
a million waiting. When a key's eldest is settled, its next is looked up in the table.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from datetime import datetime

from domain.lifecycle import Delivery, State
from storage.lanes import Copy, LaneKey, LaneRead, Open

MAILBOX = 128  # entries kept ahead; the table keeps the rest
LOW_WATER = MAILBOX // 4
MAX_KEYS = 100_000  # of which a lane knows that something is under way before it stops reading on
MAX_RETRYING = 10_000  # unordered deliveries in backoff that a lane keeps in memory before it stops reading on
NEVER = float("inf")
PARTNERS_ORDER = 0  # the lane key of deliveries that wait for everything before them


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
        return self.lane_key == PARTNERS_ORDER

    @property
    def is_keyed(self) -> bool:
        """Whether what came before it with the same key must be settled first."""
        return self.lane_key is not None and self.lane_key != PARTNERS_ORDER


FRESH = Delivery()


class Line:
    """A key whose eldest delivery is known here: queued, flying, in backoff, holding or being looked up."""

    __slots__ = ("eldest", "is_held", "later")

    def __init__(self, eldest: int) -> None:
        self.eldest = eldest  # its sequence, or one before it
        self.later: int | None = None  # others with the key wait, from this sequence on
        self.is_held = False  # its eldest is parked and holds it

    def note(self, sequence: int) -> None:
        """One more waits."""
        self.later = sequence if self.later is None else min(self.later, sequence)


class Lane:
    """The line of one partner's deliveries to one destination."""

    __slots__ = (
        "behind",
        "ended",
        "fetching",
        "flying",
        "forgotten",
        "held_at",
        "key",
        "lines",
        "missed",
        "position",
        "queue",
        "reading",
        "retrying",
        "shard",
        "stale",
        "tail",
        "unsaved",
        "wanted",
        "wants",
    )

    def __init__(self, key: LaneKey, shard: int) -> None:
        self.key, self.shard = key, shard
        self.queue: deque[Entry] = deque()  # not begun, in sequence
        self.lines: dict[int, Line] = {}  # by key
        self.wanted: dict[int, int] = {}  # keys whose next is to be looked up, and from which sequence on
        self.fetching = False  # such a look-up runs
        self.forgotten = 0  # how often the lane was
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
        self.unsaved: set[int] = set()  # attempts that have ended, and the commit of their outcome is not known yet
        self.wants = False  # it is in its destination's turns

    def forget(self) -> None:
        """Everything but what is flying is to be read again from the table's head."""
        self.queue.clear()
        self.retrying.clear()
        self.wanted.clear()
        self.lines = {e.lane_key: Line(e.sequence) for e in self.flying.values() if e.lane_key and e.is_keyed}
        self.forgotten += 1
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
        self._line_up(Entry(self.key, sequence, received_at, lane_key, FRESH, copy), 0.0)
        self.tail = self.position = sequence
        return True

    def overlooks(self, tail: int) -> bool:
        """Whether more is dispatched to it than it knows, and it is not about to find out."""
        return not self.behind and tail > self.tail

    @property
    def should_read(self) -> bool:
        """Whether it is behind and has room."""
        return (
            self.behind
            and not self.reading
            and len(self.queue) <= LOW_WATER
            and len(self.retrying) < MAX_RETRYING
            and len(self.lines) < MAX_KEYS
            and self.held_at is None
            # Not from the head on while it is not known what the table says of an attempt: it would be passed over.
            and not (self.position < 0 and self.unsaved)
        )

    @property
    def should_fetch(self) -> bool:
        """Whether the next of some key is to be looked up."""
        return bool(self.wanted) and not self.fetching

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
        queued = {entry.sequence for entry in (*self.queue, *self.retrying)}  # an attempt may end after `forget`
        for row in read.open:
            self.position = max(self.position, row.sequence)
            if self._is_ours(row.sequence) or row.sequence in queued:
                continue
            if row.delivery.state is State.DELIVERING:
                self._fly(self._entry(row, now))
                foreign.append(row)
            elif row.delivery.holding:
                self._hold(row.sequence, row.lane_key)
            else:
                self._line_up(self._entry(row, now), now)
        if len(read.open) < limit and not self.missed:
            self.behind = False
            self.tail = read.tail
            self.position = max(self.position, read.tail)
        return foreign

    def took_over(self, rows: list[Open], now: float) -> list[Open]:
        """All attempts in flight are known, however far down the lane. Answers those that are a predecessor's."""
        foreign = [row for row in rows if not self._is_ours(row.sequence)]
        for row in foreign:
            self._fly(self._entry(row, now))
        return foreign

    def _is_ours(self, sequence: int) -> bool:
        """Whether an attempt of it flies here, or did while the read ran or until a commit that is not known yet."""
        return sequence in self.flying or sequence in self.ended or sequence in self.unsaved

    def begin_fetch(self) -> tuple[int, dict[int, int]]:
        """The keys whose next is to be looked up, from which sequence on; and a mark to hand back."""
        self.fetching = True
        wanted, self.wanted = self.wanted, {}
        for key in wanted:
            self.lines[key].later = None
        return self.forgotten, wanted

    def fetched(self, mark: int, wanted: dict[int, int], found: dict[int, list[Open]], now: float) -> None:
        """The next of each key is queued (`found` has up to two, if there are), or the key is free."""
        self.fetching = False
        if mark != self.forgotten:
            return
        for key, since in wanted.items():
            line, rows = self.lines[key], found.get(key, [])
            if rows:
                line.eldest = rows[0].sequence
                line.is_held = rows[0].delivery.holding
                if not line.is_held:
                    self._put(self._entry(rows[0], now), now)
                # What was dispatched meanwhile may be the one found; whether more came with it is asked next time.
                line.later = rows[1].sequence if len(rows) > 1 else line.later and max(line.later, line.eldest + 1)
            elif line.later is not None:
                self.wanted[key] = min(line.later, since)
            else:
                del self.lines[key]

    def candidate(self, now: float) -> Entry | None:
        """The delivery whose turn it is, if it may begin now.

        Not before the outcome of its attempt before is known to be saved: both in one commit whose answer is lost could
        not be told apart from an outcome that was refused.
        """
        entry = self._first(now)
        return entry if entry is not None and entry.sequence not in self.unsaved else None

    def _first(self, now: float) -> Entry | None:
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
            self._hold(entry.sequence, entry.lane_key)
        elif entry.is_keyed:
            self._free(entry.lane_key or 0)

    @property
    def is_idle(self) -> bool:
        """Nothing is known or waited for: the lane need not be in memory."""
        return not (
            self.queue
            or self.retrying
            or self.flying
            or self.behind
            or self.reading
            or self.lines
            or self.held_at is not None
        )

    @property
    def is_busy(self) -> bool:
        """Something of it is under way that nobody else may go on with."""
        return bool(self.flying or self.reading or self.unsaved)

    def entries(self) -> Iterable[Entry]:
        """Everything in memory."""
        yield from self.queue
        yield from self.retrying
        yield from self.flying.values()

    def _is_first(self, head: Entry) -> bool:
        """Whether nothing that this strict one must wait for is under way, in backoff or holding."""
        return not (
            self.flying
            or any(entry.sequence < head.sequence for entry in self.retrying)
            or any(line.eldest < head.sequence for line in self.lines.values())
            or self.behind_by_hold(head)
        )

    def _line_up(self, entry: Entry, now: float) -> None:
        """A delivery that was not known is queued, or noted where its key's eldest is under way."""
        if entry.is_keyed:
            line = self.lines.get(entry.lane_key or 0)
            if line is not None:
                line.note(entry.sequence)
                return
            self.lines[entry.lane_key or 0] = Line(entry.sequence)
        self._put(entry, now)

    def _fly(self, entry: Entry) -> None:
        """A predecessor's attempt is known."""
        self.flying[entry.sequence] = entry
        if entry.is_keyed:
            self.lines.setdefault(entry.lane_key or 0, Line(entry.sequence))

    def _free(self, key: int) -> None:
        """The key's eldest is settled."""
        later = self.lines[key].later
        if later is None:
            del self.lines[key]
        else:
            self.wanted[key] = later

    def _hold(self, sequence: int, lane_key: int | None) -> None:
        """A parked delivery stops what is behind it until a person has dealt with it."""
        if lane_key is None or lane_key == PARTNERS_ORDER:
            self.held_at = sequence if self.held_at is None else min(self.held_at, sequence)
        else:
            self.lines.setdefault(lane_key, Line(sequence)).is_held = True

    def _put(self, entry: Entry, now: float) -> None:
        if not entry.is_strict and entry.due > now:
            heapq.heappush(self.retrying, entry)
            return
        place = len(self.queue)
        while place and self.queue[place - 1].sequence > entry.sequence:
            place -= 1
        self.queue.insert(place, entry)

    def _entry(self, row: Open, now: float) -> Entry:
        due = now + row.due_in_ms / 1000 if row.due_in_ms else 0.0
        return Entry(self.key, row.sequence, row.received_at, row.lane_key, row.delivery, None, due)
