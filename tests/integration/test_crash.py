"""What dies in between: workers at the worst moment, the database, and its answers (promises P4, P6, P13)."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from delivery.exchange import Exchange, Outgoing
from storage.errors import StorageUnavailable
from storage.log import Answer
from storage.schema import migrate
from tests.chaos.line import through
from tests.owner import Elsewhere, loses_answer
from tests.pipeline import Pipeline, Running, running_pipeline
from tests.servers import Servers
from tests.sink import Request, overlaps
from tests.watching import Gate, ask, kill, owned, ready, tenure_of, until

SECOND = timedelta(seconds=1)
JOURNAL = "hookyard worker journal"
AWAY = StorageUnavailable("the line is dead")


# --- workers ---------------------------------------------------------------------------------------------------------


async def test_a_worker_that_dies_between_the_answer_and_its_commit_costs_one_duplicate(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    shop = pipeline.lane(timeout=SECOND)
    locks: list[object] = []

    async def lock_the_gate(request: Request) -> int:
        locks.append(await elsewhere.transaction("SELECT 1 FROM gates FOR UPDATE"))
        return 200

    pipeline.sink.steps["/"] += [200, lock_the_gate]
    first = pipeline.start_worker("w1", lease=SECOND)
    await pipeline.post(shop, 4)
    (backend,) = await elsewhere.until_blocked(JOURNAL)  # the destination has said 200, the outcome waits to be saved

    await kill(first)
    await elsewhere.rows("SELECT pg_terminate_backend(%s)", backend)
    await elsewhere.until("SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", backend)
    await elsewhere.open.aclose()
    pipeline.start_worker("w2", lease=SECOND)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 2, 3, 4]
    assert len({request.id for request in pipeline.sink.requests if request.sequence == 2}) == 1
    assert overlaps(pipeline.sink.requests) == []
    assert pipeline.sql("SELECT number, outcome FROM attempts WHERE seq = 2 ORDER BY 1") == [
        (1, "lost"),
        (2, "success"),
    ]


async def test_a_worker_that_dies_between_dispatch_and_claim_loses_nothing(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    pipeline.sql("UPDATE destinations SET state = 'paused'")
    first = pipeline.start_worker("w1", lease=SECOND)
    await pipeline.post(shop, 3)
    await until(lambda: pipeline.sql("SELECT count(*) FROM deliveries WHERE state = 'queued'") == [(3,)])

    await kill(first)
    pipeline.sql("UPDATE destinations SET state = 'active'")
    pipeline.start_worker("w2", lease=SECOND)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 3]


async def test_an_owner_that_was_replaced_while_an_attempt_ran_records_nothing(pipeline: Pipeline) -> None:
    """Alive, slow, and no longer the owner: its outcome is refused, and the successor tries again after the budget."""
    shop, slow = pipeline.lane(timeout=timedelta(seconds=3)), Gate()
    pipeline.sink.steps["/"] += [slow]
    first = pipeline.start_worker("w1")
    await pipeline.post(shop, 2)
    await slow.reached.wait()
    stale = tenure_of(first)
    pipeline.sql("UPDATE workers SET fenced = true; UPDATE shards SET owner = NULL")
    slow.open.set()
    await until(lambda: first.worker._tenure is not stale)
    assert pipeline.sql("SELECT count(*) FROM attempts") == [(0,)]
    assert pipeline.sql("SELECT state::text FROM deliveries WHERE seq = 1") == [("delivering",)]

    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 1, 2]
    assert pipeline.sql("SELECT number, outcome FROM attempts WHERE seq = 1 ORDER BY 1") == [
        (1, "lost"),
        (2, "success"),
    ]


# --- answers that are lost -------------------------------------------------------------------------------------------


async def test_a_dispatch_whose_answer_was_lost_is_found_in_the_table(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    running = pipeline.start_worker()
    await ready(running)
    sent = loses_answer(tenure_of(running)._reads, "dispatch(", AWAY)

    await pipeline.post(shop, 3)
    await pipeline.settled()

    assert sent() >= 2
    assert pipeline.sink.sequences() == [1, 2, 3]


async def test_a_nudge_whose_answer_was_lost_is_not_forgotten(pipeline: Pipeline) -> None:
    shop = pipeline.lane(park_on=[400])
    pipeline.sink.steps["/"] += [400]
    running = pipeline.start_worker()
    await pipeline.post(shop)
    await pipeline.settled()
    tenure = tenure_of(running)
    real, lost = tenure._owner.fetch, 0

    async def fetch(query: str, parameters: object = ()) -> list[object]:
        nonlocal lost
        rows = await real(query, parameters)  # type: ignore[arg-type]
        if "DELETE FROM nudges" in query and rows and not lost:
            lost += 1
            raise AWAY
        return rows  # type: ignore[return-value]

    tenure._owner.fetch = fetch  # type: ignore[method-assign,assignment]
    await ask(pipeline, "replay", 1)
    await pipeline.settled()

    assert (lost, pipeline.sink.sequences()) == (1, [1, 1])


async def test_an_outcome_whose_commit_was_not_answered_is_recorded_once(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    running = pipeline.start_worker()
    await ready(running)
    sent = loses_answer(tenure_of(running)._writes, "journal(", AWAY)  # the claim's, and then the outcome's
    await pipeline.post(shop)
    await until(lambda: sent() >= 2)
    loses_answer(tenure_of(running)._writes, "journal(", AWAY)

    await pipeline.post(shop, 3)
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2, 3, 4]
    assert pipeline.sql("SELECT seq, number, outcome FROM attempts ORDER BY seq") == [
        (n, 1, "success") for n in (1, 2, 3, 4)
    ]
    assert pipeline.sql("SELECT l.in_flight, g.in_flight FROM lanes l, gates g") == [(0, 0)]


async def test_a_commit_whose_answer_was_lost_on_the_wire_is_recorded_and_counted_once(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    async with through(pipeline.database_url) as (line, url):
        running = pipeline.start_worker(database_url=url)
        await pipeline.post(shop)
        await pipeline.settled()

        line.loses_answer_to(b"success")
        await pipeline.post(shop, 3)
        await pipeline.settled()
        await running.finish()

    assert line.lost == 1
    assert pipeline.sink.sequences() == [1, 2, 3, 4]
    assert pipeline.sql("SELECT seq, number, outcome FROM attempts ORDER BY seq") == [
        (n, 1, "success") for n in (1, 2, 3, 4)
    ]
    assert counted(running, "warehouse", "success") == 4
    assert pipeline.sql("SELECT l.in_flight, g.in_flight FROM lanes l, gates g") == [(0, 0)]


def counted(running: Running, destination: str, outcome: str) -> float | None:
    return running.registry.get_sample_value(
        "hookyard_attempts_total", {"destination": destination, "outcome": outcome}
    )


async def test_an_answer_that_cannot_be_stored_does_not_cost_its_outcome(pipeline: Pipeline) -> None:
    """What a destination says may hold what a text column refuses; the attempt is recorded without it."""
    shop = pipeline.lane(max_attempts=1, timeout=timedelta(seconds=60))
    running = pipeline.start_worker()
    await ready(running)
    attempts = tenure_of(running).attempts
    real = attempts._client.send

    async def send(outgoing: Outgoing) -> Exchange:
        return (await real(outgoing))._replace(error="NUL \0 here")

    attempts._client = type("Client", (), {"send": staticmethod(send)})()
    pipeline.sink.steps["/"] += [500, 200]
    await pipeline.post(shop, 2)
    await pipeline.settled()

    assert pipeline.sql("SELECT seq, outcome, error FROM attempts ORDER BY seq") == [
        (1, "http_error", "unprintable"),
        (2, "success", "unprintable"),
    ]


# --- the database ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def breakable(own_servers: Servers) -> AsyncIterator[tuple[Servers, Pipeline]]:
    """A pipeline on servers of its own."""
    url = own_servers.url_of("hookyard")
    await asyncio.to_thread(migrate, url)
    async with running_pipeline(url, own_servers.redis_url) as pipeline:
        yield own_servers, pipeline


async def post_until(pipeline: Pipeline, shop: object, finished: asyncio.Event) -> list[Answer]:
    """Posts one by one; answers what was acknowledged."""
    kept: list[Answer] = []
    while not finished.is_set():
        with contextlib.suppress(StorageUnavailable):
            kept += await pipeline.post(shop)  # type: ignore[arg-type]
        await asyncio.sleep(0.005)
    return kept


@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_everything_resumes_by_itself_when_the_database_comes_back(
    breakable: tuple[Servers, Pipeline], how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    servers, pipeline = breakable
    shop = pipeline.lane()
    running = pipeline.start_worker()
    await ready(running)
    finished = asyncio.Event()
    posting = asyncio.create_task(post_until(pipeline, shop, finished))
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) > 20)

    if how == "kill":
        _signal(_backends(servers), signal.SIGKILL)
        await asyncio.to_thread(servers.postgres_process.wait)
    else:
        await asyncio.to_thread(servers.stop_postgres)
    with pytest.raises(StorageUnavailable):
        await pipeline.post(shop)
    assert not pipeline.log.available
    await until(lambda: "database away" in running.worker.amiss)
    await asyncio.to_thread(servers.start_postgres)
    seen = len(pipeline.sink.requests)
    await pipeline.sink.until(lambda: len(pipeline.sink.requests) > seen + 20)
    finished.set()
    kept = {answer.sequence for answer in await posting}
    pipeline.store._engine.dispose()
    await pipeline.settled()

    first_arrivals = list(dict.fromkeys(pipeline.sink.sequences()))
    assert first_arrivals == sorted(first_arrivals)
    assert kept <= set(first_arrivals)
    assert overlaps(pipeline.sink.requests) == []
    await until(lambda: running.worker.amiss == [])
    assert 1 <= capsys.readouterr().out.count(" worker.trouble ") <= 3  # however many loops met it, however often
    assert pipeline.sql("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'") == [(0,)]


async def test_a_worker_stops_in_time_without_a_database(breakable: tuple[Servers, Pipeline]) -> None:
    servers, pipeline = breakable
    shop, slow = pipeline.lane(), Gate()
    pipeline.sink.steps["/"] += [slow]
    running = pipeline.start_worker(drain_seconds=1.0)
    await pipeline.post(shop)
    await slow.reached.wait()
    await asyncio.to_thread(servers.stop_postgres)
    slow.open.set()

    async with asyncio.timeout(14):
        await running.finish()

    await asyncio.to_thread(servers.start_postgres)
    pipeline.store._engine.dispose()
    pipeline.start_worker("w2")
    await pipeline.settled()
    assert pipeline.sink.sequences() == [1, 1]


async def test_a_worker_that_starts_before_the_database_waits_for_it(breakable: tuple[Servers, Pipeline]) -> None:
    servers, pipeline = breakable
    shop = pipeline.lane()
    await pipeline.post(shop)
    await asyncio.to_thread(servers.stop_postgres)
    running = pipeline.start_worker()
    await until(lambda: running.worker.amiss == ["not started"], steady_seconds=0.3)

    await asyncio.to_thread(servers.start_postgres)

    await pipeline.sink.until(lambda: len(pipeline.sink.requests) == 1)
    await until(lambda: owned(running) == 64)
    pipeline.store._engine.dispose()
    await pipeline.settled()


async def test_a_database_that_says_nothing_is_not_waited_for_for_ever(breakable: tuple[Servers, Pipeline]) -> None:
    servers, pipeline = breakable
    shop = pipeline.lane()
    await pipeline.post(shop)
    frozen = _backends(servers)
    _signal(frozen, signal.SIGSTOP)
    started = asyncio.get_running_loop().time()

    try:
        with pytest.raises(StorageUnavailable):
            await pipeline.post(shop)
        took = asyncio.get_running_loop().time() - started
    finally:
        _signal(frozen, signal.SIGCONT)

    assert took < 8
    assert [answer.status for answer in await pipeline.post(shop)] == ["stored"]


def _backends(servers: Servers) -> list[int]:
    """The postmaster and every process below it, in that order."""
    family = [servers.postgres_process.pid]
    parents = {int(stat.parent.name): _parent(stat) for stat in Path("/proc").glob("[0-9]*/stat")}
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return 0


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
