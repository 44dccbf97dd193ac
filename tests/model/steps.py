"""Everything that can happen next: to the server, the workers, the destination, time; and what goes wrong.

Each step is atomic as it is in the code: a statement's check of the lease and its commit are two, the last check of
the clocks and the write of the request are two, an outcome and its lane's next claim may share a commit. Where time
matters it is an order of events: what the clocks guarantee is a condition of the step that relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model import promises
from tests.model.server import commit
from tests.model.world import (
    GONE,
    MAX_ATTEMPTS,
    Bounds,
    Flight,
    Item,
    Mechanisms,
    Memory,
    Request,
    Row,
    Token,
    Transaction,
    Worker,
    World,
    fly,
    forgotten,
    ordered,
    put,
    replaced,
    without,
)

NAMES = "AB"
RESULTS = {"acknowledged": "delivered", "failed": "queued"}


class Step(NamedTuple):
    """What happens, what is then, and which promises it broke. `helps`: it needs no fault, person or new event."""

    label: str
    world: World
    broken: tuple[str, ...] = ()
    helps: bool = True


def steps(world: World, m: Mechanisms, bounds: Bounds) -> Iterator[Step]:
    """All that may happen next."""
    yield from _people(world, bounds)
    for transaction in world.transactions:
        yield from _server(world, transaction, m)
    for at in range(len(world.workers)):
        yield from _worker(world, at, m, bounds)
        yield from _time(world, at, bounds)
        if world.faults < bounds.faults and _matters(world, at):
            yield from _faults(world._replace(faults=world.faults + 1), at, bounds.kinds.split())
    yield from _recoveries(world)
    for request in world.requests:
        yield from _destination(world, request, bounds)


def _people(world: World, bounds: Bounds) -> Iterator[Step]:
    """Partners post, a person replays."""
    if world.log < bounds.events:
        yield Step(f"event {world.log + 1} is accepted", world._replace(log=world.log + 1), helps=False)
    if world.replays < bounds.replays:
        for at, row in enumerate(world.rows):
            if row.state == "parked":
                rows = replaced(world.rows, at, row._replace(state="queued", failures=0))
                after = world._replace(rows=rows, nudged=True, replays=world.replays + 1)
                yield Step(f"event {at + 1} is replayed", after, helps=False)


# --- the server ------------------------------------------------------------------------------------------------------


def _server(world: World, transaction: Transaction, m: Mechanisms) -> Iterator[Step]:
    at, tenure = transaction.tenure
    rest = world._replace(transactions=without(world.transactions, transaction))
    who = f"{NAMES[at]}'s {transaction.kind}" + ("" if transaction.wired else ", cut off,")
    if transaction.stage == "sent":
        worker = world.workers[at]
        if m.fence and (worker.tenure != tenure or worker.lease not in ("live", "late")):
            yield Step(f"{who} is refused: its lease is lost", rest)
        else:
            held = transaction._replace(stage="held")
            yield Step(f"{who} has its lease checked", rest._replace(transactions=ordered(*rest.transactions, held)))
    else:
        after, broken = commit(rest, transaction, m)
        yield Step(f"{who} commits", after, broken)
    if not transaction.wired:
        yield Step(f"{who} is rolled back", rest)


# --- workers ---------------------------------------------------------------------------------------------------------


def _worker(world: World, at: int, m: Mechanisms, bounds: Bounds) -> Iterator[Step]:
    worker = world.workers[at]
    if worker.mode in ("paused", "dead"):
        return
    if worker.mode == "up":
        yield from _lease(world, at, worker, m)
        yield from _asks(world, at, worker, m, bounds)
        if worker.owns and worker.memory.flight is None and not _is_busy(worker.memory):
            if world.hand_overs < bounds.hand_overs:
                left = worker._replace(owns=False, giving=True, memory=Memory())
                after = put(world, at, left)._replace(hand_overs=world.hand_overs + 1)
                yield Step(f"{NAMES[at]} leaves its lanes", after, helps=False)
    yield from _attempt(world, at, worker, m)


def _lease(world: World, at: int, worker: Worker, m: Mechanisms) -> Iterator[Step]:
    """Tending the lease: renewed, the late fenced, a free shard taken and its lanes looked up; or the shard given back."""
    me = (at, worker.tenure)
    if worker.giving:
        if not any(t.tenure == me and t.stage != "sent" for t in world.transactions):
            after = put(world, at, worker._replace(giving=False))
            yield Step(
                f"{NAMES[at]} gives its shard back", after._replace(shard=None if world.shard == me else world.shard)
            )
        return
    if worker.lease == "fenced":
        label = f"{NAMES[at]} learns that its lease is lost and gives up"
        yield Step(label, _hung_up(put(world, at, GONE), at, 0))
        return
    workers, shard = list(world.workers), world.shard
    for other, late in enumerate(workers):
        if other == at or late.lease != "late":
            continue
        if m.hold and any(t.tenure == (other, late.tenure) and t.stage != "sent" for t in world.transactions):
            return  # waits for it
        workers[other] = late._replace(lease="fenced")
        shard = None if shard == (other, late.tenure) else shard
    shard = me if shard is None else shard
    gains = shard == me and not worker.owns
    memory = Memory(unsaved=worker.memory.unsaved) if gains else worker.memory
    workers[at] = worker._replace(lease="live", trusts=True, owns=worker.owns or gains, memory=memory)
    transactions = tuple(
        t for t in world.transactions if not (m.fence and t.stage == "sent" and _is_fenced(workers, t))
    )
    after = world._replace(workers=tuple(workers), shard=shard, transactions=transactions)
    if after != world:
        yield Step(f"{NAMES[at]} tends its lease" + (" and takes the shard" if gains else ""), after)


def _is_fenced(workers: list[Worker], transaction: Transaction) -> bool:
    return workers[transaction.tenure[0]].lease == "fenced"


def _asks(world: World, at: int, worker: Worker, m: Mechanisms, bounds: Bounds) -> Iterator[Step]:
    """What goes to the database: dispatch, reading on, the journal, nudges."""
    me, memory, name = (at, worker.tenure), worker.memory, NAMES[at]
    running = [
        t for t in world.transactions if t.tenure == me and (t.wired or (m.copies_end_first and t.kind == "dispatch"))
    ]
    if worker.owns and (world.log > world.cursor or memory.unsure) and not any(t.kind == "dispatch" for t in running):
        yield _send(world, Transaction("dispatch", me), f"{name} dispatches", m, bounds)
    if worker.owns and memory.behind and not (m.reads_wait and memory.tail < 0 and memory.unsaved):
        yield Step(f"{name} reads its lane", put(world, at, worker._replace(memory=_read(world, memory))))
    if world.nudged and world.shard == me:
        after = put(world, at, worker._replace(memory=forgotten(memory) if worker.owns else memory))
        yield Step(f"{name} hears that a person changed the lane", after._replace(nudged=False))
    if not any(t.kind == "journal" for t in running):
        yield from _journals(world, at, worker, m, bounds)


def _journals(world: World, at: int, worker: Worker, m: Mechanisms, bounds: Bounds) -> Iterator[Step]:
    """What waits goes out, with the lane's next claim or without it; a batch whose fate is unknown goes out again."""
    memory, name = worker.memory, NAMES[at]
    choices = []
    if memory.batch:
        choices = [(f"{name} journals again:", memory)]
    else:
        if memory.pending:
            choices = [(f"{name} journals", memory._replace(batch=memory.pending, pending=()))]
        if worker.owns and worker.trusts and memory.queue and memory.flight is None:
            event, token = memory.queue[0], _fresh(world, at)
            batch = (*memory.pending, Item(event, token))
            flight = Flight(event, token, "claiming")
            choices += [
                (f"{name} journals", memory._replace(queue=memory.queue[1:], flight=flight, pending=(), batch=batch))
            ]
    for label, after in choices:
        transaction = Transaction("journal", (at, worker.tenure), batch=after.batch)
        submitted = put(world, at, worker._replace(memory=after))
        yield _send(submitted, transaction, f"{label} {_told(after.batch)}", m, bounds)


def _send(world: World, transaction: Transaction, label: str, m: Mechanisms, bounds: Bounds) -> Step:
    """A statement is on its way. After the last fault nothing can come between a healthy worker's and its commit."""
    if 0 < bounds.faults == world.faults and world.workers[transaction.tenure[0]].is_healthy:
        after, broken = commit(world, transaction._replace(stage="held"), m)
        return Step(f"{label}, committed", after, broken)
    return Step(label, world._replace(transactions=ordered(*world.transactions, transaction)))


def _attempt(world: World, at: int, worker: Worker, m: Mechanisms) -> Iterator[Step]:
    """One attempt from its claim to its outcome, and the rescue of a predecessor's."""
    memory, flight, name = worker.memory, worker.memory.flight, NAMES[at]
    if flight is None:
        return
    match flight.phase:
        case "begun":
            may = (not flight.over or not m.grace_check) and (worker.trusts or not m.lease_check)
            if may:
                yield _write(world, at, flight)
            else:
                yield Step(f"{name} withdraws event {flight.event}", _land(world, at, flight, "withdrawn"))
        case "checked":
            yield _write(world, at, flight)
        case "acknowledged" | "failed":
            yield Step(
                f"{name} takes the answer of event {flight.event}", _land(world, at, flight, RESULTS[flight.phase])
            )
        case "foreign" if not m.budget_wait or _budget_passed(world, flight.token):
            lost = Item(flight.event, flight.token, "lost", flight.failures)
            memory = memory._replace(flight=flight._replace(phase="written off"), pending=(*memory.pending, lost))
            yield Step(f"{name} writes event {flight.event} off", put(world, at, worker._replace(memory=memory)))


def _write(world: World, at: int, flight: Flight) -> Step:
    late = flight.over and _is_waited_for(world, flight)
    request = Request(flight.event, flight.token, late, flight.frozen)
    broken = [promises.overlap(before, request) for before in world.requests]
    earlier = range(1, flight.event)
    if flight.event not in world.arrived and any(
        e not in world.arrived and world.rows[e - 1].state != "parked" for e in earlier
    ):
        broken.append(promises.OUT_OF_ORDER)
    duplicates = world.duplicates + (flight.event in world.acknowledged)
    if duplicates > world.faults:
        broken.append(promises.DUPLICATE)
    after = fly(world, at, flight._replace(phase="written", over=False, frozen=False))
    after = after._replace(
        requests=ordered(*world.requests, request),
        arrived=tuple(sorted({*world.arrived, flight.event})),
        duplicates=duplicates,
    )
    return Step(f"{NAMES[at]} writes the request of event {flight.event}", after, tuple(broken))


def _is_waited_for(world: World, flight: Flight) -> bool:
    """A successor has begun to wait for this attempt, or has done with it."""
    row = world.rows[flight.event - 1]
    others = (w.memory.flight for w in world.workers)
    rescued = any(f and f.token == flight.token and f.phase in ("foreign", "written off") for f in others)
    return rescued or row.state != "delivering" or row.token != flight.token


def _land(world: World, at: int, flight: Flight, result: str) -> World:
    """The outcome is submitted; the lane may go on in the same turn."""
    worker = world.workers[at]
    memory, failures = worker.memory, flight.failures
    if result == "queued":
        failures += 1
        result = "parked" if failures >= MAX_ATTEMPTS else result
    queue = memory.queue
    if result in ("queued", "withdrawn"):
        queue = tuple(sorted((*queue, flight.event)))
    outcome = Item(flight.event, flight.token, result, failures)
    memory = memory._replace(queue=queue, flight=None, unsaved=flight.event, pending=(*memory.pending, outcome))
    return put(world, at, worker._replace(memory=memory))


def _budget_passed(world: World, token: Token) -> bool:
    """The successor's wait began after the claim was sent and lasted start grace and timeout: by then the grace is
    over, and whatever was written within it, or before the wait began, has come to its timeout."""
    for worker in world.workers:
        flight = worker.memory.flight
        if flight and flight.token == token and flight.phase in ("claiming", "begun", "checked") and not flight.over:
            return False
    return not any(r.token == token and not r.late and not r.over for r in world.requests)


# --- time ------------------------------------------------------------------------------------------------------------


def _time(world: World, at: int, bounds: Bounds) -> Iterator[Step]:
    """A lease and a start grace end. Nobody's clock runs ahead: an owner sees its lease end before the database does."""
    worker, name = world.workers[at], NAMES[at]
    if worker.trusts and worker.mode != "up":
        yield Step(f"{name}'s lease ends by its own clock", put(world, at, worker._replace(trusts=False)))
    if worker.lease == "live" and not worker.trusts:
        yield Step(f"{name}'s lease ends by the database's clock", put(world, at, worker._replace(lease="late")))
    flight = worker.memory.flight
    if flight and not flight.over and _is_waiting(worker, flight):
        slow = world.slow + worker.is_healthy
        if slow <= bounds.slow:
            after = fly(world, at, flight._replace(over=True))._replace(slow=slow)
            yield Step(f"the start grace of {name}'s claim passes", after)


def _is_waiting(worker: Worker, flight: Flight) -> bool:
    """Time can pass before its request is written: between check and write only for a worker that stands still."""
    return flight.phase in ("claiming", "begun") or (flight.phase == "checked" and worker.mode == "paused")


# --- the destination -------------------------------------------------------------------------------------------------


def _destination(world: World, request: Request, bounds: Bounds) -> Iterator[Step]:
    at, event = request.token[0][0], request.event
    closed = world._replace(requests=without(world.requests, request))
    heard = tuple(e for e in world.acknowledged if e != event)
    told = closed._replace(acknowledged=tuple(sorted((*heard, event))))
    failed = closed._replace(acknowledged=heard)
    yield Step(f"the destination answers 200 to event {event}", _answered(told, at, request, "acknowledged"))
    paused = world.workers[at].mode == "paused"
    if event <= bounds.moody:
        yield Step(f"the destination answers 500 to event {event}", _answered(failed, at, request, "failed"))
        if not paused:
            yield Step(f"the request of event {event} times out", _answered(failed, at, request, "failed"))
    if paused and not request.over:
        over = ordered(*closed.requests, request._replace(over=True))
        yield Step(f"the timeout of event {event}'s request passes unseen", closed._replace(requests=over))


def _answered(world: World, at: int, request: Request, phase: str) -> World:
    """The answer has landed where its worker runs; else it waits for it."""
    worker, flight = world.workers[at], world.workers[at].memory.flight
    if flight is None or flight.token != request.token or flight.phase != "written":
        return world
    if worker.mode == "paused":
        return fly(world, at, flight._replace(phase=phase))
    return _land(world, at, flight, RESULTS[phase])


# --- what goes wrong -------------------------------------------------------------------------------------------------


def _matters(world: World, at: int) -> bool:
    """Whether it has anything to lose."""
    worker = world.workers[at]
    return worker.mode == "up" and (worker.owns or worker.giving or world.shard == (at, worker.tenure))


def _faults(world: World, at: int, kinds: list[str]) -> Iterator[Step]:
    """A worker stands still, dies, or is cut off from the database (in the middle of a commit, for one); the
    database's clock jumps."""
    worker, flight, name = world.workers[at], world.workers[at].memory.flight, NAMES[at]
    if "freeze" in kinds:
        yield Step(f"{name} FREEZES", put(world, at, worker._replace(mode="paused")), helps=False)
        if flight and flight.phase == "begun" and not flight.over and worker.trusts:
            frozen = fly(world, at, flight._replace(phase="checked", frozen=True))
            after = put(frozen, at, frozen.workers[at]._replace(mode="paused"))
            yield Step(f"{name} FREEZES after its last look at the clocks, before it writes", after, helps=False)
    if "die" in kinds:
        dead = Worker("dead", worker.tenure, worker.lease, trusts=False)
        yield Step(f"{name} DIES", _hung_up(put(world, at, dead), at, worker.tenure), helps=False)
    if "cut" in kinds:
        yield Step(f"{name} is CUT OFF from the database", _cut(world, at), helps=False)
    if "jump" in kinds and worker.lease == "live":
        late = put(world, at, worker._replace(lease="late"))
        yield Step(f"the database's clock JUMPS past {name}'s lease", late, helps=False)


def _recoveries(world: World) -> Iterator[Step]:
    """What was frozen or cut off goes on."""
    for at, worker in enumerate(world.workers):
        if worker.mode in ("paused", "cut"):
            how = "wakes" if worker.mode == "paused" else "reaches the database again"
            yield Step(f"{NAMES[at]} {how}", put(world, at, worker._replace(mode="up")))


def _cut(world: World, at: int) -> World:
    """Its connections are gone, and with them the answers of what runs."""
    worker = world.workers[at]
    me = (at, worker.tenure)
    unsure = any(t.kind == "dispatch" and t.tenure == me and t.wired for t in world.transactions)
    memory = worker.memory._replace(unsure=worker.memory.unsure or unsure)
    after = put(world, at, worker._replace(mode="cut", giving=False, memory=memory))
    return _deaf(after, at, worker.tenure)


def _deaf(world: World, at: int, tenure: int) -> World:
    """Nobody hears the answers of this tenure's transactions any more."""
    return world._replace(
        transactions=ordered(*(t._replace(wired=False) if t.tenure == (at, tenure) else t for t in world.transactions))
    )


def _hung_up(world: World, at: int, tenure: int) -> World:
    """Its connections are closed, those to the destination too."""
    kept = tuple(r for r in world.requests if r.token[0] != (at, tenure))
    return _deaf(world._replace(requests=kept), at, tenure)


# --- small things ----------------------------------------------------------------------------------------------------


def _read(world: World, memory: Memory) -> Memory:
    """What the table has open beyond the tail is queued; an attempt in flight that is not ours is a predecessor's."""
    queue, flight = set(memory.queue), memory.flight
    for event, row in enumerate(world.rows, 1):
        if event <= memory.tail or event == memory.unsaved or (flight and flight.event == event):
            continue
        if row.state == "delivering":
            flight = Flight(event, _token(row), "foreign", row.failures)
        elif row.state == "queued":
            queue.add(event)
    return memory._replace(queue=tuple(sorted(queue)), tail=len(world.rows), behind=False, flight=flight)


def _token(row: Row) -> Token:
    assert row.token is not None
    return row.token


def _is_busy(memory: Memory) -> bool:
    return bool(memory.unsaved or memory.pending or memory.batch)


def _fresh(world: World, at: int) -> Token:
    """A token of the worker's tenure that nothing refers to."""
    memory, tenure = world.workers[at].memory, (at, world.workers[at].tenure)
    used = {row.token for row in world.rows} | {r.token for r in world.requests}
    used |= {item.token for item in (*memory.pending, *memory.batch)}
    used |= {item.token for t in world.transactions for item in t.batch}
    used |= {w.memory.flight.token for w in world.workers if w.memory.flight}
    return next((tenure, n) for n in range(9) if (tenure, n) not in used)


def _told(batch: tuple[Item, ...]) -> str:
    return " and ".join(f"event {i.event} {i.result or 'claimed'}" for i in batch)
