"""Housekeeping holds nobody up."""

from __future__ import annotations

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from storage import upkeep
from storage.errors import Locked
from tests.owner import Elsewhere
from tests.pipeline import Pipeline
from workers.jobs import Jobs, JobsConfig

NEXT = "SELECT 'events_' || to_char(now() AT TIME ZONE 'UTC' + interval '14 days', 'YYYYMMDD')"


async def a_day_is_missing(pipeline: Pipeline) -> str:
    """The name of a partition that would have to be made."""
    ((name,),) = pipeline.sql(NEXT)
    pipeline.sql(f"DROP TABLE {name}")
    return str(name)


async def test_partitions_are_not_worth_making_anybody_wait(pipeline: Pipeline, elsewhere: Elsewhere) -> None:
    shop = pipeline.partner()
    name = await a_day_is_missing(pipeline)
    await elsewhere.transaction("SELECT count(*) FROM events")  # a report that takes its time

    making = asyncio.create_task(asyncio.to_thread(upkeep.make_partitions, pipeline.store))
    answered = []
    while not making.done():
        began = time.monotonic()
        await pipeline.post(shop)
        answered.append(time.monotonic() - began)

    with pytest.raises(Locked):
        await making
    assert max(answered) < 0.5
    assert pipeline.sql(f"SELECT to_regclass('{name}')") == [(None,)]


async def test_what_is_put_off_is_said_in_one_line_and_done_in_a_later_slot(
    pipeline: Pipeline, elsewhere: Elsewhere
) -> None:
    name = await a_day_is_missing(pipeline)
    reader = await elsewhere.transaction("SELECT count(*) FROM attempts, events")
    jobs = Jobs(JobsConfig(pipeline.database_url, pipeline.redis_url))
    try:
        with capture_logs() as lines:
            async with asyncio.timeout(10):
                assert await asyncio.to_thread(jobs.do, "partitions", 1) == 0
        assert [(line["event"], line["job"]) for line in lines] == [("job.put_off", "partitions")]
        assert jobs.amiss == []

        await reader.rollback()
        assert await asyncio.to_thread(jobs.do, "partitions", 2) == 1
    finally:
        jobs._stop.set()  # a chore that waits waits no longer
        jobs._store.close()
    assert pipeline.sql(f"SELECT to_regclass('{name}') IS NOT NULL") == [(True,)]
