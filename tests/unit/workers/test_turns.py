"""Fair turns: among destinations, among the lanes of each, and who must step aside."""

import asyncio
import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from delivery.breaker import Breaker, Row
from delivery.pool import Pool
from domain.destinations import Destination
from domain.lifecycle import Delivery, State
from storage.lanes import LaneRead, Open
from workers.lane import FRESH, Entry, Lane
from workers.turns import Turns, Turnstile

AT = datetime(2026, 12, 1, tzinfo=UTC)
DONE = Delivery(State.DELIVERED)
WAREHOUSE = Destination(
    id=1,
    name="warehouse",
    url="http://warehouse.example/",
    headers=(),
    secrets=(),
    state="active",
    timeout=timedelta(seconds=1),
    concurrency=10,
    rate=None,
    max_attempts=3,
    retry_base=timedelta(seconds=1),
    retry_factor=2,
    retry_cap=timedelta(seconds=9),
    park_on=frozenset(),
    suspend_after=timedelta(days=5),
    on_park="continue",
    breaker_failures=3,
    breaker_reset=timedelta(seconds=30),
)


@dataclass
class Worker:
    """Begins nothing but notes down; `end` finishes an attempt of a destination."""

    size: int = 100
    settings: dict[int, Destination] = field(default_factory=dict)
    begun: list[tuple[int, int]] = field(default_factory=list)  # destination, partner
    flying: list[tuple[Turnstile, Lane, Entry]] = field(default_factory=list)
    probes_wanted: list[int] = field(default_factory=list)
    probes: list[UUID] = field(default_factory=list)
    paused: set[int] = field(default_factory=set)
    leased: bool = True

    def __post_init__(self) -> None:
        self.pool = Pool(self.size)
        self.turns = Turns(
            self.pool,
            self.begin,
            lambda destination: self.settings.get(destination, WAREHOUSE),
            lambda turnstile: self.probes_wanted.append(turnstile.id),
            lambda destination: Breaker("w", failures=3, reset=timedelta(seconds=30), concurrency=10),
            lambda lane: lane.key[0] in self.paused,
            lambda: self.leased,
        )

    def begin(self, turnstile: Turnstile, lane: Lane, entry: Entry, probe: UUID | None) -> None:
        self.begun.append((turnstile.id, lane.key[0]))
        self.flying.append((turnstile, lane, entry))
        if probe is not None:
            self.probes.append(probe)

    async def end(self, destination: int | None = None) -> None:
        at = next(i for i, (turnstile, *_) in enumerate(self.flying) if destination in (None, turnstile.id))
        turnstile, lane, entry = self.flying.pop(at)
        lane.end(entry, DONE, asyncio.get_running_loop().time())
        self.turns.release(turnstile)
        self.turns.want(lane)
        await settle()

    async def lane(self, destination: int, partner: int, n: int = 1, key: int | None = 0) -> Lane:
        lane = Lane((partner, destination), 0)
        lane.begin_read()
        lane.loaded(LaneRead(0, []), 10, 0.0)
        for sequence in range(1, n + 1):
            lane.push(sequence, AT, sequence - 1, key, None)
        self.turns.want(lane)
        await settle()
        return lane


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_lane_with_a_candidate_gets_its_turn_at_once() -> None:
    worker = Worker()

    await worker.lane(1, 7)

    assert worker.begun == [(1, 7)]


async def test_a_strict_lane_has_one_turn_at_a_time() -> None:
    worker = Worker()
    await worker.lane(1, 7, n=2)
    assert worker.begun == [(1, 7)]

    await worker.end()

    assert worker.begun == [(1, 7), (1, 7)]


async def test_of_suspects_one_goes_at_a_time_and_first_where_the_destination_works() -> None:
    worker = Worker()
    suspect = FRESH._replace(attempts=2, crashes=2)
    for destination in (1, 2, 3):
        lane = Lane((7, destination), 0)
        lane.begin_read()
        lane.loaded(LaneRead(1, [Open(1, AT, suspect, 0, 0, 0)]), 10, 0.0)
        worker.turns.want(lane)
    await settle()
    assert (worker.begun, worker.turns.waiting, worker.pool.active) == ([(1, 7)], 2, 1)
    worker.turns.turnstile(3).succeeded_at = asyncio.get_running_loop().time()

    await worker.end()
    worker.turns.release_alone()
    await settle()

    assert worker.begun == [(1, 7), (3, 7)]


async def test_retries_that_fall_due_while_turns_are_given_do_not_keep_the_ring_turning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker()
    lane = await worker.lane(1, 7, n=9, key=None)
    loop = asyncio.get_running_loop()
    start, looks = loop.time(), itertools.count()

    def time() -> float:
        look = next(looks)
        assert look < 10_000, "the ring turns and turns, and nobody goes"
        return start + look / 1000  # a millisecond passes at every look

    monkeypatch.setattr(loop, "time", time)
    for turnstile, _, entry in worker.flying:
        lane.end(entry, FRESH._replace(retry_in=timedelta(milliseconds=entry.sequence)), start)
        worker.pool.release(turnstile.id)
    worker.turns.want(lane)

    while len(worker.begun) < 18:
        await asyncio.sleep(0)


async def test_lanes_of_a_destination_take_turns() -> None:
    worker = Worker(settings={1: replace(WAREHOUSE, concurrency=1)})
    for partner in (7, 8, 9):
        await worker.lane(1, partner, n=9, key=None)

    for _ in range(5):
        await worker.end()

    assert [partner for _, partner in worker.begun] == [7, 7, 8, 9, 7, 8]  # 7 was back in line before 8 came


async def test_destinations_take_turns_for_a_full_pool() -> None:
    worker = Worker(size=2)
    for destination in (1, 2, 3):
        worker.turns.turnstile(destination).succeeded_at = asyncio.get_running_loop().time()
        await worker.lane(destination, 7, n=9, key=None)

    for _ in range(7):
        await worker.end()

    counts = [sum(begun == destination for begun, _ in worker.begun) for destination in (1, 2, 3)]
    assert sum(counts) == 9
    assert min(counts) >= 2


async def test_a_destination_at_its_limit_costs_nobody_else_a_turn() -> None:
    worker = Worker(settings={1: replace(WAREHOUSE, concurrency=2)})
    await worker.lane(1, 7, n=9, key=None)

    await worker.lane(2, 7, n=3, key=None)

    assert sorted(worker.begun) == [(1, 7)] * 2 + [(2, 7)] * 3


async def test_of_a_shared_destination_each_worker_takes_its_part() -> None:
    worker = Worker()
    worker.turns.turnstile(1).others = 2

    await worker.lane(1, 7, n=20, key=None)

    assert len(worker.begun) == 4  # a third of ten, rounded up: the claim checks the whole


async def test_a_blocked_destination_comes_back_by_itself() -> None:
    worker = Worker()
    worker.turns.block(worker.turns.turnstile(1), 0.02)
    await worker.lane(1, 7)
    assert worker.begun == []

    async with asyncio.timeout(2):
        while not worker.begun:
            await asyncio.sleep(0.005)


async def test_nothing_goes_to_a_paused_destination_before_a_change_of_configuration() -> None:
    worker = Worker(settings={1: replace(WAREHOUSE, state="paused")})
    await worker.lane(1, 7)
    assert worker.begun == []

    worker.settings.clear()
    worker.turns.wake_all()
    await settle()

    assert worker.begun == [(1, 7)]


async def test_a_lane_that_was_paused_in_the_ring_gives_its_slot_back() -> None:
    worker = Worker(settings={1: replace(WAREHOUSE, concurrency=1)})
    await worker.lane(1, 7)
    await worker.lane(1, 8)
    worker.paused.add(8)

    await worker.end()

    assert (worker.begun, worker.pool.active) == ([(1, 7)], 0)


async def test_nothing_is_begun_without_a_lease_or_after_the_end() -> None:
    worker = Worker(leased=False)
    await worker.lane(1, 7)
    assert worker.begun == []
    worker.turns.close()
    worker.leased = True

    worker.turns.wake_all()
    await worker.lane(1, 8)

    assert worker.begun == []


async def test_an_open_breaker_asks_for_a_probe_and_only_the_probe_goes_out() -> None:
    worker = Worker()
    turnstile = worker.turns.turnstile(1)
    turnstile.breaker.observe(Row("open", AT, version=1))
    await worker.lane(1, 7, n=5, key=None)
    assert (worker.begun, set(worker.probes_wanted)) == ([], {1})

    turnstile.breaker.observe(Row("half_open", AT, UUID(int=4), AT, version=2))
    turnstile.probe = UUID(int=4)
    worker.turns.wake(turnstile)
    await settle()

    assert (worker.begun, worker.probes) == ([(1, 7)], [UUID(int=4)])


async def test_a_retry_takes_its_turn_when_it_is_due() -> None:
    worker = Worker()
    lane = await worker.lane(1, 7)
    turnstile, _, entry = worker.flying.pop()
    lane.end(entry, Delivery(retry_in=timedelta(milliseconds=20)), asyncio.get_running_loop().time())
    worker.turns.release(turnstile)
    worker.turns.want(lane)
    await settle()
    assert len(worker.begun) == 1

    async with asyncio.timeout(2):
        while len(worker.begun) < 2:
            await asyncio.sleep(0.005)
