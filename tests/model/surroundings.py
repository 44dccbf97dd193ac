"""What comes from outside the workers: time, the destination's answers, and faults.

Time is an order of events. What the clocks guarantee is a condition of the step that relies on it: an owner's clock
sees its lease end before the database's does, and no time passes between the last look at the clocks and the write,
unless the worker stands still just there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.owners import RESULTS, land
from tests.model.world import (
    NAMES,
    Bounds,
    Flight,
    Request,
    Step,
    Worker,
    World,
    deaf,
    fly,
    hung_up,
    ordered,
    put,
    without,
)


def passes(world: World, at: int, bounds: Bounds) -> Iterator[Step]:
    """A lease and a start grace end."""
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


def answers(world: World, request: Request, bounds: Bounds) -> Iterator[Step]:
    """What the destination says to an open request, or that it says nothing in time."""
    at, event = request.token[0], request.event
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
    return land(world, at, flight, RESULTS[phase])


def may_lose(world: World, at: int) -> bool:
    """Whether it has anything to lose."""
    worker = world.workers[at]
    return worker.mode == "up" and (worker.owns or worker.giving or world.shard == at)


def goes_wrong(world: World, at: int, kinds: list[str]) -> Iterator[Step]:
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
        dead = Worker("dead", worker.lease, trusts=False)
        yield Step(f"{name} DIES", hung_up(put(world, at, dead), at), helps=False)
    if "cut" in kinds:
        yield Step(f"{name} is CUT OFF from the database", _cut(world, at), helps=False)
    if "jump" in kinds and worker.lease == "live":
        late = put(world, at, worker._replace(lease="late"))
        yield Step(f"the database's clock JUMPS past {name}'s lease", late, helps=False)


def recovers(world: World) -> Iterator[Step]:
    """What was frozen or cut off goes on."""
    for at, worker in enumerate(world.workers):
        if worker.mode in ("paused", "cut"):
            how = "wakes" if worker.mode == "paused" else "reaches the database again"
            yield Step(f"{NAMES[at]} {how}", put(world, at, worker._replace(mode="up")))


def _cut(world: World, at: int) -> World:
    """Its connections are gone, and with them the answers of what runs."""
    return deaf(put(world, at, world.workers[at]._replace(mode="cut", giving=False)), at)
