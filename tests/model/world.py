"""What the model is made of: the database, two workers, a destination, and what is on its way between them.

Values only. A world is hashable and small, so that all reachable ones can be kept; what happens to it is in
`steps.py`, and what must never be true of it in `promises.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

Anything = TypeVar("Anything")
Sortable = TypeVar("Sortable", bound=tuple[Any, ...])

Token = tuple[int, int]  # (worker, a number nothing else refers to)
NAMES = "AB"
MAX_ATTEMPTS = 2  # failures until a delivery is parked
Mode = Literal["up", "paused", "cut", "dead"]


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """What the design relies on; each can be taken away to see what it is for."""

    fence: bool = True  # a transaction of an owner that was fenced is refused
    hold: bool = True  # FOR SHARE: no takeover between that check and the commit
    budget_wait: bool = True  # a successor waits start grace and timeout before it writes an attempt off
    grace_check: bool = True  # asked right before the request is written: is the claim still young enough?
    lease_check: bool = True  # and: has the lease not ended, by the owner's own clock?
    token_check: bool = True  # an outcome counts only for the attempt whose token the delivery carries
    order_check: bool = True  # a claim counts only if nothing before it in the lane is open
    atomic_dispatch: bool = True  # the cursor moves in the transaction that makes the deliveries
    reads_wait: bool = True  # a lane is not read anew while the commit of an outcome of it is not known
    compares: bool = True  # an owner looks now and then whether more was dispatched to its lanes than it knows


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may happen in one history."""

    events: int = 2
    moody: int = 1  # the destination may fail so many of them
    slow: int = 1  # start graces that a healthy worker misses
    faults: int = 1
    kinds: str = "freeze die cut jump"  # of faults
    replays: int = 0
    hand_overs: int = 0


class Row(NamedTuple):
    """A delivery in the table."""

    state: str = "queued"  # delivering, delivered, parked
    token: Token | None = None  # of the attempt in flight, else of the last one
    failures: int = 0


class Item(NamedTuple):
    """A claim (`result` is empty) or an outcome on its way to the table."""

    event: int
    token: Token
    result: str = ""  # delivered, queued, parked, withdrawn, lost
    failures: int = 0


class Flight(NamedTuple):
    """An attempt in its owner's memory.

    claiming → begun → checked → written → acknowledged or failed; or foreign → written off: a predecessor's.
    """

    event: int
    token: Token
    phase: str
    failures: int = 0
    over: bool = False  # its start grace has passed
    frozen: bool = False  # its worker stood still between the check and the write


class Memory(NamedTuple):
    """What an owner knows of its lane."""

    queue: tuple[int, ...] = ()
    tail: int = -1  # the last event dispatched to the lane that is accounted for; -1: read from the head
    behind: bool = True
    flight: Flight | None = None
    unsaved: int = 0  # an event whose outcome was submitted and is not known to be committed
    pending: tuple[Item, ...] = ()  # the journal's queue
    batch: tuple[Item, ...] = ()  # its running commit, until its fate is known


class Worker(NamedTuple):
    """A worker, for one tenure. `lease` is the database's view of it, `trusts` its own clock's."""

    mode: Mode = "up"
    lease: Literal["live", "late", "fenced"] = "live"
    trusts: bool = True
    owns: bool = False  # by what it was told
    giving: bool = False  # its shard is about to be given back
    memory: Memory = Memory()

    @property
    def is_healthy(self) -> bool:
        """Up, and its lease in force."""
        return self.mode == "up" and self.trusts and self.lease == "live"


GONE = Worker("dead", lease="fenced", trusts=False)


class Transaction(NamedTuple):
    """A statement on its way (`sent`), past its check of the lease (`held`), or with the cursor moved only (`half`)."""

    kind: Literal["journal", "dispatch"]
    owner: int
    stage: Literal["sent", "held", "half"] = "sent"
    wired: bool = True  # somebody is there to hear the answer
    batch: tuple[Item, ...] = ()


class Request(NamedTuple):
    """An exchange that is open at the destination."""

    event: int
    token: Token
    late: bool = False  # written after its start grace, when the wait for it had begun
    frozen: bool = False  # and this because its worker stood still between the check and the write
    over: bool = False  # its timeout has passed, and its worker stands still


class World(NamedTuple):
    """One state of everything."""

    log: int = 0
    cursor: int = 0
    rows: tuple[Row, ...] = ()
    records: tuple[Token, ...] = ()  # attempts on record
    shard: int | None = 0  # whose it is
    nudged: bool = False
    workers: tuple[Worker, ...] = ()
    transactions: tuple[Transaction, ...] = ()
    requests: tuple[Request, ...] = ()
    arrived: tuple[int, ...] = ()
    acknowledged: tuple[int, ...] = ()
    duplicates: int = 0
    faults: int = 0
    slow: int = 0
    replays: int = 0
    hand_overs: int = 0


class Step(NamedTuple):
    """What happens, what is then, and which promises it broke. `helps`: it needs no fault, person or new event."""

    label: str
    world: World
    broken: tuple[str, ...] = ()
    helps: bool = True


def beginning() -> World:
    """Two workers, the first of which owns the only shard; an empty log."""
    return World(workers=(Worker(owns=True, memory=Memory(tail=0, behind=False)), Worker()))


def tidy(world: World, m: Mechanisms) -> World:
    """The same world without what nothing can depend on any more, so that fewer have to be looked at."""
    named = {item.token for t in world.transactions for item in t.batch}
    named |= {item.token for w in world.workers for item in (*w.memory.batch, *w.memory.pending)}
    rows = tuple(
        Row(
            row.state,
            row.token if row.state == "delivering" or row.token in named else None,
            0 if row.state in ("delivered", "parked") else row.failures,
        )
        for row in world.rows
    )
    workers = tuple(_tidy(w) if w.lease == "fenced" and m.fence and m.hold else w for w in world.workers)
    records = tuple(token for token in world.records if token in named)
    return world._replace(rows=rows, workers=workers, records=records)


def _tidy(worker: Worker) -> Worker:
    """What a fenced worker sends to the database is refused: only a request that it may write or has written counts."""
    flight = worker.memory.flight
    if flight is None or flight.phase not in ("begun", "checked", "written"):
        return GONE
    return worker._replace(memory=Memory(flight=flight))


def put(world: World, at: int, worker: Worker) -> World:
    """The worker is changed."""
    return world._replace(workers=replaced(world.workers, at, worker))


def fly(world: World, at: int, flight: Flight | None) -> World:
    """The worker's attempt is changed."""
    worker = world.workers[at]
    return put(world, at, worker._replace(memory=worker.memory._replace(flight=flight)))


def forgotten(memory: Memory) -> Memory:
    """All but what flies is to be read from the table's head."""
    return memory._replace(queue=(), tail=-1, behind=True)


def replaced(items: tuple[Anything, ...], at: int, item: Anything) -> tuple[Anything, ...]:
    """The items with another one in that place."""
    return (*items[:at], item, *items[at + 1 :])


def ordered(*items: Sortable) -> tuple[Sortable, ...]:
    """The items in an order that does not tell how they came."""
    return tuple(sorted(items))


def without(items: tuple[Anything, ...], item: Anything) -> tuple[Anything, ...]:
    """The items but for the first that equals this one."""
    at = items.index(item)
    return (*items[:at], *items[at + 1 :])


def deaf(world: World, at: int) -> World:
    """Nobody hears the answers of the worker's transactions any more."""
    return world._replace(
        transactions=ordered(*(t._replace(wired=False) if t.owner == at else t for t in world.transactions))
    )


def hung_up(world: World, at: int) -> World:
    """Its connections are closed, those to the destination too."""
    kept = tuple(r for r in world.requests if r.token[0] != at)
    return deaf(world._replace(requests=kept), at)
