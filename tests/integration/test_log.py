"""The log: what is answered is committed, numbers have no gaps, the same twice is one (P1, P2, P3, P10, P17)."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest

from storage import partners
from storage.database import Connection
from storage.errors import BadData, StorageUnavailable
from storage.log import Answer, Arrival, Log
from tests.owner import Elsewhere, loses_answer
from tests.pipeline import Pipeline

INGEST = "hookyard ingest"


def arrival(partner: partners.Partner, key: str | None = None, body: bytes = b"{}") -> Arrival:
    digest = None if key is None else hashlib.sha256(key.encode()).digest()
    return Arrival(partner.id, partner.shard, digest, None, None, b"content-type:application/json", None, body)


@pytest.fixture
async def make_log(database_url: str) -> AsyncIterator[Callable[[], Log]]:
    logs: list[Log] = []

    def make() -> Log:
        logs.append(Log(database_url))
        return logs[-1]

    yield make
    for log in logs:
        await log.close()


async def stored(elsewhere: Elsewhere) -> list[int]:
    return [seq for (seq,) in await elsewhere.rows("SELECT seq FROM events ORDER BY seq")]


# --- P1 --------------------------------------------------------------------------------------------------------------


async def test_nobody_is_answered_before_the_commit(pipeline: Pipeline, elsewhere: Elsewhere) -> None:
    shop = pipeline.partner()
    gate = await elsewhere.commits_wait("partner_heads")

    posted = asyncio.ensure_future(pipeline.log.accept(arrival(shop)))
    await elsewhere.until_blocked(INGEST)
    assert (posted.done(), await stored(elsewhere)) == (False, [])

    await gate.rollback()
    assert (await posted).status == "stored"
    assert await stored(elsewhere) == [1]


async def test_an_event_whose_commit_died_is_not_acknowledged_and_comes_in_once_when_sent_again(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    shop = pipeline.partner()
    gate = await elsewhere.commits_wait("partner_heads")
    posted = asyncio.ensure_future(pipeline.log.accept(arrival(shop, "order-1")))
    (backend,) = await elsewhere.until_blocked(INGEST)

    await elsewhere.rows("SELECT pg_terminate_backend(%s)", backend)

    with pytest.raises(StorageUnavailable):
        await posted
    await gate.rollback()
    assert (await stored(elsewhere), pipeline.log.available) == ([], False)
    answer = await pipeline.log.accept(arrival(shop, "order-1"))
    assert (answer.status, answer.sequence, pipeline.log.available) == ("stored", 1, True)


async def test_an_event_whose_answer_was_lost_is_a_repeat_when_sent_again(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    shop = pipeline.partner()
    loses_answer(pipeline.log._connection, "accept(", StorageUnavailable("the line is dead"))
    with pytest.raises(StorageUnavailable):
        await pipeline.log.accept(arrival(shop, "order-1"))

    answer = await pipeline.log.accept(arrival(shop, "order-1"))

    assert (answer.status, answer.sequence, await stored(elsewhere)) == ("repeat", 1, [1])


async def test_commits_are_durable_whatever_the_database_was_told(database_url: str, elsewhere: Elsewhere) -> None:
    name = database_url.rpartition("/")[2]
    await elsewhere.rows(f"ALTER DATABASE {name} SET synchronous_commit = off")
    connection = Connection(database_url, INGEST)

    rows = await connection.fetch("SHOW synchronous_commit")

    await connection.close()
    assert rows == [("on",)]


# --- P2 --------------------------------------------------------------------------------------------------------------


async def test_a_number_whose_transaction_died_is_given_again(
    pipeline: Pipeline, elsewhere: Elsewhere, make_log: Callable[[], Log]
) -> None:
    shop, first, second = pipeline.partner(), make_log(), make_log()
    gate = await elsewhere.commits_wait("partner_heads")
    doomed = asyncio.ensure_future(first.accept(arrival(shop)))
    (backend,) = await elsewhere.until_blocked(INGEST)
    waiting = asyncio.ensure_future(second.accept(arrival(shop)))
    await elsewhere.until_blocked(INGEST, 2)

    await elsewhere.rows("SELECT pg_terminate_backend(%s)", backend)
    with pytest.raises(StorageUnavailable):
        await doomed
    await gate.rollback()

    assert ((await waiting).sequence, await stored(elsewhere)) == (1, [1])


async def test_two_processes_number_one_partner_without_gaps_and_in_the_order_of_their_commits(
    pipeline: Pipeline, elsewhere: Elsewhere, make_log: Callable[[], Log]
) -> None:
    shops = [pipeline.partner(f"shop-{n}") for n in range(3)]
    logs, finished = (make_log(), make_log()), asyncio.Event()
    chance = random.Random(7)

    async def post(log: Log, n: int) -> list[tuple[int, Answer]]:
        answers = []
        for _ in range(n):
            batch = [(shop, chance.randrange(150)) for shop in chance.sample(shops, 3) for _ in range(4)]
            got = await asyncio.gather(*(log.accept(arrival(shop, f"{key}")) for shop, key in batch))
            answers += [(shop.id, answer) for (shop, _), answer in zip(batch, got, strict=True)]
        return answers

    async def observe() -> None:
        """Whoever reads sees 1 to n, never n + 1 without n, and times that do not go back."""
        reader = Connection(elsewhere.url, "observer")
        while not finished.is_set():
            for seqs, times in await reader.fetch(
                "SELECT array_agg(seq ORDER BY seq), array_agg(received_at ORDER BY seq)"
                " FROM events GROUP BY partner_id"
            ):
                assert seqs == list(range(1, len(seqs) + 1))
                assert times == sorted(times)
        await reader.close()

    observer = asyncio.create_task(observe())
    one, other = await asyncio.gather(*(post(log, 40) for log in logs))
    finished.set()
    await observer

    for shop in shops:
        new = sorted(a.sequence for partner, a in one + other if partner == shop.id and a.status == "stored")
        assert new == list(range(1, len(new) + 1))
    heads = await elsewhere.rows(
        "SELECT partner_id, last_seq, (SELECT count(*) FROM events e "
        "WHERE e.partner_id = h.partner_id) FROM partner_heads h"
    )
    assert all(last == count for _, last, count in heads)


async def test_an_event_received_while_the_clock_went_back_is_not_older_than_the_one_before(
    pipeline: Pipeline,
) -> None:
    shop = pipeline.partner()
    pipeline.sql("UPDATE partner_heads SET last_at = date_trunc('milliseconds', now()) + interval '1 hour'")

    first, second = await pipeline.post(shop, 2)

    assert first.received_at is not None
    assert first.received_at > datetime.now(UTC) + timedelta(minutes=59)
    assert first.received_at == second.received_at


# --- P3 --------------------------------------------------------------------------------------------------------------


async def test_the_same_webhook_fifty_times_at_once_is_one_event(
    pipeline: Pipeline, elsewhere: Elsewhere, make_log: Callable[[], Log]
) -> None:
    shop, logs = pipeline.partner(), (make_log(), make_log())
    await asyncio.gather(*(log.ping() for log in logs))
    head = await elsewhere.transaction("SELECT 1 FROM partner_heads FOR UPDATE")
    posted = [asyncio.ensure_future(logs[n % 2].accept(arrival(shop, "order-1"))) for n in range(50)]
    await elsewhere.until_blocked(INGEST, 2)  # both processes are in, neither has looked for repeats

    await head.rollback()
    answers = await asyncio.gather(*posted)

    assert Counter(answer.status for answer in answers) == {"stored": 1, "repeat": 49}
    assert {(answer.sequence, answer.received_at) for answer in answers} == {(1, answers[0].received_at)}
    assert await stored(elsewhere) == [1]
    assert not any(answer.conflict for answer in answers)


async def test_other_bytes_under_a_known_key_are_counted_and_not_stored(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    shop = pipeline.partner()
    at_once = await asyncio.gather(*(pipeline.log.accept(arrival(shop, "k", body)) for body in (b"1", b"2", b"1")))
    after = [await pipeline.log.accept(arrival(shop, "k", body)) for body in (b"1", b"3")]

    assert [answer.conflict for answer in at_once + after] == [False, True, False, False, True]
    assert await elsewhere.rows("SELECT seq, body FROM events") == [(1, b"1")]
    assert await elsewhere.rows("SELECT repeats, conflicts FROM dedupe") == [(2, 1)]


async def test_the_same_key_of_two_partners_is_two_events(pipeline: Pipeline) -> None:
    shops = [pipeline.partner(name) for name in ("shop", "bank")]

    answers = await asyncio.gather(*(pipeline.log.accept(arrival(shop, "order-1")) for shop in shops))

    assert [(answer.status, answer.sequence) for answer in answers] == [("stored", 1)] * 2


async def test_events_without_a_key_are_never_the_same(pipeline: Pipeline) -> None:
    answers = await pipeline.post(pipeline.partner(), 3)

    assert [(answer.status, answer.sequence) for answer in answers] == [("stored", 1), ("stored", 2), ("stored", 3)]


@pytest.mark.parametrize(("age", "status"), [("29 days", "repeat"), ("31 days", "stored")])
async def test_a_key_is_new_again_after_the_dedupe_window(pipeline: Pipeline, age: str, status: str) -> None:
    shop = pipeline.partner()
    await pipeline.log.accept(arrival(shop, "order-1"))
    pipeline.sql("UPDATE dedupe SET received_at = received_at - CAST(:age AS interval)", age=age)

    answer = await pipeline.log.accept(arrival(shop, "order-1"))
    again = await pipeline.log.accept(arrival(shop, "order-1"))

    assert (answer.status, again.status, again.sequence) == (status, "repeat", answer.sequence)


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_a_full_backlog_refuses_exactly_what_is_too_much_and_nobody_else(pipeline: Pipeline) -> None:
    shop, bank = pipeline.partner(max_backlog=5), pipeline.partner("bank")
    await pipeline.post(shop, 2)

    answers = await pipeline.post(shop, 6)

    assert [answer.status for answer in answers] == ["stored"] * 3 + ["backlog_full"] * 3
    assert [answer.sequence for answer in answers] == [3, 4, 5, 0, 0, 0]
    assert all(answer.retry_after is not None and answer.retry_after > 0 for answer in answers[3:])
    assert [answer.status for answer in await pipeline.post(bank)] == ["stored"]


async def test_a_backlog_is_full_until_something_of_it_has_gone(pipeline: Pipeline) -> None:
    shop = pipeline.partner(max_backlog=2)
    await pipeline.post(shop, 2)
    pipeline.sql("UPDATE partner_tails SET cursor = 1")

    answers = await pipeline.post(shop, 2)

    assert [(answer.status, answer.sequence) for answer in answers] == [("stored", 3), ("backlog_full", 0)]


async def test_a_repeat_is_answered_even_when_the_backlog_is_full(pipeline: Pipeline) -> None:
    shop = pipeline.partner(max_backlog=1)
    await pipeline.log.accept(arrival(shop, "order-1"))

    assert (await pipeline.log.accept(arrival(shop, "order-1"))).status == "repeat"


async def test_a_sender_that_never_retries_is_not_refused(pipeline: Pipeline) -> None:
    shop = pipeline.partner(max_backlog=1, on_backlog_full="accept")

    assert [answer.status for answer in await pipeline.post(shop, 3)] == ["stored"] * 3


@pytest.mark.parametrize(
    ("down", "accepted"),
    [((), 0), (("slow",), 5), (("quick",), 0), (("slow", "quick"), 0)],
)
async def test_the_longest_lane_of_a_living_destination_is_the_backlog(
    pipeline: Pipeline, down: tuple[str, ...], accepted: int
) -> None:
    """Lanes of destinations that are down count only if all of the partner's are."""
    shop = pipeline.partner(max_backlog=10)
    for name, waiting in (("quick", 5), ("slow", 50)):
        pipeline.destination(name)
        pipeline.subscribe(destination=name)
        pipeline.sql(
            "UPDATE lanes SET waiting = :n WHERE destination_id = (SELECT id FROM destinations WHERE name = :name)",
            n=waiting,
            name=name,
        )
    pipeline.sql(
        "UPDATE gates SET breaker = 'open', opened_at = now() WHERE destination_id IN"
        " (SELECT id FROM destinations WHERE name = ANY(:down))",
        down=list(down),
    )

    answers = await pipeline.post(shop, 7)

    assert [answer.status for answer in answers].count("stored") == accepted


async def test_a_partners_rate_is_a_burst_of_a_second_and_then_its_rate(pipeline: Pipeline) -> None:
    shop = pipeline.partner(rate=3.0)

    answers = await pipeline.post(shop, 5)
    assert [answer.status for answer in answers] == ["stored"] * 3 + ["rate_limited"] * 2
    assert [answer.retry_after for answer in answers[3:]] == [1, 1]

    pipeline.sql("UPDATE partner_heads SET refilled_at = refilled_at - interval '1 second', tokens = 0")
    answers = await pipeline.post(shop, 4)
    assert [answer.sequence for answer in answers] == [4, 5, 6, 0]


async def test_a_partner_that_is_gone_is_unknown(pipeline: Pipeline) -> None:
    shop, bank = pipeline.partner(), pipeline.partner("bank")
    pipeline.sql("UPDATE partners SET removed_at = now() WHERE name = 'shop'")

    answers = await asyncio.gather(pipeline.log.accept(arrival(shop)), pipeline.log.accept(arrival(bank)))

    assert [answer.status for answer in answers] == ["unknown_partner", "stored"]


# --- P17 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison", [{"type": "order\0created"}, {"order_key": 1 << 70}], ids=["refused by the driver", "by the server"]
)
async def test_one_bad_arrival_fails_alone_and_leaves_no_gap(
    pipeline: Pipeline, elsewhere: Elsewhere, poison: dict[str, object]
) -> None:
    shop = pipeline.partner()
    good = arrival(shop)
    batch = [good] * 12 + [good._replace(**poison)] + [good] * 7  # type: ignore[arg-type]

    answers = await asyncio.gather(*(pipeline.log.accept(each) for each in batch), return_exceptions=True)

    assert isinstance(answers[12], BadData)
    assert sorted(a.sequence for a in answers if isinstance(a, Answer)) == list(range(1, 20))
    assert await stored(elsewhere) == list(range(1, 20))


async def test_a_lock_that_is_held_too_long_is_answered_in_time(pipeline: Pipeline, elsewhere: Elsewhere) -> None:
    shop = pipeline.partner()
    await elsewhere.transaction("SELECT 1 FROM partner_heads FOR UPDATE")
    started = asyncio.get_running_loop().time()

    with pytest.raises(StorageUnavailable):
        await pipeline.log.accept(arrival(shop))

    assert asyncio.get_running_loop().time() - started < 3.5


async def test_no_connection_waits_inside_a_transaction(pipeline: Pipeline, elsewhere: Elsewhere) -> None:
    await pipeline.post(pipeline.partner(), 3)

    states = await elsewhere.rows("SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = %s", INGEST)

    assert states == [("idle",)]


async def test_every_new_head_is_announced_after_its_commit(database_url: str, pipeline: Pipeline) -> None:
    told: list[dict[tuple[int, int], int]] = []
    log = Log(database_url, announce=told.append)
    shop = pipeline.partner()

    await asyncio.gather(*(log.accept(arrival(shop, key)) for key in ("a", "b", "a")))
    await log.accept(arrival(shop, "a"))
    await log.close()

    assert told == [{(shop.shard, shop.id): 2}]
