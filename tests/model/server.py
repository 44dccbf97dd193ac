"""An owner's statement at the server: its lease is checked, it commits; and what its owner makes of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model import promises
from tests.model.world import (
    NAMES,
    Item,
    Mechanisms,
    Memory,
    Row,
    Step,
    Transaction,
    World,
    forgotten,
    ordered,
    put,
    replaced,
    without,
)


def arrives(world: World, transaction: Transaction, m: Mechanisms) -> Iterator[Step]:
    """A statement gets on at the server, or is given up there because nobody waits for it."""
    at = transaction.owner
    rest = world._replace(transactions=without(world.transactions, transaction))
    who = f"{NAMES[at]}'s {transaction.kind}" + ("" if transaction.wired else ", cut off,")
    if transaction.stage == "sent":
        worker = world.workers[at]
        if m.fence and (worker.lease not in ("live", "late")):
            yield Step(f"{who} is refused: its lease is lost", rest)
        else:
            held = transaction._replace(stage="held")
            yield Step(f"{who} has its lease checked", rest._replace(transactions=ordered(*rest.transactions, held)))
    else:
        after, broken = commit(rest, transaction, m)
        yield Step(f"{who} commits", after, broken)
    if not transaction.wired:
        yield Step(f"{who} is rolled back", rest)


@dataclass(slots=True)
class _Commit:
    """A commit under way."""

    world: World
    owner: int
    broken: list[str] = field(default_factory=list)


def commit(world: World, transaction: Transaction, m: Mechanisms) -> tuple[World, tuple[str, ...]]:
    """The world after the commit, the transaction gone from it, and the promises broken on the way."""
    work = _Commit(world, transaction.owner)
    if transaction.kind == "dispatch":
        _dispatch(work, transaction, m)
    else:
        answers = [_settle(work, item, m) if item.result else _claim(work, item, m) for item in transaction.batch]
        if transaction.wired:
            _tell(work, transaction.batch, answers)
    changed = (work.world.rows, work.world.cursor) != (world.rows, world.cursor)
    if changed and world.shard != transaction.owner and transaction.stage != "half":
        work.broken.append(promises.STALE_OWNER)
    return work.world, tuple(work.broken)


# --- the journal -----------------------------------------------------------------------------------------------------


def _settle(work: _Commit, item: Item, m: Mechanisms) -> str:
    world = work.world
    row = world.rows[item.event - 1]
    if row.state != "delivering" or (m.token_check and row.token != item.token):
        return "known" if row.token == item.token else "lost"
    records = world.records
    if item.result != "withdrawn":
        if item.token in records:
            work.broken.append(promises.RECORDED_TWICE)
        records = tuple(sorted({*records, item.token}))
    state = item.result if item.result in ("delivered", "parked") else "queued"
    after = row._replace(state=state, failures=item.failures)
    work.world = world._replace(rows=replaced(world.rows, item.event - 1, after), records=records)
    return "saved"


def _claim(work: _Commit, item: Item, m: Mechanisms) -> str:
    world = work.world
    row = world.rows[item.event - 1]
    if row.state == "delivering" and row.token == item.token:
        return "begun"
    if row.state != "queued" or world.shard != work.owner:
        return "refused"
    open_before = any(not promises.is_settled(r) for r in world.rows[: item.event - 1])
    if open_before or any(r.state == "delivering" for r in world.rows):
        if m.order_check:
            return "refused"
        work.broken.append(promises.OUT_OF_ORDER)
    after = row._replace(state="delivering", token=item.token)
    work.world = world._replace(rows=replaced(world.rows, item.event - 1, after))
    return "begun"


def _tell(work: _Commit, batch: tuple[Item, ...], answers: list[str]) -> None:
    """The owner hears what became of its batch."""
    at = work.owner
    worker = work.world.workers[at]
    memory = worker.memory._replace(batch=())
    for item, answer in zip(batch, answers, strict=True):
        if not item.result:
            memory = _heard_of_claim(memory, item, work.world.rows[item.event - 1], answer)
        else:
            memory = _heard_of_outcome(memory, item, answer)
    work.world = put(work.world, at, worker._replace(memory=memory))


def _heard_of_claim(memory: Memory, item: Item, row: Row, answer: str) -> Memory:
    flight = memory.flight
    if flight is None or flight.token != item.token:
        return memory
    if answer == "begun":
        return memory._replace(flight=flight._replace(phase="begun", failures=row.failures))
    return forgotten(memory)._replace(flight=None)


def _heard_of_outcome(memory: Memory, item: Item, answer: str) -> Memory:
    if item.result == "lost":
        memory = memory._replace(flight=None, queue=tuple(sorted((*memory.queue, item.event))))
    elif memory.unsaved == item.event:
        memory = memory._replace(unsaved=0)
    return forgotten(memory) if answer == "lost" else memory


# --- dispatch --------------------------------------------------------------------------------------------------------


def _dispatch(work: _Commit, transaction: Transaction, m: Mechanisms) -> None:
    world = work.world
    if transaction.stage == "half":
        work.world = world._replace(rows=world.rows + (Row(),) * (world.cursor - len(world.rows)))
    elif world.shard == transaction.owner:
        work.world = world = world._replace(cursor=world.log)
        if not m.atomic_dispatch:
            half = transaction._replace(stage="half")
            work.world = world._replace(transactions=ordered(*world.transactions, half))
            return
        work.world = world._replace(rows=world.rows + (Row(),) * (world.log - len(world.rows)))
    if transaction.wired:
        _hand_on(work, range(len(world.rows) + 1, len(work.world.rows) + 1))


def _hand_on(work: _Commit, events: range) -> None:
    """The owner hears what was dispatched."""
    at = work.owner
    worker = work.world.workers[at]
    memory = worker.memory
    if not worker.owns:
        return
    for event in events:
        if memory.behind or memory.tail != event - 1:
            memory = memory._replace(behind=True)
        else:
            memory = memory._replace(queue=(*memory.queue, event), tail=event)
    work.world = put(work.world, at, worker._replace(memory=memory))
