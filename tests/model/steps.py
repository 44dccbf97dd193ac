"""Everything that can happen next: to the server, the workers, the destination, time; and what goes wrong.

Each step is atomic as it is in the code: a statement's check of the lease and its commit are two, the last check of
the clocks and the write of the request are two, an outcome and its lane's next claim may share a commit. Where time
matters it is an order of events: what the clocks guarantee is a condition of the step that relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import owners, surroundings
from tests.model.server import arrives
from tests.model.world import Bounds, Mechanisms, Step, World, replaced


def steps(world: World, m: Mechanisms, bounds: Bounds) -> Iterator[Step]:
    """All that may happen next."""
    yield from _people(world, bounds)
    for transaction in world.transactions:
        yield from arrives(world, transaction, m)
    for at in range(len(world.workers)):
        yield from owners.does(world, at, m, bounds)
        yield from surroundings.passes(world, at, bounds)
        if world.faults < bounds.faults and surroundings.may_lose(world, at):
            yield from surroundings.goes_wrong(world._replace(faults=world.faults + 1), at, bounds.kinds.split())
    yield from surroundings.recovers(world)
    for request in world.requests:
        yield from surroundings.answers(world, request, bounds)


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
