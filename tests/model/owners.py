"""What a worker does: its lease, dispatch, reading on, the journal, attempts and rescues.

As in the workers' own code, but for what no promise rests on: an answer is taken in the turn in which it comes, and a
claim is made in the turn in which it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import promises
from tests.model.server import commit
from tests.model.world import (
    GONE,
    MAX_ATTEMPTS,
    NAMES,
    Bounds,
    Flight,
    Item,
    Mechanisms,
    Memory,
    Request,
    Row,
    Step,
    Token,
    Transaction,
    Worker,
    World,
    fly,
    forgotten,
    hung_up,
    ordered,
    put,
)

RESULTS = {"acknowledged": "delivered", "failed": "queued"}


def does(world: World, at: int, m: Mechanisms, bounds: Bounds) -> Iterator[Step]:
    """What this worker may do next."""
    worker = world.workers[at]
    if worker.mode in ("paused", "dead"):
        return
    if worker.mode == "up":
        yield from _lease(world, at, worker, m)
        yield from _asks(world, at, worker, m, bounds)
        if worker.owns and _is_idle(worker.memory) and world.hand_overs < bounds.hand_overs:
            after = put(world, at, worker._replace(owns=False, giving=True, memory=Memory()))
            label = f"{NAMES[at]} leaves its lanes"
            yield Step(label, after._replace(hand_overs=world.hand_overs + 1), helps=False)
    yield from _attempt(world, at, worker, m)


def _lease(world: World, at: int, worker: Worker, m: Mechanisms) -> Iterator[Step]:
    """The lease is renewed, the late are fenced, a free shard is taken up; or the shard is given back."""
    if worker.giving:
        if not any(t.owner == at and t.stage != "sent" for t in world.transactions):
            after = put(world, at, worker._replace(giving=False))
            yield Step(
                f"{NAMES[at]} gives its shard back", after._replace(shard=None if world.shard == at else world.shard)
            )
        return
    if worker.lease == "fenced":
        label = f"{NAMES[at]} learns that its lease is lost and gives up"
        yield Step(label, hung_up(put(world, at, GONE), at))
        return
    workers, shard = list(world.workers), world.shard
    for other, late in enumerate(workers):
        if other == at or late.lease != "late":
            continue
        if m.hold and any(t.owner == other and t.stage != "sent" for t in world.transactions):
            return  # waits for it
        workers[other] = late._replace(lease="fenced")
        shard = None if shard == other else shard
    shard = at if shard is None else shard
    gains = shard == at and not worker.owns
    memory = Memory(unsaved=worker.memory.unsaved) if gains else worker.memory
    workers[at] = worker._replace(lease="live", trusts=True, owns=worker.owns or gains, memory=memory)
    transactions = tuple(
        t for t in world.transactions if not (m.fence and t.stage == "sent" and _is_fenced(workers, t))
    )
    after = world._replace(workers=tuple(workers), shard=shard, transactions=transactions)
    if after != world:
        yield Step(f"{NAMES[at]} tends its lease" + (" and takes the shard" if gains else ""), after)


def _is_fenced(workers: list[Worker], transaction: Transaction) -> bool:
    return workers[transaction.owner].lease == "fenced"


def _asks(world: World, at: int, worker: Worker, m: Mechanisms, bounds: Bounds) -> Iterator[Step]:
    """What goes to the database: dispatch, reading on, the journal, nudges."""
    memory, name = worker.memory, NAMES[at]
    sent = [t for t in world.transactions if t.owner == at and t.wired]
    is_dispatching = any(t.kind == "dispatch" for t in sent)
    if worker.owns and world.log > world.cursor and not is_dispatching:
        yield _send(world, Transaction("dispatch", at), f"{name} dispatches", m, bounds)
    if m.compares and worker.owns and not memory.behind and len(world.rows) > memory.tail:
        after = put(world, at, worker._replace(memory=memory._replace(behind=True)))
        yield Step(f"{name} sees that more was dispatched to its lane", after)
    if worker.owns and memory.behind and not (m.reads_wait and memory.tail < 0 and memory.unsaved):
        yield Step(f"{name} reads its lane", put(world, at, worker._replace(memory=_read(world, memory))))
    if world.nudged and world.shard == at:
        after = put(world, at, worker._replace(memory=forgotten(memory) if worker.owns else memory))
        yield Step(f"{name} hears that a person changed the lane", after._replace(nudged=False))
    if not any(t.kind == "journal" for t in sent):
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
        transaction = Transaction("journal", at, batch=after.batch)
        submitted = put(world, at, worker._replace(memory=after))
        yield _send(submitted, transaction, f"{label} {_told(after.batch)}", m, bounds)


def _send(world: World, transaction: Transaction, label: str, m: Mechanisms, bounds: Bounds) -> Step:
    """A statement is on its way. After the last fault nothing can come between a healthy worker's and its commit."""
    if 0 < bounds.faults == world.faults and world.workers[transaction.owner].is_healthy:
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
                yield Step(f"{name} withdraws event {flight.event}", land(world, at, flight, "withdrawn"))
        case "checked":
            yield _write(world, at, flight)
        case "acknowledged" | "failed":
            yield Step(
                f"{name} takes the answer of event {flight.event}", land(world, at, flight, RESULTS[flight.phase])
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


def land(world: World, at: int, flight: Flight, result: str) -> World:
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


def _is_idle(memory: Memory) -> bool:
    return not (memory.flight or memory.unsaved or memory.pending or memory.batch)


def _fresh(world: World, at: int) -> Token:
    """A token of the worker's that nothing refers to."""
    memory = world.workers[at].memory
    used = {row.token for row in world.rows} | {r.token for r in world.requests}
    used |= {item.token for item in (*memory.pending, *memory.batch)}
    used |= {item.token for t in world.transactions for item in t.batch}
    used |= {w.memory.flight.token for w in world.workers if w.memory.flight}
    return next((at, n) for n in range(9) if (at, n) not in used)


def _told(batch: tuple[Item, ...]) -> str:
    return " and ".join(f"event {i.event} {i.result or 'claimed'}" for i in batch)
