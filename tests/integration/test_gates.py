"""A breaker opens in the stored row whatever version a worker believes it to have."""

from datetime import timedelta

from storage import destinations, gates
from storage.database import Connection
from tests.by_hand import Hand
from tests.pipeline import Pipeline


async def test_a_breaker_whose_row_has_moved_on_still_opens_and_stays_open(pipeline: Pipeline) -> None:
    shop = pipeline.lane(breaker_failures=3, breaker_reset=timedelta(seconds=60), max_attempts=50)
    pipeline.sink.default["/"] = 500
    pipeline.sql("UPDATE gates SET version = 7")  # opened and closed before this worker's time
    pipeline.start_worker()

    await pipeline.post(shop)
    await pipeline.until_sql("SELECT breaker FROM gates", [("open",)])
    before = len(pipeline.sink.requests)
    await pipeline.until_sql("SELECT breaker FROM gates", [("open",)], steady_seconds=1.5)

    assert len(pipeline.sink.requests) == before == 3


async def test_the_breaker_of_a_removed_destination_is_nobodys_news(hand: Hand, database_url: str) -> None:
    gone, there = hand.destination("gone"), hand.destination("there")
    hand.sql("UPDATE gates SET breaker = 'open', opened_at = now()")
    destinations.remove(hand.store, "gone", actor="ada")
    connection = Connection(database_url, "test")
    try:
        assert [row[0] for row in await gates.read(connection, [])] == [there]
        assert sorted(row[0] for row in await gates.read(connection, [gone])) == [gone, there]
    finally:
        await connection.close()
