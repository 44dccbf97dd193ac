"""The last day, minute by minute: added up over processes, and no data is not zero."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from domain.lifecycle import ParkReason
from domain.tallies import DESTINATION, PARTNER, SYSTEM, Tally, bucket
from storage import history
from storage.parking import park_waiting
from storage.recording import Recorder
from storage.schema import migrate
from storage.transactions import Store
from tests.by_hand import Hand
from tests.office import ADMIN, running
from tests.pipeline import Pipeline
from tests.servers import Servers

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
MINUTE = timedelta(minutes=1)


def read(hand: Hand, kind: str, name: str, minutes: int = 3, step: timedelta = MINUTE) -> history.History:
    with hand.store.begin() as connection:
        return history.read(connection, kind, name, since=NOW, until=NOW + minutes * MINUTE, step=step)


async def test_processes_add_up_and_where_nobody_counted_there_is_no_data(database_url: str, hand: Hand) -> None:
    first, second = Tally(), Tally()
    one = Recorder(database_url, "ingest", "one", first)
    other = Recorder(database_url, "ingest", "other", second)
    first.of(PARTNER, "shop").update({"accepted": 2, "refused:backlog_full": 1})
    second.of(PARTNER, "shop").update({"accepted": 3, "refused:too_large": 1})
    await one.write(NOW)
    await other.write(NOW)
    await one.write(NOW + 2 * MINUTE)  # it lived, and counted nothing

    found = read(hand, PARTNER, "shop")

    assert found.series["accepted"] == [5, None, 0]
    assert found.series["refused"] == [2, None, 0]
    assert found.series["refused:backlog_full"] == [1, None, 0]
    assert found.series["delivered"] == [None, None, None]  # no worker said anything
    assert read(hand, SYSTEM, "").series["accepted"] == [5, None, 0]
    assert read(hand, PARTNER, "nobody").series["accepted"] == [0, None, 0]
    assert read(hand, PARTNER, "shop", 3, 3 * MINUTE).series["accepted"] == [5]


async def test_a_minute_written_twice_counts_once(database_url: str, hand: Hand) -> None:
    tally = Tally()
    recorder = Recorder(database_url, "ingest", "one", tally)
    for _ in range(2):
        tally.of(PARTNER, "shop")["accepted"] += 2
        await recorder.write(NOW)

    assert read(hand, PARTNER, "shop", 1).series["accepted"] == [2]


async def test_quantiles_of_steps_come_from_what_was_counted_not_from_quantiles(database_url: str, hand: Hand) -> None:
    tally = Tally()
    recorder = Recorder(database_url, "worker", "one", tally)
    for n, seconds in enumerate((0.010, 0.010, 2.0)):
        tally.of(DESTINATION, "depot")[bucket("latency", seconds)] += 1 if n else 98
        await recorder.write(NOW + n * MINUTE)

    found = read(hand, DESTINATION, "depot", 3, 3 * MINUTE).series

    assert found["latency_p50"][0] is not None
    assert found["latency_p99"][0] is not None
    assert 0.008 < found["latency_p50"][0] < 0.012
    assert 0.008 < found["latency_p99"][0] < 0.012
    assert found["lag_p50"] == [None]


async def test_what_was_counted_while_the_database_was_away_keeps_its_minute(own_servers: Servers) -> None:
    url = own_servers.url_of("hookyard")
    migrate(url)
    tally = Tally()
    recorder = Recorder(url, "ingest", "one", tally)
    own_servers.stop_postgres()
    tally.of(PARTNER, "shop")["accepted"] += 2
    await recorder.write(NOW)
    own_servers.start_postgres()
    tally.of(PARTNER, "shop")["accepted"] += 3
    await recorder.write(NOW + MINUTE)

    store = Store(url)
    with store.begin() as connection:
        found = history.read(connection, PARTNER, "shop", since=NOW, until=NOW + 2 * MINUTE)
    store.close()
    assert found.series["accepted"] == [2, 3]


async def test_how_things_stood_is_sampled(database_url: str, hand: Hand) -> None:
    hand.lane()
    hand.posted(3)
    park_waiting(hand.store, 1, ParkReason.DESTINATION_SUSPENDED)
    hand.posted(2)
    hand.partner("idle")
    hand.sql("UPDATE gates SET breaker = 'open', opened_at = now()")
    with hand.store.begin() as connection:
        history.sample(connection, NOW)
    with hand.store.begin() as connection:
        history.sample(connection, NOW)  # by another process

    shop, depot = read(hand, PARTNER, "shop", 2).series, read(hand, DESTINATION, "warehouse", 2).series
    assert (shop["backlog"], shop["parked"], depot["breaker"]) == ([2, None], [3, None], [2, None])
    assert read(hand, PARTNER, "idle", 2).series["backlog"] == [0, None]
    assert read(hand, SYSTEM, "", 2).series["backlog"] == [2, None]
    with hand.store.begin() as connection:
        side_by_side = history.across(connection, PARTNER, "backlog", since=NOW, until=NOW + 2 * MINUTE)
    assert side_by_side.series == {"shop": [2, None]}


def test_only_a_day_and_the_running_one_are_kept(hand: Hand) -> None:
    old = (NOW - timedelta(days=2)).date()
    hand.sql(
        f"CREATE TABLE history_{old:%Y%m%d} PARTITION OF history"
        f" FOR VALUES FROM ('{old}') TO ('{old + timedelta(days=1)}')"
    )
    with hand.store.begin() as connection:
        assert history.drop_old(connection) == 1
        assert history.drop_old(connection) == 0


async def test_a_worker_tells_what_it_delivered_when_it_stops(pipeline: Pipeline) -> None:
    shop = pipeline.lane()
    worker = pipeline.start_worker()
    await pipeline.post(shop)
    await pipeline.settled()
    await worker.finish()

    since = datetime.now(UTC) - 5 * MINUTE
    with pipeline.store.begin() as connection:
        found = history.read(connection, PARTNER, "shop", since=since, until=since + 10 * MINUTE).series
    assert sum(filter(None, found["delivered"])) == 1
    assert any(found["lag_p99"])
    assert any(found["latency_p50"])


async def test_the_api_tells_series_of_one_length(database_url: str, hand: Hand) -> None:
    hand.lane()
    async with running(database_url) as client:
        client.headers.update(ADMIN)
        for path in ("", "/partners/shop", "/destinations/warehouse"):
            told = (await client.get(f"/api/v1/history{path}", params={"since": "2h", "step": "5m"})).json()
            assert told["step"] == "5m"
            assert {len(values) for values in told["series"].values()} == {24}
            assert set(told["series"]["delivered"]) == {None}
        assert (await client.get("/api/v1/history/partners/nobody")).status_code == 404
        assert (await client.get("/api/v1/history", params={"since": "90d"})).status_code == 422
        assert (await client.get("/api/v1/history/partners")).json()["series"] == {}
