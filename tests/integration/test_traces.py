"""Histories that the model (tests/model) found worth telling, with real workers and their windows held open."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from storage.errors import StorageUnavailable
from tests.owner import Elsewhere, loses_answer
from tests.pipeline import Pipeline, Running
from tests.sink import overlaps
from tests.watching import Gate, ready, tenure_of, until
from workers import attempts
from workers import tenure as tenures

SECOND = timedelta(seconds=1)
JOURNAL = "hookyard worker journal"
RECORDS = "SELECT seq, number, outcome FROM attempts ORDER BY seq, number"
AWAY = StorageUnavailable("the line is dead")


@dataclass(slots=True)
class Pause:
    """A worker that stands still right before it looks at its clocks for the last time, and at its lease too."""

    running: Running
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        tenure = tenure_of(self.running)
        client, tend = tenure.attempts._client, tenure._lease.fetch

        async def send(outgoing: Any) -> Any:
            self.reached.set()
            await self.over.wait()
            return await client.send(outgoing)

        async def fetch(query: str, parameters: Any = ()) -> Any:
            if self.reached.is_set():
                await self.over.wait()
            return await tend(query, parameters)

        tenure.attempts._client = type("Paused", (), {"send": staticmethod(send)})()
        tenure._lease.fetch = fetch  # type: ignore[method-assign]


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt must start soon."""
    monkeypatch.setattr(attempts, "START_GRACE_SECONDS", 0.5)


async def test_an_owner_that_stood_still_between_claim_and_write_wakes_up_and_withdraws(
    pipeline: Pipeline, brief: None
) -> None:
    shop = pipeline.lane(timeout=SECOND)
    first = pipeline.start_worker("w1", lease=SECOND)
    await ready(first)
    pause, stale = Pause(first), tenure_of(first)
    await pipeline.post(shop, 2)
    await pause.reached.wait()

    pipeline.start_worker("w2", lease=SECOND)
    await pipeline.settled()  # the successor has waited out the budget, and delivered
    pause.over.set()
    await until(lambda: first.worker._tenure is not stale)
    await ready(first)

    assert pipeline.sink.sequences() == [1, 2]
    assert pipeline.sql(RECORDS) == [(1, 1, "lost"), (1, 2, "success"), (2, 1, "success")]


async def test_where_the_databases_clock_jumps_the_start_grace_alone_keeps_a_late_request_back(
    pipeline: Pipeline, brief: None
) -> None:
    """The owner believes in its lease; what it claimed has become too old to be sent."""
    shop = pipeline.lane(timeout=SECOND)
    first = pipeline.start_worker("w1", lease=timedelta(minutes=1))
    await ready(first)
    pause, stale = Pause(first), tenure_of(first)
    await pipeline.post(shop, 2)
    await pause.reached.wait()
    pipeline.sql("UPDATE workers SET expires_at = now() - interval '1 second'")
    slow = Gate()
    pipeline.sink.steps["/"] += [slow]
    pipeline.start_worker("w2", lease=SECOND)
    await slow.reached.wait()  # the successor's request is in flight
    assert stale._may_start()

    pause.over.set()
    await until(lambda: first.worker._tenure is not stale)
    assert pipeline.sink.sequences() == [1]
    slow.open.set()
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2]
    assert overlaps(pipeline.sink.requests) == []


async def test_an_outcome_that_meets_the_takeover_is_refused_and_changes_nothing(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    shop, slow = pipeline.lane(timeout=SECOND), Gate()
    pipeline.sink.steps["/"] += [slow]
    first = pipeline.start_worker("w1")
    await pipeline.post(shop)
    await slow.reached.wait()
    stale = tenure_of(first)
    takeover = await elsewhere.transaction("UPDATE workers SET fenced = true")

    slow.open.set()
    await elsewhere.until_blocked(JOURNAL)  # the outcome waits for the takeover's end
    await takeover.execute("UPDATE shards SET owner = NULL, epoch = epoch + 1")
    await takeover.commit()
    await until(lambda: first.worker._tenure is not stale)
    assert pipeline.sql("SELECT state::text FROM deliveries") == [("delivering",)]
    assert pipeline.sql(RECORDS) == []
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 1]
    assert pipeline.sql(RECORDS) == [(1, 1, "lost"), (1, 2, "success")]


async def test_a_takeover_that_meets_an_outcome_lets_it_through_and_finds_it(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    shop, slow = pipeline.lane(timeout=SECOND), Gate()
    pipeline.sink.steps["/"] += [slow]
    pipeline.start_worker("w1", lease=timedelta(minutes=1))
    await pipeline.post(shop)
    await slow.reached.wait()
    gate = await elsewhere.transaction("SELECT 1 FROM gates FOR UPDATE")
    slow.open.set()
    await elsewhere.until_blocked(JOURNAL)  # past its check of the lease
    second = await elsewhere.transaction()
    takeover = asyncio.create_task(second.execute("UPDATE workers SET fenced = true"))
    await elsewhere.until_blocked("")

    await gate.rollback()
    await takeover
    assert await (await second.execute("SELECT state::text FROM deliveries")).fetchall() == [("delivered",)]
    await second.commit()
    pipeline.start_worker("w2")
    await pipeline.settled()

    assert pipeline.sink.sequences() == [1]
    assert pipeline.sql(RECORDS) == [(1, 1, "success")]


async def test_a_failure_is_known_to_be_saved_before_its_delivery_is_claimed_again(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    """In one commit whose answer was lost, and sent again, the outcome could not be told from one that was refused."""
    shop, slow = pipeline.lane(), Gate(500)
    pipeline.sink.steps["/"] += [slow]
    other = pipeline.lane("kiosk", "depot", path="/depot")
    running = pipeline.start_worker()
    await ready(running)
    await pipeline.post(shop)
    await slow.reached.wait()
    depot = "SELECT 1 FROM gates g JOIN destinations d ON d.id = destination_id WHERE d.name = 'depot' FOR UPDATE OF g"
    gate = await elsewhere.transaction(depot)
    await pipeline.post(other)
    await elsewhere.until_blocked(JOURNAL)  # whatever comes now is one batch
    tenure = tenure_of(running)
    slow.open.set()
    await until(lambda: tenure.journal.depth == 2, steady_seconds=0.3)  # the other's claim, the outcome; a retry is due
    sent = loses_answer(tenure._writes, "journal(", AWAY)

    await gate.rollback()
    await pipeline.settled()

    assert sent() >= 2
    await until(lambda: tenure.attempts.running == 0, seconds=3)  # nobody stumbled
    counted = running.registry.get_sample_value
    assert counted("hookyard_attempts_total", {"destination": "warehouse", "outcome": "http_error"}) == 1
    assert pipeline.sink.sequences("/") == [1, 1]
    assert pipeline.sql(RECORDS + ", partner_id") == [(1, 1, "http_error"), (1, 1, "success"), (1, 2, "success")]
    assert pipeline.sql("SELECT DISTINCT l.in_flight, g.in_flight FROM lanes l, gates g") == [(0, 0)]


async def test_what_a_dispatch_made_of_which_its_owner_never_heard_is_found(
    pipeline: Pipeline, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's connection broke, it has looked at the lane since, and only now the server goes on."""
    monkeypatch.setattr(tenures, "COMPARE_SECONDS", 0.1)
    shop = pipeline.lane()
    running = pipeline.start_worker(lease=timedelta(minutes=1))
    await ready(running)
    await pipeline.post(shop)
    await pipeline.settled()  # the lane is known
    tenure = tenure_of(running)
    with monkeypatch.context() as patch:
        patch.setattr(tenure.feed, "_shard_of", lambda partner_id: None)  # so it leaves the log alone
        await pipeline.post(shop)
        left_behind = await elsewhere.transaction(
            "SELECT * FROM dispatch(%s, %s, '{f}', 64, 0)", tenure.token, [shop.id]
        )
        await left_behind.commit()

    await pipeline.settled()

    assert pipeline.sink.sequences() == [1, 2]
