"""What was in flight at two crashes is sent alone, from a process of its own; only what kills that one is parked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import delivery.alone
from delivery.alone import CannotStart
from delivery.exchange import Exchange
from storage import leases
from storage.partners import Partner
from tests.owner import Owner
from tests.pipeline import Pipeline
from tests.sink import Request
from tests.watching import Crowd, Gate, ask, tenure_of, until

ROOT = Path(__file__).parents[2]
SHORT = timedelta(milliseconds=300)
POISON = b"it kills its process"
ATTEMPTS = "SELECT number, outcome, error FROM attempts WHERE seq = :seq ORDER BY 1"
DELIVERY = "SELECT state::text, park_reason, attempts, failures, crashes FROM deliveries WHERE seq = :seq"


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for this process: for those that it starts."""
    monkeypatch.syspath_prepend(ROOT / "tests/poison")


async def twice_lost(pipeline: Pipeline, owner: Owner, *partners: Partner) -> None:
    """Everything accepted from them waits in its lane, and was in flight when its worker died, and the next one too."""
    await owner.dispatch(*(partner.id for partner in partners))
    pipeline.sql("UPDATE deliveries SET attempts = 2, crashes = 2")
    await leases.give_back(owner.connection, owner.token)


def no_own_attempts(pipeline: Pipeline) -> None:
    """From now on the worker itself can send nothing."""

    async def broken(outgoing: object) -> Exchange:
        raise AssertionError("this one was to be sent alone")

    tenure_of(pipeline.workers[-1]).attempts._client = type("Client", (), {"send": staticmethod(broken)})()


async def test_a_suspect_is_sent_from_a_process_of_its_own_by_the_same_request(
    pipeline: Pipeline, owner: Owner
) -> None:
    headers = b"content-type:text/plain\nx-order:\xc3\xa9"
    shop = pipeline.lane(headers=["authorization: Bearer 1"])
    await pipeline.post(shop, 1, body=b"\x00 as it came", headers=headers)
    await twice_lost(pipeline, owner, shop)
    pipeline.start_worker()
    await until(lambda: pipeline.workers[-1].worker._tenure is not None)
    no_own_attempts(pipeline)

    await pipeline.settled(30)

    assert pipeline.sql(DELIVERY, seq=1) == [("delivered", None, 3, 0, 0)]
    pipeline.workers[-1].stop.set()
    await pipeline.workers[-1].task
    pipeline.start_worker("w2")
    await ask(pipeline, "replay", 1, state="delivered")
    await pipeline.settled()
    alone, ordinary = pipeline.sink.requests
    differ = ("webhook-timestamp", "webhook-signature", "hookyard-attempt", "hookyard-replay")
    assert alone.body == ordinary.body == b"\x00 as it came"
    assert [h for h in alone.headers if h[0] not in differ] == [h for h in ordinary.headers if h[0] not in differ]
    assert (alone.attempt, ordinary.attempt) == (3, 4)


async def test_one_that_kills_its_process_is_parked_and_its_neighbours_are_not(
    pipeline: Pipeline, owner: Owner
) -> None:
    shop = pipeline.lane(max_attempts=1)
    await pipeline.post(shop)
    await pipeline.post(shop, body=POISON)
    await pipeline.post(shop)
    await twice_lost(pipeline, owner, shop)
    running = pipeline.start_worker()

    await pipeline.settled(30)

    assert pipeline.sink.sequences() == [1, 3]
    assert pipeline.sql(DELIVERY, seq=2) == [("parked", "worker_crashed", 3, 0, 2)]
    killed = "alone in a process of its own, which was ended by SIGKILL"
    assert pipeline.sql(ATTEMPTS, seq=2) == [(3, "crashed", killed)]
    assert pipeline.sql("SELECT reason, n FROM parkings") == [("worker_crashed", 1)]
    counted = running.registry.get_sample_value
    assert counted("hookyard_attempts_total", {"destination": "warehouse", "outcome": "crashed"}) == 1

    await ask(pipeline, "replay", 2)
    await pipeline.settled(30)

    assert pipeline.sql(DELIVERY, seq=2) == [("parked", "worker_crashed", 4, 0, 2)]
    assert not running.task.done()


async def test_one_that_hangs_its_process_is_parked_too(
    pipeline: Pipeline, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery.alone, "SLACK_SECONDS", 0.5)
    shop = pipeline.lane(timeout=SHORT)
    await pipeline.post(shop, body=b"it hangs its process")
    await pipeline.post(shop)
    await twice_lost(pipeline, owner, shop)
    pipeline.start_worker()

    await pipeline.settled(30)

    assert pipeline.sql(DELIVERY, seq=1) == [("parked", "worker_crashed", 3, 0, 2)]
    assert pipeline.sql(ATTEMPTS, seq=1) == [
        (3, "crashed", "alone in a process of its own, which hung, and was killed")
    ]
    assert pipeline.sink.sequences() == [2]


async def test_a_failure_alone_is_a_failure_like_any_other_and_ends_the_suspicion(
    pipeline: Pipeline, owner: Owner
) -> None:
    shop = pipeline.lane(timeout=SHORT)
    pipeline.sink.steps["/"] += [Gate(), 503, 200]
    await pipeline.post(shop)
    await twice_lost(pipeline, owner, shop)
    pipeline.start_worker()

    await pipeline.settled(30)

    outcomes = [(number, outcome) for number, outcome, _ in pipeline.sql(ATTEMPTS, seq=1)]
    assert outcomes == [(3, "timeout"), (4, "http_error"), (5, "success")]
    assert pipeline.sql(DELIVERY, seq=1) == [("delivered", None, 5, 2, 0)]


async def test_suspects_go_one_at_a_time_and_hold_up_nobody_else(pipeline: Pipeline, owner: Owner) -> None:
    shops = [pipeline.lane(f"shop-{n}", f"warehouse-{n}", path=f"/{n}") for n in range(3)]
    held = Gate()
    crowd = Crowd(held)
    pipeline.sink.default |= {"/0": crowd, "/1": crowd, "/2": crowd}
    for shop in shops:
        await pipeline.post(shop)
    await twice_lost(pipeline, owner, *shops)
    fresh = pipeline.lane("bakery", "oven", path="/oven")
    running = pipeline.start_worker()
    await held.reached.wait()

    await pipeline.post(fresh, 5)
    await pipeline.sink.until(lambda: len(pipeline.sink.at("/oven")) == 5)
    assert sum(len(pipeline.sink.at(f"/{n}")) for n in range(3)) == 1
    await until(lambda: (tenure_of(running).pool.active, tenure_of(running).turns.waiting) == (1, 2))
    held.open.set()
    await pipeline.settled(30)

    assert crowd.most == 1
    assert [len(pipeline.sink.at(f"/{n}")) for n in range(3)] == [1, 1, 1]


async def test_a_stop_in_the_middle_is_no_crash(pipeline: Pipeline, owner: Owner) -> None:
    shop, slow = pipeline.lane(timeout=timedelta(seconds=30)), Gate()
    pipeline.sink.steps["/"] += [slow]
    await pipeline.post(shop)
    await twice_lost(pipeline, owner, shop)
    running = pipeline.start_worker(drain_seconds=0.1)
    await slow.reached.wait()

    await running.finish()

    assert pipeline.sql(DELIVERY, seq=1) == [("queued", None, 3, 0, 2)]
    assert [outcome for _, outcome, _ in pipeline.sql(ATTEMPTS, seq=1)] == ["interrupted"]
    pipeline.start_worker("w2")
    await pipeline.settled(30)
    assert pipeline.sql(DELIVERY, seq=1) == [("delivered", None, 4, 0, 0)]


async def test_the_process_is_deaf_to_an_orderly_stop(pipeline: Pipeline, owner: Owner) -> None:
    """Service managers tell every process of a service; the worker decides."""
    shop, slow = pipeline.lane(timeout=timedelta(seconds=30)), Gate()

    async def told(request: Request) -> int:
        for child in _children():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(child, number)
        slow.open.set()
        return await slow(request)

    pipeline.sink.steps["/"] += [told]
    await pipeline.post(shop)
    await twice_lost(pipeline, owner, shop)
    pipeline.start_worker()

    await pipeline.settled(30)

    assert pipeline.sql(DELIVERY, seq=1) == [("delivered", None, 3, 0, 0)]


async def test_where_no_process_can_be_started_nothing_is_parked_for_it(
    pipeline: Pipeline, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(delivery.alone, "_spawn", fails)
    monkeypatch.setattr("workers.attempts.SET_ASIDE_SECONDS", 0.2)
    shop = pipeline.lane()
    await pipeline.post(shop)
    await twice_lost(pipeline, owner, shop)
    pipeline.start_worker()
    await until(lambda: pipeline.sql("SELECT 1 FROM shards WHERE owner IS NOT NULL") != [], steady_seconds=0.5)
    assert pipeline.sql(DELIVERY, seq=1) == [("queued", None, 2, 0, 2)]

    monkeypatch.undo()
    await pipeline.settled(30)

    assert pipeline.sql(DELIVERY, seq=1) == [("delivered", None, 3, 0, 0)]


async def test_a_process_that_ends_before_it_is_ready_says_nothing_about_its_errand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")

    with pytest.raises(CannotStart):
        async with delivery.alone.alone(()):
            pass


async def test_the_process_ends_with_its_worker() -> None:
    program = """
import asyncio
from delivery.alone import alone
async def main():
    async with alone(()) as made:
        print(made._process.pid, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout
    child = int(await worker.stdout.readline())
    os.kill(child, signal.SIGSTOP)  # it cannot notice by itself

    worker.kill()
    await worker.communicate()

    await until(lambda: not Path(f"/proc/{child}/exe").exists())


def _children() -> list[int]:
    """The processes that make attempts alone."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            with contextlib.suppress(OSError):
                if b"delivery.alone" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(child)
    return found
